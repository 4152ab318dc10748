//! Locks on objects.

use super::*;
use crate::backend::ceph::locks::LockState;

fn request(cookie: &str, shared: Option<&str>) -> LockRequest {
    let (cookie, shared) = (cookie.to_string(), shared.map(str::to_string));
    LockRequest { cookie, description: "why it is held".into(), shared, seconds: Some(3600) }
}

pub fn an_exclusive_lock_has_one_holder(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    let targets = [
        LockTarget::Header(&id),
        LockTarget::Clients(&id),
        LockTarget::BareName("a"),
        LockTarget::BareName("b"),
        LockTarget::SnapshotName("1234"),
        LockTarget::VolumeName("1234"),
    ];
    for target in targets {
        assert_eq!(tool.lock_state(target).unwrap(), LockState::default(), "{target:?}");
        assert_eq!(tool.lock(target, &request("n1", None)).unwrap(), Locked::Now);
        assert_eq!(tool.lock(target, &request("n2", None)).unwrap(), Locked::Held);
        assert_eq!(tool.lock(target, &request("n2", Some("rw"))).unwrap(), Locked::Held);
        assert_eq!(tool.lock(target, &request("n1", None)).unwrap(), Locked::Held, "by the same holder");
    }
    for target in targets {
        let LockState { is_known: true, holders } = tool.lock_state(target).unwrap() else {
            panic!("{target:?}")
        };
        let [holder] = holders.as_slice() else { panic!("{holders:?}") };
        let LockHolder { cookie, description, shared, client, address } = holder;
        assert_eq!((cookie.as_str(), description.as_str(), shared), ("n1", "why it is held", &None));
        assert!(client.starts_with("client.") && address.contains(":0/"), "{holder:?}");
        let stranger = LockHolder { client: "client.1".into(), ..holder.clone() };
        tool.unlock(target, &stranger).unwrap();
        assert_eq!(tool.holders(target).unwrap(), holders);
        tool.unlock(target, holder).unwrap();
        assert_eq!(tool.lock_state(target).unwrap(), LockState { is_known: true, holders: Vec::new() });
        tool.unlock(target, holder).unwrap();
        assert_eq!(tool.lock(target, &request("n2", Some("rw"))).unwrap(), Locked::Now);
    }
}

pub fn a_shared_lock_has_one_tag(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    let lock = |cookie: &str, tag| tool.lock(LockTarget::Header(&id), &request(cookie, tag)).unwrap();
    assert_eq!(lock("n1", Some("rw")), Locked::Now);
    assert_eq!(lock("n2", Some("rw")), Locked::Now);
    assert_eq!(lock("n3", Some("ro")), Locked::Held);
    assert_eq!(lock("n1", Some("ro")), Locked::Held);
    assert_eq!(lock("n3", None), Locked::Held);
    assert_eq!(lock("n1", None), Locked::Held);
    let mut holders = tool.holders(LockTarget::Header(&id)).unwrap();
    holders.sort_by(|one, other| one.cookie.cmp(&other.cookie));
    let told: Vec<_> = holders.iter().map(|it| (it.cookie.as_str(), it.shared.as_deref())).collect();
    assert_eq!(told, [("n1", Some("rw")), ("n2", Some("rw"))]);
    assert_eq!(lock("n1", Some("rw")), Locked::Now, "the same once more");
    for holder in tool.holders(LockTarget::Header(&id)).unwrap() {
        tool.unlock(LockTarget::Header(&id), &holder).unwrap();
    }
    assert_eq!(tool.holders(LockTarget::Header(&id)).unwrap(), []);
    assert_eq!(lock("n3", None), Locked::Now);
}

pub fn a_lock_dies_with_its_object(site: &Site) {
    let (tool, id) = (site.tool(), site.create("a"));
    let (header, claim) = (LockTarget::Header(&id), LockTarget::SnapshotName("1234"));
    assert_eq!(tool.lock(header, &request("n1", None)).unwrap(), Locked::Now);
    assert_eq!(tool.remove_lockable(header).unwrap_err().kind(), Kind::Precondition);
    let holder = tool.holders(header).unwrap().remove(0);
    assert_eq!(tool.remove("a").unwrap(), Removed::Gone);
    for target in [header, claim] {
        assert_eq!(tool.lock_state(target).unwrap(), LockState::default());
        tool.unlock(target, &holder).unwrap();
        tool.remove_lockable(target).unwrap();
        assert_eq!(tool.lock(target, &request("n1", None)).unwrap(), Locked::Now, "an object is made");
        tool.remove_lockable(target).unwrap();
        assert_eq!(tool.lock_state(target).unwrap(), LockState::default());
    }
    assert_eq!(tool.info(ImageRef::Id(&id)).unwrap(), None);
}

pub fn an_object_needs_a_pool_but_no_namespace(site: &Site) {
    let pool = PoolRef { pool: "absent".into(), ..site.at.clone() };
    let namespace = PoolRef { namespace: "absent".into(), ..site.at.clone() };
    let header = LockTarget::Header("1");
    let holder = LockHolder {
        cookie: "n1".into(),
        description: "why it is held".into(),
        shared: None,
        client: "client.1".into(),
        address: "10.0.0.7:0/1".into(),
    };
    let tool = site.tool_at(&pool);
    assert_lacks("absent", "lock", tool.lock(header, &request("n1", None)));
    assert_lacks("absent", "lock_state", tool.lock_state(header));
    assert_lacks("absent", "unlock", tool.unlock(header, &holder));
    assert_lacks("absent", "remove_lockable", tool.remove_lockable(header));
    let tool = site.tool_at(&namespace);
    assert_eq!(tool.lock_state(header).unwrap(), LockState::default());
    tool.unlock(header, &holder).unwrap();
    tool.remove_lockable(header).unwrap();
}
