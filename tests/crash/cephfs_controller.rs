//! What the controller does to CephFS volumes.

use super::acts::*;
use super::remote::{Scene, Trial};
use crate::support::requests::*;
use crate::support::{Group, Place};

type Fs = Scene<Group>;

const NOTHING: fn(&mut Fs) = |_| ();

fn with_snapshot(scene: &mut Fs) {
    scene.have_filled("old");
    scene.have_snapshot("snap");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_created() {
    let ask = |scene: &mut Fs| {
        let request = scene.corner.request("new");
        create(scene, request)
    };
    Trial { stock: NOTHING, have: NOTHING, ask, check: assert_one_volume }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_cloned_from_a_snapshot() {
    let ask = |scene: &mut Fs| {
        let request = from_snapshot(scene.corner.volume("new", 16), &scene.snapshots[0]);
        create(scene, request)
    };
    Trial { stock: with_snapshot, have: NOTHING, ask, check: assert_copied }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_cloned_from_a_volume() {
    let ask = |scene: &mut Fs| {
        let request = from_volume(scene.corner.request("new"), scene.id());
        create(scene, request)
    };
    Trial { stock: |scene| scene.have_filled("old"), have: NOTHING, ask, check: assert_copied }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_snapshot_of_a_subvolume_is_taken() {
    Trial { stock: |scene: &mut Fs| scene.have("old"), have: NOTHING, ask: take_snapshot, check: NOTHING }
        .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_deleted() {
    let stock = |scene: &mut Fs| scene.have("other");
    Trial { stock, have: |scene| scene.have("old"), ask: delete_last, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_with_a_snapshot_is_deleted() {
    Trial { stock: NOTHING, have: have_snapshot, ask: delete_first, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_snapshot_of_a_subvolume_is_deleted() {
    Trial {
        stock: |scene: &mut Fs| scene.have("old"),
        have: |scene| scene.have_snapshot("snap"),
        ask: delete_first_snapshot,
        check: assert_one_volume,
    }
    .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_last_snapshot_of_a_deleted_subvolume_is_deleted() {
    let have = |scene: &mut Fs| {
        have_snapshot(scene);
        delete_first(scene).expect("delete");
    };
    Trial { stock: NOTHING, have, ask: delete_first_snapshot, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_expanded() {
    let have = |scene: &mut Fs| scene.have("old");
    Trial { stock: NOTHING, have, ask: expand_first, check: assert_grown }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_published_to_its_node() {
    let check = |scene: &mut Fs| assert_eq!(published(scene), ["node-1"]);
    let have = |scene: &mut Fs| drop(unpublish_from_node(scene).expect("unpublish"));
    Trial { stock: |scene| scene.have("old"), have, ask: publish_to_node, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_subvolume_is_unpublished_from_its_node() {
    let have = |scene: &mut Fs| drop(publish_to_node(scene).expect("publish"));
    let check = |scene: &mut Fs| assert!(published(scene).is_empty());
    Trial { stock: |scene| scene.have("old"), have, ask: unpublish_from_node, check }.run();
}
