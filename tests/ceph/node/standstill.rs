//! A node stands still, with its machine, in the middle of NodeStageVolume, and goes on after the volume was
//! given to another node, which has written to it.

use std::env::{current_exe, var};
use std::thread::spawn;

use super::lost_nodes::{assert_written_elsewhere_stands, shut_out, write, write_elsewhere};
use super::scene::{Scene, Volume, connected};
use crate::support::cluster::stand_still_while;
use crate::support::requests::*;
use crate::support::{Setup, await_that, cluster};

/// The variable that names the volume to this program on the other machine.
const VOLUME: &str = "VOLUME";

/// The test that the program runs on the other machine, for every mounter.
const OTHER_MACHINE: &str = "node::standstill::a_node_that_stood_still_does_not_write_to_what_another_has";

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_that_stood_still_does_not_write_to_what_another_has() {
    match var(VOLUME) {
        Ok(id) => give_to_another_node(&id),
        Err(_) => stand_still("rbd"),
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_that_stood_still_does_not_write_by_rbd_nbd_to_what_another_has() {
    stand_still("rbd-nbd");
}

/// Stands still before each program that a stage starts.
fn stand_still(mounter: &str) {
    let scene = Scene::alone();
    let moments = (1..).take_while(|moment| stands_still_at(&scene, mounter, *moment)).count();
    assert!(moments > 3, "there were only {moments} moments");
    assert!(connected().is_empty());
    scene.assert_clean();
}

/// Gives the volume to another node, as another controller does.
fn give_to_another_node(id: &str) {
    let daemon = Setup::new().on(cluster(), "cephlet").set("CEPHLET_SERVICES", "controller").start();
    let client = daemon.client();
    client.controller_unpublish_volume(&unpublish_from(id, "node-1")).expect("take it from the node");
    await_that("the other node is let in", || {
        let given = client.controller_publish_volume(&publish_to(id, "node-2"));
        given.map(drop).map_err(|refused| refused.message)
    });
    write_elsewhere(&Volume::of(id));
    daemon.assert_well();
}

/// Stands still at this program of a stage; false if a stage starts fewer programs.
fn stands_still_at(scene: &Scene, mounter: &str, moment: usize) -> bool {
    let before = shut_out(cluster());
    let volume = scene.give(&format!("still-{moment}"), 32, mount("ext4"), &[("mounter", mounter)]);
    let held = scene.tools.hold(moment);
    let (client, request) = (scene.node.client(), scene.stage_request(&volume, "stage"));
    let staging = spawn(move || client.node_stage_volume(&request));
    let is_reached = held.is_reached_before(|| staging.is_finished());
    if is_reached {
        let program = current_exe().expect("this program").display().to_string();
        let binary = crate::support::daemon::binary();
        let variables = [(VOLUME, volume.id.as_str()), ("CEPHLET_BINARY", binary), ("TMPDIR", "/tmp")];
        stand_still_while(&variables, &[&program, "--exact", OTHER_MACHINE, "--include-ignored"]);
    }
    drop(held);
    let staged = staging.join().expect("a client");
    eprintln!("moment {moment}: {staged:?}");
    if is_reached {
        if staged.is_ok() {
            write(scene, "stage/late", "late").expect_err("UNSAFE: a node writes to what another one has");
        }
        assert_written_elsewhere_stands(&volume);
        let controller = scene.controller.client();
        controller.controller_unpublish_volume(&unpublish_from(&volume.id, "node-2")).expect("take it back");
    } else {
        staged.expect("stage");
    }
    scene.retire(&volume, &[], &["stage"]);
    for (address, _) in shut_out(cluster()).iter().filter(|entry| !before.contains(entry)) {
        cluster().ceph(&["osd", "blocklist", "rm", address]);
    }
    is_reached
}
