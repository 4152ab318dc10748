//! What the controller does to RBD volumes.

use super::acts::*;
use super::remote::{Scene, Trial};
use super::trial::Outcome;
use crate::support::Code;
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::v0;

const NOTHING: fn(&mut Scene) = |_| ();

/// Through CSI 0.1, where snapshots may not outlive their volume: the refusal is an outcome, too.
fn delete_first_strictly(scene: &mut Scene) -> Answer<Outcome> {
    match v0::Client::of(&scene.daemon).delete_volume(&v0::delete(scene.id())) {
        Err(failure)
            if failure.code == Code::FAILED_PRECONDITION && failure.message.contains("csi-snap-") =>
        {
            Ok(Outcome::plain(&"it has snapshots"))
        }
        answer => answer.map(|reply| Outcome::plain(&reply)),
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_created() {
    let ask = |scene: &mut Scene| {
        let request = scene.corner.volume("new", 8);
        create(scene, request)
    };
    Trial { stock: NOTHING, have: NOTHING, ask, check: assert_one_volume }.run();
}

#[test]
fn an_image_is_cloned_from_a_snapshot() {
    let stock = |scene: &mut Scene| {
        scene.have_filled("old");
        scene.have_snapshot("snap");
    };
    let ask = |scene: &mut Scene| {
        let request = from_snapshot(scene.corner.volume("new", 16), &scene.snapshots[0]);
        create(scene, request)
    };
    Trial { stock, have: NOTHING, ask, check: assert_copied }.run();
}

#[test]
fn an_image_is_cloned_from_a_volume() {
    let ask = |scene: &mut Scene| {
        let request = from_volume(scene.corner.volume("new", 8), scene.id());
        create(scene, request)
    };
    Trial { stock: |scene| scene.have_filled("old"), have: NOTHING, ask, check: assert_copied }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_snapshot_of_an_image_is_taken() {
    Trial { stock: |scene| scene.have("old"), have: NOTHING, ask: take_snapshot, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_deleted() {
    let stock = |scene: &mut Scene| scene.have("other");
    Trial { stock, have: |scene| scene.have("old"), ask: delete_last, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_with_a_snapshot_is_deleted() {
    Trial { stock: NOTHING, have: have_snapshot, ask: delete_first, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_deleted_strictly() {
    Trial { stock: NOTHING, have: |scene| scene.have("old"), ask: delete_first_strictly, check: NOTHING }
        .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_large_image_is_deleted_strictly() {
    Trial {
        stock: NOTHING,
        have: |scene| scene.have_sized("old", 5 << 10),
        ask: delete_first_strictly,
        check: NOTHING,
    }
    .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_with_a_snapshot_is_not_deleted_strictly() {
    Trial { stock: NOTHING, have: have_snapshot, ask: delete_first_strictly, check: assert_one_volume }.run();
}

#[test]
fn an_image_with_a_clone_is_deleted() {
    let check = |scene: &mut Scene| {
        scene.client().controller_get_volume(&get(&scene.volumes[1])).expect("the clone");
    };
    Trial { stock: NOTHING, have: have_copy, ask: delete_first, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_large_image_is_deleted() {
    Trial {
        stock: NOTHING,
        have: |scene| scene.have_sized("old", 5 << 10),
        ask: delete_first,
        check: NOTHING,
    }
    .run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_snapshot_of_an_image_is_deleted() {
    Trial {
        stock: |scene: &mut Scene| scene.have("old"),
        have: |scene| scene.have_snapshot("snap"),
        ask: delete_first_snapshot,
        check: assert_one_volume,
    }
    .run();
}

#[test]
fn the_last_snapshot_of_a_deleted_image_is_deleted() {
    let have = |scene: &mut Scene| {
        have_snapshot(scene);
        delete_first(scene).expect("delete");
    };
    Trial { stock: NOTHING, have, ask: delete_first_snapshot, check: NOTHING }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_expanded() {
    let have = |scene: &mut Scene| scene.have("old");
    Trial { stock: NOTHING, have, ask: expand_first, check: assert_grown }.run();
}

#[test]
fn an_image_is_published_to_its_node() {
    let check = |scene: &mut Scene| assert_eq!(published(scene), ["node-1"]);
    let have = |scene: &mut Scene| drop(unpublish_from_node(scene).expect("unpublish"));
    Trial { stock: |scene| scene.have("old"), have, ask: publish_to_node, check }.run();
}

#[test]
#[ignore = "long: tests/run --full"]
fn an_image_is_unpublished_from_its_node() {
    let have = |scene: &mut Scene| drop(publish_to_node(scene).expect("publish"));
    let check = |scene: &mut Scene| assert!(published(scene).is_empty());
    Trial { stock: |scene| scene.have("old"), have, ask: unpublish_from_node, check }.run();
}
