use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::backend::rbd::tool::*;

const CLONE: &str = "rbd ~ clone --rbd-default-clone-format=2 --pool=vms --image=web --snap=s1 \
                     --dest-pool=vms --dest-namespace=team --dest=copy";

#[test]
fn a_snapshot_is_taken_once() {
    let it = Fixture::new();
    let create = "rbd ~ snap create --no-progress --pool=vms --image=web --snap=s1";
    let go = || it.at().create_snapshot("web", "s1");
    it.prints(create, "");
    assert_eq!(go().unwrap(), Some(Made::New));
    it.fails(create, 17, "rbd: failed to create snapshot: (17) File exists\n");
    assert_eq!(go().unwrap(), Some(Made::Taken));
    it.fails(create, 2, NO_IMAGE);
    assert_eq!(go().unwrap(), None);
    it.fails(create, 2, NO_POOL);
    assert_error(go(), Kind::Precondition, &["take snapshot vms/web@s1"]);
}

#[test]
fn snapshots_in_the_trash_go_by_the_name_they_had() {
    let it = Fixture::new();
    let printed = r#"[{"id":6,"name":"5ffa168e-d509-4eee-8f00-554507e17677","size":2000000,"protected":"false",
        "timestamp":"Sat Nov 21 08:29:16 2026","namespace":{"type":"trash","original_name":"s1"}},
        {"id":7,"name":"s2","size":1000,"protected":"false","timestamp":"Sat Nov 21 08:29:17 2026","namespace":{"type":"user"}},
        {"id":8,"name":".mirror.primary","size":1000,"timestamp":"","namespace":{"type":"mirror","state":"primary"}},
        {"id":9,"name":".group.1_101b_1023","size":1000,"timestamp":"","namespace":{"type":"group","pool":"rbd","group":"g","group snap":"s"}}]"#;
    it.prints("rbd snap ls --all --format=json --pool=vms --image-id=10d95d6456b2", printed);
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let expected = vec![
        SnapshotInfo { id: 6, name: "s1".into(), size: 2_000_000, created: at(1_795_249_756), trashed: true },
        SnapshotInfo { id: 7, name: "s2".into(), size: 1_000, created: at(1_795_249_757), trashed: false },
        SnapshotInfo {
            id: 9,
            name: ".group.1_101b_1023".into(),
            size: 1_000,
            created: at(0),
            trashed: false,
        },
    ];
    assert_eq!(it.at().snapshots(ImageRef::Id("10d95d6456b2")).unwrap(), Some(expected));
    it.fails("rbd snap ls --all --format=json --pool=vms --image=web", 2, NO_IMAGE);
    assert_eq!(it.at().snapshots(ImageRef::Name("web")).unwrap(), None);
}

#[test]
fn a_snapshot_is_deleted_by_its_name() {
    let it = Fixture::new();
    let rm = "rbd ~ snap rm --no-progress --pool=vms --image=web --snap=s1";
    let go = || it.at().remove_snapshot(ImageRef::Name("web"), "s1");
    it.prints(rm, "");
    assert_eq!(go().unwrap(), Removed::Gone);
    for absent in [NO_IMAGE, "rbd: failed to remove snapshot: (2) No such file or directory\n"] {
        it.fails(rm, 2, absent);
        assert_eq!(go().unwrap(), Removed::Absent);
    }
}

#[test]
fn clones_are_looked_for_below_all_snapshots() {
    let it = Fixture::new();
    let children = "rbd children --all --format=json --pool=vms --image=web";
    let go = || it.at().has_clones("web");
    it.prints(children, "[]");
    assert!(!go().unwrap());
    let one = r#"[{"pool":"vms","pool_namespace":"team","image":"copy","id":"1015bbaba019","trash":false}]"#;
    it.prints(children, one);
    assert!(go().unwrap());
    it.fails(children, 2, NO_IMAGE);
    assert!(!go().unwrap());
    it.fails(children, 2, NO_POOL);
    assert_error(go(), Kind::Precondition, &["list the clones of image vms/web"]);
}

#[test]
fn a_snapshot_goes_by_its_number_unless_it_is_protected() {
    let it = Fixture::new();
    let rm = "rbd ~ snap rm --pool=vms --image-id=10d95d6456b2 --snap-id=6";
    let go = || it.at().remove_snapshot_by_number("10d95d6456b2", 6);
    it.prints(rm, "");
    assert_eq!(go().unwrap(), RemovedByNumber::Gone);
    let no_image = "rbd: error opening image with id 10d95d6456b2: (2) No such file or directory\n";
    for absent in [no_image, "rbd: failed to remove snapshot: (2) No such file or directory\n"] {
        it.fails(rm, 2, absent);
        assert_eq!(go().unwrap(), RemovedByNumber::Absent);
    }
    it.fails(rm, 16, "rbd: snapshot id 6 is protected from removal.\n");
    assert_eq!(go().unwrap(), RemovedByNumber::Protected);
    it.fails(rm, 30, "rbd: failed to remove snapshot: (30) Read-only file system\n");
    assert_error(go(), Kind::Precondition, &["delete snapshot 6", "vms/(id 10d95d6456b2)"]);
}

