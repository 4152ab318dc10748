use super::*;
use crate::backend::rbd::tool::*;

const HEADER: LockTarget<'_> = LockTarget::Header("10eaba2fcb04");
const NAME: LockTarget<'_> = LockTarget::SnapshotName("00112233");
const BUSY: &str =
    "ERROR: failed locking: (16) Device or resource busy\nerror 16: (16) Device or resource busy\n";

fn hold(shared: Option<&str>, seconds: Option<u64>) -> LockRequest {
    LockRequest {
        cookie: "node-1".into(),
        description: "mode=rw".into(),
        shared: shared.map(String::from),
        seconds,
    }
}

#[test]
fn a_lock_is_taken_by_one() {
    let it = Fixture::new();
    let get = "rados ~ --pool=vms lock get rbd_header.10eaba2fcb04 cephlet --lock-cookie=node-1 \
               --lock-description=mode=rw";
    it.prints(get, "");
    assert_eq!(it.at().lock(HEADER, &hold(None, None)).unwrap(), Locked::Now);
    it.fails(get, 1, BUSY);
    assert_eq!(it.at().lock(HEADER, &hold(None, None)).unwrap(), Locked::Held);
    it.fails(
        get,
        1,
        "ERROR: failed locking: (1) Operation not permitted\nerror 1: (1) Operation not permitted\n",
    );
    assert!(it.at().lock(HEADER, &hold(None, None)).is_err());
    it.fails(get, 1, "error opening pool vms: (2) No such file or directory\n");
    assert_error(it.at().lock(HEADER, &hold(None, None)), Kind::Precondition, &["no pool \"vms\""]);
}

#[test]
fn a_registered_name_has_an_object_of_its_own() {
    let it = Fixture::new();
    it.prints("rados ~ --pool=vms rm cephlet.name.00112233", "");
    it.at().remove_lockable(LockTarget::VolumeName("00112233")).unwrap();
}

#[test]
fn a_lock_may_be_shared_and_may_end() {
    let it = Fixture::new();
    let get = "rados ~ --pool=vms --namespace=team lock get cephlet.snap.00112233 cephlet \
               --lock-cookie=node-1 \
               --lock-description=mode=rw --lock-type=shared --lock-tag=many --lock-duration=60";
    it.prints(get, "");
    assert_eq!(it.team().lock(NAME, &hold(Some("many"), Some(60))).unwrap(), Locked::Now);
}

#[test]
fn holders_are_told_as_they_took_it() {
    let it = Fixture::new();
    let info = "rados --pool=vms lock info rbd_header.10eaba2fcb04 cephlet --format=json";
    let go = || it.at().holders(HEADER).unwrap();
    let locker = r#"{"name":"client.4652","cookie":"node-1","description":"a b \"c\"","expiration":"0.000000","addr":"127.0.0.1:0/1061249245"}"#;
    let holder = LockHolder {
        cookie: "node-1".into(),
        description: "a b \"c\"".into(),
        shared: None,
        client: "client.4652".into(),
        address: "127.0.0.1:0/1061249245".into(),
    };
    it.prints(info, &format!(r#"{{"name":"cephlet","type":"exclusive","tag":"","lockers":[{locker}]}}"#));
    assert_eq!(go(), std::slice::from_ref(&holder));
    it.prints(info, &format!(r#"{{"name":"cephlet","type":"shared","tag":"t","lockers":[{locker}]}}"#));
    assert_eq!(go(), [LockHolder { shared: Some("t".into()), ..holder }]);
    it.prints(info, r#"{"name":"cephlet","type":"none","tag":"","lockers":[]}"#);
    assert_eq!(go(), []);
    it.fails(
        info,
        1,
        "ERROR: rados_lock_get_lock_info(): (2) No such file or directory\nerror 2: (2) No such file or \
         directory\n",
    );
    assert_eq!(go(), []);
}

#[test]
fn a_lock_is_taken_back_by_the_client_that_took_it() {
    let it = Fixture::new();
    let holder = LockHolder {
        cookie: "node-1".into(),
        description: String::new(),
        shared: None,
        client: "client.4652".into(),
        address: String::new(),
    };
    let unlock =
        "rados ~ --pool=vms lock break rbd_header.10eaba2fcb04 cephlet client.4652 --lock-cookie=node-1";
    it.prints(unlock, "");
    it.at().unlock(HEADER, &holder).unwrap();
    it.fails(
        unlock,
        1,
        "ERROR: failed breaking lock: (2) No such file or directory\nerror 2: (2) No such \
                         file or directory\n",
    );
    it.at().unlock(HEADER, &holder).unwrap();
}

#[test]
fn the_name_of_a_snapshot_is_given_up_once_or_twice() {
    let it = Fixture::new();
    let rm = "rados ~ --pool=vms --namespace=team rm cephlet.snap.00112233";
    it.prints(rm, "");
    it.team().remove_lockable(NAME).unwrap();
    it.fails(rm, 1, "error removing vms>team/cephlet.snap.00112233: (2) No such file or directory\n");
    it.team().remove_lockable(NAME).unwrap();
}

#[test]
fn a_second_name_of_an_image_is_removed_without_the_image() {
    let it = Fixture::new();
    let rm = "rados ~ --pool=vms --namespace=team rm rbd_id.web";
    it.prints(rm, "");
    it.team().remove_name("web").unwrap();
    it.fails(rm, 1, "error removing vms>team/rbd_id.web: (2) No such file or directory\n");
    it.team().remove_name("web").unwrap();
}

#[test]
fn the_header_of_an_image_is_never_removed() {
    let it = Fixture::new();
    let keys = "rados --pool=vms listomapkeys rbd_header.10eaba2fcb04";
    it.prints(keys, "features\nsize\n");
    assert_error(it.at().remove_lockable(HEADER), Kind::Precondition, &["header of an image"]);
    it.prints(keys, "");
    it.prints("rados ~ --pool=vms rm rbd_header.10eaba2fcb04", "");
    it.at().remove_lockable(HEADER).unwrap();
    it.fails(
        keys,
        1,
        "error getting omap key set vms/rbd_header.10eaba2fcb04: (2) No such file or directory\n",
    );
    it.at().remove_lockable(HEADER).unwrap();
}
