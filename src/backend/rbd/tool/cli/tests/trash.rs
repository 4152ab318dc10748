use super::*;
use crate::backend::rbd::tool::*;

const ID: &str = "118b7b3d6f7d";

#[test]
fn the_trash_is_listed_without_opening_images() {
    let it = Fixture::new();
    let ls = "rbd trash ls --all --format=json --pool=vms";
    it.prints(ls, r#"[{"id":"118b7b3d6f7d","name":"web"}]"#);
    assert_eq!(it.at().trash().unwrap(), [Trashed { name: "web".into(), id: ID.into() }]);
    it.prints(ls, "[]");
    assert_eq!(it.at().trash().unwrap(), []);
}

#[test]
fn a_purge_has_all_the_time_it_needs() {
    let it = Fixture::new();
    let rm = "rbd ~ trash rm --force --pool=vms --image-id=118b7b3d6f7d";
    let go = || it.at().purge(ID);
    it.prints(rm, "");
    assert_eq!(go().unwrap(), Removed::Gone);
    assert!(it.was(Class::Lasting));
    // As it was seen: librbd's log came between the words.
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