fn copy(it: &Fixture, layout: &Layout) -> crate::error::Result<Option<Made>> {
    let clone = NewClone { from: &it.at, image: "web", snapshot: "s1", to: &it.team, name: "copy", layout };
    it.at().clone_image(&clone)
}

#[test]
fn a_clone_is_of_version_2_and_may_go_elsewhere() {
    let it = Fixture::new();
    let go = |layout: &Layout| copy(&it, layout);
    it.prints(&format!("{CLONE} --object-size=65536B"), "");
    let layout = Layout { object_size: Some(65_536), ..Layout::default() };
    assert_eq!(go(&layout).unwrap(), Some(Made::New));
    it.fails(CLONE, 17, "rbd: clone error: (17) File exists\n");
    assert_eq!(go(&Layout::default()).unwrap(), Some(Made::Taken));
    it.fails(CLONE, 2, "rbd: clone error: (2) No such file or directory\n");
    assert_eq!(go(&Layout::default()).unwrap(), None);
    it.fails(CLONE, 22, "rbd: clone error: (22) Invalid argument\n");
    assert_error(
        go(&Layout::default()),
        Kind::InvalidArgument,
        &["clone vms/web@s1 to vms/team/copy", "refuses this layout"],
    );
}

#[test]
fn a_pool_whose_clones_would_be_of_version_1_is_named_with_the_command_that_mends_it() {
    let it = Fixture::new();
    let layout = Layout::default();
    let clone =
        NewClone { from: &it.at, image: "web", snapshot: "s1", to: &it.team, name: "copy", layout: &layout };
    let said = "librbd::image::CloneRequest: 0x558d validate_parent: parent snapshot must be protected\n\
                rbd: clone error: (22) Invalid argument\n";
    it.fails(CLONE, 22, said);
    let parts = ["web@s1", "`rbd config pool rm vms rbd_default_clone_format`"];
    assert_error(it.at().clone_image(&clone), Kind::Precondition, &parts);
}

#[test]
fn a_clone_tells_what_is_missing_at_its_end_from_what_is_at_the_sources() {
    let it = Fixture::new();
    let go = |layout: &Layout| copy(&it, layout);
    it.fails(CLONE, 2, NO_NAMESPACE);
    assert_error(
        go(&Layout::default()),
        Kind::Precondition,
        &["rbd namespace create --pool vms --namespace team"],
    );
    it.fails(CLONE, 2, NO_POOL);
    assert_error(go(&Layout::default()), Kind::Precondition, &["ceph osd pool create vms"]);
    let layout = Layout { data_pool: Some("ec".into()), ..Layout::default() };
    let said = "librbd::image::CreateRequest: validate_data_pool: data pool ec does not exist\n\nrbd: clone \
                error: (2) No such …\n";
    it.fails(&format!("{CLONE} --data-pool=ec"), 2, said);
    assert_error(go(&layout), Kind::Precondition, &["no data pool \"ec\""]);
}

#[test]
fn flatten_has_all_the_time_it_needs() {
    let it = Fixture::new();
    let flatten = "rbd ~ flatten --pool=vms --image=web";
    let go = || it.at().flatten("web");
    it.prints(flatten, "");
    assert_eq!(go().unwrap(), Changed::Done);
    assert!(it.was(Class::Lasting));
    it.fails(flatten, 2, NO_IMAGE);
    assert_eq!(go().unwrap(), Changed::Absent);
    // Another flatten has taken the parent away, perhaps without having copied all data.
    let parentless = "librbd::Operations: image has no parent\n\nrbd: flatten error: (22) Invalid argument\n";
    it.fails(flatten, 22, parentless);
    assert_error(go(), Kind::Internal, &["image vms/web"]);
}

#[test]
fn features_are_switched_and_the_object_map_is_rebuilt() {
    let it = Fixture::new();
    let map = ["object-map", "fast-diff"];
    let commands = [
        "rbd ~ feature disable --pool=vms --image=web object-map fast-diff",
        "rbd ~ feature enable --pool=vms --image=web object-map fast-diff",
        "rbd ~ object-map rebuild --pool=vms --image=web",
    ];
    for (number, command) in commands.into_iter().enumerate() {
        let go = || match number {
            0 => it.at().disable_features("web", &map),
            1 => it.at().enable_features("web", &map),
            _ => it.at().rebuild_object_map("web"),
        };
        it.prints(command, "");
        assert_eq!(go().unwrap(), Changed::Done);
        assert_eq!(it.was(Class::Lasting), number == 2, "a rebuild takes as long as it takes");
        it.fails(command, 2, NO_IMAGE);
        assert_eq!(go().unwrap(), Changed::Absent);
        it.fails(command, 22, "rbd: failed to update image features: (22) Invalid argument\n");
        assert_error(go(), Kind::Internal, &["image vms/web"]);
    }
}
