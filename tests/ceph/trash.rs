//! What a start purges from the trash, and what it leaves there.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::Corner;
use crate::support::corner::await_that;

/// An image named like a volume, and its id.
fn image(corner: &Corner, digit: &str) -> (String, String) {
    let spec = corner.spec(&format!("csi-vol-{}", digit.repeat(13)));
    corner.cluster.rbd(&["create", "--size", "16M", &spec]);
    let id = corner.json(&["info", &spec])["id"].as_str().expect("an id").to_string();
    (spec, id)
}

/// Marks an image as a controller does that is about to move it to the trash.
fn mark(corner: &Corner, id: &str, seconds: u64) {
    let place = ["--pool", "rbd", "--namespace", &corner.namespace];
    let lock = ["lock", "get", &format!("rbd_header.{id}"), "cephlet.trash", "--lock-cookie=deleted"];
    let description = format!("--lock-description=1 {seconds} by controller 0000aaaa");
    corner.cluster.rados(&[&place[..], &lock, &[&description]].concat());
}

#[test]
fn a_start_purges_from_the_trash_what_a_controller_has_moved_there_and_nothing_else() {
    let corner = Corner::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let [deleted, by_hand, used_since] = ["2", "3", "4"].map(|digit| image(&corner, digit));
    mark(&corner, &deleted.1, now);
    // A deletion that went no further, a day ago.
    mark(&corner, &used_since.1, now - 24 * 60 * 60);
    for (spec, _) in [&deleted, &by_hand, &used_since] {
        corner.cluster.rbd(&["trash", "mv", spec]);
    }
    let trash = || corner.cluster.rbd(&["trash", "ls", "--all", &corner.place()]);
    let mut daemon = corner.start();
    await_that("what was deleted is purged", || {
        if trash().contains(&deleted.1) { Err(trash()) } else { Ok(()) }
    });
    for (_, id) in [&by_hand, &used_since] {
        // It has been looked at.
        daemon.log.await_lines(&format!("lock info rbd_header.{id} cephlet.trash --format=json` took "), 1);
    }
    assert!(daemon.terminate().success());
    for (spec, id) in [by_hand, used_since] {
        assert!(trash().contains(&id), "UNSAFE: {spec} was put into the trash by hand, and is purged");
        corner.cluster.rbd(&["trash", "rm", "--no-progress", &format!("{}/{id}", corner.place())]);
    }
    corner.await_empty();
}
