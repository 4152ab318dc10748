//! The daemon's own disk is full: requests that need room are refused with that reason, removals go on,
//! nothing is lost, and everything works when there is room again.

use std::fs;

use crate::support::Corner;
use crate::support::requests::*;
use crate::support::scratch::fill_up;

#[test]
fn a_full_disk_under_the_journal_is_reported_and_loses_nothing() {
    let corner = Corner::new();
    let setup = corner.setup();
    let state = setup.scratch.small_ext4("small", 8);
    let mut daemon = setup.set("CEPHLET_STATE_DIR", state.join("state").display()).start();
    let client = daemon.client();
    let make = |name: &str| client.create(&corner.volume(name, 8)).expect("create").volume_id;
    let old = make("old");
    let snap =
        client.create_snapshot(&snapshot("snap", &old)).expect("snapshot").snapshot.snapshot_id.clone();
    let before = corner.shape();
    let [doomed, last] = ["doomed", "last"].map(make);

    // Deletions are recorded in the journal's reserved room; other calls of a controller record nothing.
    let ballast = fill_up(&state);
    client.delete_volume(&delete(&doomed)).expect("removals go on");
    client.controller_get_volume(&get(&old)).expect("get");
    client.list_volumes(&page(0, "")).expect("list");
    daemon.assert_well();

    // A start with a full disk works, and the daemon still knows its records.
    daemon.restart();
    let client = daemon.client();
    client.controller_get_volume(&get(&old)).expect("get");
    client.delete_volume(&delete(&last)).expect("removals go on");
    corner.await_shape(&before);
    let copy = client.create(&from_snapshot(corner.volume("copy", 8), &snap)).expect("copy").volume_id;
    fs::remove_file(ballast).expect("remove the ballast");
    client.create_snapshot(&snapshot("snap", &old)).expect("the same snapshot");
    client.delete_snapshot(&delete_snapshot(&snap)).expect("delete the snapshot");
    for id in [&old, &copy] {
        client.delete_volume(&delete(id)).expect("delete");
    }
    corner.await_objects(&[]);
}
