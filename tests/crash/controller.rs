//! What the controller makes, changes and takes away.

use std::fs;
use std::os::unix::fs::MetadataExt;

use cephlet::proto::csi_v1 as wire;

use super::scene::Scene;
use super::trial::{Outcome, Trial};
use crate::support::MIB;
use crate::support::client::Answer;
use crate::support::machine::checksum;
use crate::support::requests::*;
use crate::support::v0;

/// The steps that make an object.
const MAKING: &[&str] = &["make directory", "create file", "sync file", "sync directory", "rename"];
/// The steps that remove one.
const REMOVING: &[&str] = &["rename", "sync directory", "remove file", "remove directory"];

/// One volume of 8 MiB with content.
fn one_volume() -> Scene {
    let mut scene = Scene::new();
    scene.have("old", 8 * MIB, block());
    scene.fill();
    scene
}

fn with_snapshot() -> Scene {
    let mut scene = one_volume();
    scene.have_snapshot("snap");
    scene
}

/// Creates a volume, which is deleted in the end.
fn create(scene: &mut Scene, request: &wire::CreateVolumeRequest) -> Answer<Outcome> {
    let made = scene.client().create(request)?;
    assert_eq!(made.content_source, request.volume_content_source);
    if !scene.volumes.contains(&made.volume_id) {
        scene.volumes.push(made.volume_id.clone());
    }
    Ok(Outcome::new(&made, &(made.capacity_bytes, &made.volume_context, &made.accessible_topology)))
}

fn length(scene: &Scene, id: &str) -> u64 {
    fs::metadata(scene.image(id)).expect("the image").len()
}

fn allocated(scene: &Scene, id: &str) -> u64 {
    fs::metadata(scene.image(id)).expect("the image").blocks() * 512
}

/// The last volume is a copy of the first.
fn assert_copied(scene: &Scene) {
    let [old, .., new] = scene.volumes.as_slice() else { panic!("two volumes") };
    assert_eq!(checksum(&scene.image(old)), checksum(&scene.image(new)));
}

#[test]
fn a_volume_is_created() {
    Trial {
        scene: Scene::new,
        ask: |scene| create(scene, &volume_as("new", 8 * MIB, block())),
        check: |scene| {
            scene.assert_holds(1, 0);
            assert_eq!(length(scene, scene.id()), 8 << 20);
        },
        steps: MAKING,
    }
    .run();
}

#[test]
fn a_volume_is_created_with_all_its_blocks() {
    let ask = |scene: &mut Scene| {
        let parameters = map(&[("preallocate", "true")]);
        create(scene, &wire::CreateVolumeRequest { parameters, ..volume_as("new", 8 * MIB, block()) })
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 0);
        assert!(allocated(scene, scene.id()) >= 8 << 20);
    };
    Trial { scene: Scene::new, ask, check, steps: &["set length", "allocate", "rename"] }.run();
}

#[test]
fn a_volume_is_created_from_a_snapshot() {
    let ask = |scene: &mut Scene| {
        let request = from_snapshot(volume_as("new", 8 * MIB, block()), &scene.snapshots[0]);
        create(scene, &request)
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(2, 1);
        assert_copied(scene);
    };
    Trial { scene: with_snapshot, ask, check, steps: &["copy", "copy chunk", "rename"] }.run();
}

#[test]
fn a_volume_is_created_from_a_volume() {
    let ask = |scene: &mut Scene| {
        let request = from_volume(volume_as("new", 8 * MIB, block()), scene.id());
        create(scene, &request)
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(2, 0);
        assert_copied(scene);
    };
    Trial { scene: one_volume, ask, check, steps: &["copy", "copy chunk", "rename"] }.run();
}

#[test]
fn a_volume_is_deleted() {
    let scene = || {
        let mut scene = one_volume();
        scene.have("other", 8 * MIB, block());
        scene
    };
    let ask = |scene: &mut Scene| {
        scene.client().delete_volume(&delete(scene.id())).map(|reply| Outcome::plain(&reply))
    };
    Trial { scene, ask, check: |scene| scene.assert_holds(1, 0), steps: REMOVING }.run();
}

/// Through CSI 0.1, whose deletion is a different request. A local snapshot keeps nothing of the volume.
#[test]
fn a_volume_is_deleted_through_the_older_protocol() {
    let ask = |scene: &mut Scene| {
        v0::Client::of(&scene.daemon)
            .delete_volume(&v0::delete(scene.id()))
            .map(|reply| Outcome::plain(&reply))
    };
    Trial { scene: with_snapshot, ask, check: |scene| scene.assert_holds(0, 1), steps: REMOVING }.run();
}

