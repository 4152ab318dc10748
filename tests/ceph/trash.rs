//! What a start removes from the trash, and what it leaves there.

use crate::support::Corner;
use crate::support::corner::await_that;

/// An image in the trash and its id. The image has a name made from the id.
fn trashed(corner: &Corner, name: impl Fn(&str) -> String) -> String {
    let made = corner.spec("made");
    corner.cluster.rbd(&["create", "--size", "16M", &made]);
    let id = corner.json(&["info", &made])["id"].as_str().expect("an id").to_string();
    let spec = corner.spec(&name(&id));
    corner.cluster.rbd(&["rename", &made, &spec]);
    corner.cluster.rbd(&["trash", "mv", &spec]);
    id
}

/// A removal that is killed leaves them there, in a pool that moves removed images to the trash.
#[test]
fn a_start_purges_from_the_trash_deleted_volumes_and_unfinished_copies_and_nothing_else() {
    let corner = Corner::new();
    let deleted = trashed(&corner, |id| format!("csi-held-{id}"));
    let unfinished = trashed(&corner, |_| "csi-tmp-0000aaaa-abcdefghij234-zyxw7654".to_string());
    let by_hand = [
        trashed(&corner, |_| format!("csi-vol-{}", "3".repeat(13))),
        trashed(&corner, |_| format!("csi-held-{deleted}")),
        trashed(&corner, |_| "web".to_string()),
    ];
    let trash = || -> Vec<String> {
        let listed = corner.json(&["trash", "ls", "--all", &corner.place()]);
        let entries = listed.as_array().expect("a list").iter();
        entries.map(|entry| entry["id"].as_str().expect("an id").to_string()).collect()
    };
    let mut daemon = corner.start();
    await_that("what was deleted is purged", || {
        let left = trash();
        let purged = !left.contains(&deleted) && !left.contains(&unfinished);
        if purged { Ok(()) } else { Err(format!("{left:?}")) }
    });
    assert!(daemon.terminate().success());
    for id in by_hand {
        assert!(trash().contains(&id), "UNSAFE: {id} was put into the trash by hand, and is purged");
        corner.cluster.rbd(&["trash", "rm", "--no-progress", &format!("{}/{id}", corner.place())]);
    }
    corner.await_empty();
}
