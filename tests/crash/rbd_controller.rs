//! What the controller does to RBD volumes.

use std::collections::BTreeMap;

use cephlet::proto::csi_v1 as wire;

use super::rbd::{Scene, Trial};
use super::trial::Outcome;
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::v0;
use crate::support::{Code, MIB};

const NOTHING: fn(&mut Scene) = |_| ();

/// Creates a volume, which is deleted in the end.
fn create(scene: &mut Scene, request: wire::CreateVolumeRequest) -> Answer<Outcome> {
    let made = scene.client().create(&request)?;
    assert_eq!(made.content_source, request.volume_content_source);
    if !scene.volumes.contains(&made.volume_id) {
        scene.volumes.push(made.volume_id.clone());
    }
    Ok(Outcome::new(&made, &(made.capacity_bytes, &made.volume_context)))
}

fn take_snapshot(scene: &mut Scene) -> Answer<Outcome> {
    let taken = scene
        .client()
        .create_snapshot(&snapshot("snap", scene.id()))?
        .snapshot
        .into_option()
        .expect("a snapshot");
    assert_eq!(taken.source_volume_id, scene.id());
    scene.snapshots = vec![taken.snapshot_id.clone()];
    Ok(Outcome::new(&taken, &(taken.size_bytes, taken.ready_to_use)))
}

fn delete_last(scene: &mut Scene) -> Answer<Outcome> {
    scene
        .client()
        .delete_volume(&delete(scene.volumes.last().expect("a volume")))
        .map(|reply| Outcome::plain(&reply))
}

fn delete_first(scene: &mut Scene) -> Answer<Outcome> {
    scene.client().delete_volume(&delete(scene.id())).map(|reply| Outcome::plain(&reply))
}

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

fn delete_first_snapshot(scene: &mut Scene) -> Answer<Outcome> {
    scene.client().delete_snapshot(&delete_snapshot(&scene.snapshots[0])).map(|reply| Outcome::plain(&reply))
}

/// The last volume is a copy of the first.
fn assert_copied(scene: &mut Scene) {
    let [old, .., new] = scene.volumes.as_slice() else { panic!("two volumes: {:?}", scene.volumes) };
    let [old, new] = [old, new].map(|id| scene.corner.checksum_of_first(8 * MIB, id));
    assert_eq!(old, new);
}

fn have_snapshot(scene: &mut Scene) {
    scene.have("old");
    scene.have_snapshot("snap");
}

fn have_copy(scene: &mut Scene) {
    scene.have("old");
    let request = from_volume(scene.corner.volume("copy", 8), scene.id());
    create(scene, request).expect("copy");
}

fn assert_one_volume(scene: &mut Scene) {
    scene.client().controller_get_volume(&get(scene.id())).expect("get");
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
        stock: |scene| scene.have("old"),
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
    let ask = |scene: &mut Scene| {
        scene
            .client()
            .controller_expand_volume(&expand(scene.id(), 16 * MIB))
            .map(|reply| Outcome::plain(&reply))
    };
    let check = |scene: &mut Scene| {
        let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
        assert_eq!(got.volume.capacity_bytes, 16 * MIB);
    };
    Trial { stock: NOTHING, have: |scene| scene.have("old"), ask, check }.run();
}

/// The nodes that the first volume is published to.
fn published(scene: &Scene) -> Vec<String> {
    let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
    got.status.published_node_ids.clone()
}

fn publish_to_node(scene: &mut Scene) -> Answer<Outcome> {
    let request = wire::ControllerPublishVolumeRequest {
        volume_capability: protobuf::MessageField::some(block()),
        ..publish_to(scene.id(), "node-1")
    };
    // The context names the image, which differs each time.
    let reply = scene.client().controller_publish_volume(&request)?;
    let context: BTreeMap<_, _> = reply.publish_context.iter().collect();
    Ok(Outcome::new(&context, &context.len()))
}

fn unpublish_from_node(scene: &mut Scene) -> Answer<Outcome> {
    let request = unpublish_from(scene.id(), "node-1");
    scene.client().controller_unpublish_volume(&request).map(|reply| Outcome::plain(&reply))
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
