use std::time::UNIX_EPOCH;

use super::*;
use crate::backend::rbd::tool::*;

const ID: &str = "118b7b3d6f7d";

#[test]
fn an_image_is_moved_to_the_trash_and_taken_back() {
    let it = Fixture::new();
    let mv = "rbd ~ trash mv --pool=vms --image=web";
    it.prints(mv, "");
    assert_eq!(it.move_to_trash(&it.call, &it.at, "web").unwrap(), Changed::Done);
    it.fails(mv, 2, "rbd: deferred delete error: (2) No such file or directory\n");
    assert_eq!(it.move_to_trash(&it.call, &it.at, "web").unwrap(), Changed::Absent);
    let restore = "rbd ~ trash restore --pool=vms --namespace=team --image-id=118b7b3d6f7d --image=web";
    let go = || it.restore_from_trash(&it.call, &it.team, ID, "web");
    it.prints(restore, "");
    assert_eq!(go().unwrap(), Renamed::Done);
    it.fails(
        restore,
        2,
        "librbd::api::Trash: restore: error getting image id …\n\nrbd: error: image does \
                          not exist in trash\n",
    );
    assert_eq!(go().unwrap(), Renamed::Absent);
    it.fails(
        restore,
        17,
        "rbd: error: an image with the same name already exists, try again with a different name\n",
    );
    assert_eq!(go().unwrap(), Renamed::Taken);
}

#[test]
fn the_trash_says_who_moved_an_image_there_and_whether_it_is_to_be_kept() {
    let it = Fixture::new();
    let printed = r#"[{"id":"10d95d6456b2","name":"t-full","source":"USER_PARENT","deleted_at":"Sat Nov 21 08:29:19 2026",
        "status":"expired at Sat Nov 21 08:29:19 2026"},{"id":"118b7b3d6f7d","name":"t-c1","source":"USER",
        "status":"protected until Thu Dec 31 23:59:59 2026"},{"id":"11ab","name":"m","source":"MIRRORING"}]"#;
    it.prints("rbd trash ls --all --format=json --long --pool=vms", printed);
    let moved = |second| UNIX_EPOCH + Duration::from_secs(second);
    let item = |name: &str, id: &str, source, (second, is_deferred)| Trashed {
        name: name.into(),
        id: id.into(),
        source,
        moved: moved(second),
        is_deferred,
    };
    let expected = [
        item("t-full", "10d95d6456b2", TrashSource::Clones, (1_795_249_759, false)),
        item("t-c1", ID, TrashSource::User, (0, true)),
        item("m", "11ab", TrashSource::Other, (0, false)),
    ];
    assert_eq!(it.trash(&it.call, &it.at).unwrap(), expected);
}

#[test]
fn an_entry_without_its_image_is_purged_for_the_list_to_be_told() {
    let it = Fixture::new();
    let long = "rbd trash ls --all --format=json --long --pool=vms";
    it.fails(
        long,
        2,
        "librbd::image::OpenRequest: failed to …\n\nrbd: trash list: (2) No such file or directory\n",
    );
    it.prints("rbd trash ls --all --format=json --pool=vms", r#"[{"id":"118b7b3d6f7d","name":"web"}]"#);
    let info = "rbd info --format=json --pool=vms --image-id=118b7b3d6f7d";
    it.fails(info, 2, "rbd: error opening image with id 118b7b3d6f7d: (2) No such file or directory\n");
    it.prints("rbd ~ trash rm --no-progress --force --pool=vms --image-id=118b7b3d6f7d", "");
    it.prints(long, "[]");
    assert_eq!(it.trash(&it.call, &it.at).unwrap(), []);
}

#[test]
fn a_purge_has_all_the_time_it_needs() {
    let it = Fixture::new();
    let rm = "rbd ~ trash rm --no-progress --force --pool=vms --image-id=118b7b3d6f7d";
    let go = || it.purge(&it.call, &it.at, ID);
    it.prints(rm, "");
    assert_eq!(go().unwrap(), Removed::Gone);
    assert!(it.was(Class::Lasting));
    // As it was seen: the log came between the words.
    it.fails(
        rm,
        2,
        "rbd: remove error: librbd::api::Trash: remove: error getting …\n\n(2) No such file or directory\n",
    );
    assert_eq!(go().unwrap(), Removed::Absent);
    it.fails(rm, 117, "rbd: error: image not fully moved to trash.\n");
    assert_eq!(go().unwrap(), Removed::Absent);
    it.fails(rm, 16, "rbd: error: image still has watchers\n");
    assert_eq!(go().unwrap(), Removed::Watched);
    it.fails(rm, 39, "rbd: image has snapshots - these must be deleted …\n");
    assert_eq!(go().unwrap(), Removed::HasSnapshots);
}

#[test]
fn the_manager_purges_where_it_takes_tasks() {
    let it = Fixture::new();
    let task = "ceph rbd task add trash remove vms/team/118b7b3d6f7d";
    let go = || it.purge_by_manager(&it.call, &it.team, ID);
    it.prints(task, "{\"sequence\": 1}\n");
    assert_eq!(go().unwrap(), ManagerTask::Accepted);
    it.fails(task, 2, "Error ENOENT: [errno 2] RBD image not found (error retrieving image from trash)\n");
    assert_eq!(go().unwrap(), ManagerTask::Absent, "it is purged already");
    it.fails(
        task,
        13,
        "Error EACCES: access denied: does your client key have mgr caps? See http://docs.ceph.com/…\n",
    );
    assert_eq!(go().unwrap(), ManagerTask::NoManager);
    it.fails(task, 22, "no valid command found; 10 closest matches:\nError EINVAL: invalid command\n");
    assert_eq!(go().unwrap(), ManagerTask::NoManager);
    it.fails(task, 2, "Error ENOENT: [errno 2] RADOS object not found (error opening pool 'vms')\n");
    assert_error(go(), Kind::Precondition, &["no pool \"vms\""]);
    it.fails(task, 1, "timed out\n");
    assert_error(go(), Kind::Unavailable, &["was not reached"]);
}