#[test]
fn a_half_formatted_volume_is_deleted_and_a_later_one_of_its_name_keeps_its_data() {
    let scene = || {
        let mut scene = Scene::with_mkfs_for_once();
        scene.have("old", 32 * MIB, mount("ext4"));
        scene.stage(mount("ext4")).expect("stage");
        scene.write("stage/file");
        scene.unstage().expect("unstage");
        scene.have_snapshot("snap");
        scene.have("half", 32 * MIB, mount("ext4"));
        scene.volumes.reverse();
        scene.stage(mount("ext4")).expect_err("it cannot be formatted");
        scene
    };
    let ask = |scene: &mut Scene| {
        scene.client().delete_volume(&delete(scene.id())).map(|reply| Outcome::plain(&reply))
    };
    let check = |scene: &mut Scene| {
        let request = from_snapshot(volume_as("half", 32 * MIB, mount("ext4")), &scene.snapshots[0]);
        create(scene, &request).expect("create");
        scene.volumes.swap_remove(0);
        scene.stage(mount("ext4")).expect("stage what holds data");
        scene.assert_written("stage/file");
    };
    Trial { scene, ask, check, steps: REMOVING }.run();
}

#[test]
fn a_snapshot_is_taken() {
    let ask = |scene: &mut Scene| {
        let taken = scene
            .client()
            .create_snapshot(&snapshot("snap", scene.id()))?
            .snapshot
            .into_option()
            .expect("a snapshot");
        assert_eq!(taken.source_volume_id, scene.id());
        scene.snapshots = vec![taken.snapshot_id.clone()];
        Ok(Outcome::new(&taken, &(taken.size_bytes, taken.ready_to_use)))
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 1);
        let copy = from_snapshot(volume_as("copy", 8 * MIB, block()), &scene.snapshots[0]);
        create(scene, &copy).expect("it can be used");
        assert_copied(scene);
    };
    Trial { scene: one_volume, ask, check, steps: MAKING }.run();
}

#[test]
fn a_snapshot_of_a_volume_in_use_is_taken() {
    let scene = || {
        let mut scene = Scene::with_reflink();
        scene.have("old", 32 * MIB, mount("ext4"));
        scene.stage(mount("ext4")).expect("stage");
        scene.write("stage/file");
        scene
    };
    let ask = |scene: &mut Scene| {
        let taken = scene
            .client()
            .create_snapshot(&snapshot("snap", scene.id()))?
            .snapshot
            .into_option()
            .expect("a snapshot");
        scene.snapshots = vec![taken.snapshot_id.clone()];
        Ok(Outcome::new(&taken, &(taken.size_bytes, taken.ready_to_use)))
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 1);
        scene.write("stage/goes on");
        scene.unstage().expect("unstage");
        let copy = from_snapshot(volume_as("copy", 32 * MIB, mount("ext4")), &scene.snapshots[0]);
        create(scene, &copy).expect("it can be used");
        scene.volumes.reverse();
        scene.stage(mount("ext4")).expect("stage the copy");
        scene.assert_written("stage/file");
    };
    Trial {
        scene,
        ask,
        check,
        steps: &["write freeze marker", "process started", "a process has ended", "remove file"],
    }
    .run();
}

#[test]
fn a_snapshot_is_deleted() {
    let ask = |scene: &mut Scene| {
        scene
            .client()
            .delete_snapshot(&delete_snapshot(&scene.snapshots[0]))
            .map(|reply| Outcome::plain(&reply))
    };
    Trial { scene: with_snapshot, ask, check: |scene| scene.assert_holds(1, 0), steps: REMOVING }.run();
}

#[test]
fn a_volume_is_expanded() {
    let ask = |scene: &mut Scene| {
        scene
            .client()
            .controller_expand_volume(&expand(scene.id(), 16 * MIB))
            .map(|reply| Outcome::plain(&reply))
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 0);
        assert_eq!(length(scene, scene.id()), 16 << 20);
        let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
        assert_eq!(got.volume.capacity_bytes, 16 * MIB);
        let content = fs::read(scene.image(scene.id())).expect("read the image");
        assert!(
            content.starts_with(b"begin") && content[5 << 20..][..70_000] == [7; 70_000],
            "its content was changed"
        );
    };
    Trial {
        scene: one_volume,
        ask,
        check,
        steps: &["set length", "create file", "sync file", "rename", "sync directory"],
    }
    .run();
}

/// The nodes that the first volume is published to.
fn published(scene: &Scene) -> Vec<String> {
    let got = scene.client().controller_get_volume(&get(scene.id())).expect("get");
    got.status.published_node_ids.clone()
}

fn publish_to_node(scene: &Scene) -> Answer<Outcome> {
    let request = wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(scene.id(), "node-1") };
    scene.client().controller_publish_volume(&request).map(|reply| Outcome::plain(&reply))
}

#[test]
fn a_volume_is_published_to_its_node() {
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 0);
        assert_eq!(published(scene), ["node-1"]);
    };
    let steps = &["create file", "sync file", "rename", "sync directory"];
    Trial { scene: one_volume, ask: |scene| publish_to_node(scene), check, steps }.run();
}

#[test]
fn a_volume_is_unpublished_from_its_node() {
    let scene = || {
        let scene = one_volume();
        publish_to_node(&scene).expect("publish");
        scene
    };
    let ask = |scene: &mut Scene| {
        let request = unpublish_from(scene.id(), "node-1");
        scene.client().controller_unpublish_volume(&request).map(|reply| Outcome::plain(&reply))
    };
    let check = |scene: &mut Scene| {
        scene.assert_holds(1, 0);
        assert!(published(scene).is_empty());
    };
    Trial { scene, ask, check, steps: &["remove file", "sync directory"] }.run();
}
