//! Volumes that are replicated, on a node with the kernel's driver.

use std::fs;

use super::lost_nodes::write;
use super::scene::{Scene, Volume};
use crate::support::addons::Client;
use crate::support::requests::*;
use crate::support::{Code, await_that, cluster, refused};

/// Mirrors the volume's image, though no rbd-mirror copies it.
#[track_caller]
fn mirror(volume: &Volume) {
    cluster().attempt("rbd", &["mirror", "pool", "enable", "rbd", "image"]);
    cluster().rbd(&["mirror", "image", "enable", &volume.spec(), "snapshot"]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_reads_a_copy_and_writes_to_it_once_it_is_promoted() {
    let scene = Scene::alone();
    let replicas = Client::of(&scene.controller);
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    mirror(&volume);
    write(&scene, "target/file", "before").expect("write to what is mirrored");
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    let take_back =
        || scene.controller.client().controller_unpublish_volume(&unpublish_from(&volume.id, "node-1"));
    take_back().expect("take it from the node");
    replicas.demote(&volume.id, false).expect("demote");

    let publish = publish_to(&volume.id, "node-1");
    refused(
        scene.controller.client().controller_publish_volume(&publish),
        Code::FAILED_PRECONDITION,
        &["promote it first"],
    );
    let reader = scene.publish_to_node(volume.clone(), true);
    scene.stage(&reader, "stage").expect("stage the copy");
    scene.publish_read_only(&reader, "stage", "target").expect("publish the copy");
    assert_eq!(fs::read_to_string(scene.path("target/file")).expect("read"), "before");
    write(&scene, "target/late", "late").expect_err("UNSAFE: a copy was written to");
    scene.unpublish(&reader, "target").expect("unpublish");
    scene.unstage(&reader, "stage").expect("unstage");
    take_back().expect("take it from the node");

    replicas.promote(&volume.id, true, &[]).expect("promote");
    let volume = scene.publish_to_node(volume, false);
    scene.stage(&volume, "stage").expect("stage");
    scene.publish(&volume, "stage", "target").expect("publish");
    assert_eq!(fs::read_to_string(scene.path("target/file")).expect("read"), "before");
    write(&scene, "target/file", "after").expect("write again");
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

/// The image may be promoted elsewhere at once.
#[test]
#[ignore = "long: tests/run --full"]
fn a_node_writes_no_more_to_what_is_demoted_by_force() {
    let scene = Scene::alone();
    let replicas = Client::of(&scene.controller);
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    let other = scene.give("two", 32, mount("ext4"), &[]);
    scene.stage(&other, "stage2").expect("stage the other");
    mirror(&volume);
    write(&scene, "target/file", "before").expect("write");
    refused(replicas.demote(&volume.id, false), Code::FAILED_PRECONDITION, &["\"node-1\""]);
    write(&scene, "target/file", "still").expect("write");
    await_that("it is demoted", || {
        replicas.demote(&volume.id, true).map_err(|refused| {
            assert_eq!(refused.code, Code::UNAVAILABLE, "{}", refused.message);
            refused.message
        })
    });
    write(&scene, "target/late", "late").expect_err("UNSAFE: what was demoted is written to");
    write(&scene, "stage2/file", "after").expect("UNSAFE: another volume of the node is disturbed");

    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    replicas.promote(&volume.id, true, &[]).expect("promote");
    let volume = scene.publish_to_node(volume, false);
    scene.stage(&volume, "stage").expect("stage anew");
    assert_eq!(fs::read_to_string(scene.path("stage/file")).expect("read"), "still");
    assert!(!scene.path("stage/late").exists(), "UNSAFE: what was refused was written");
    scene.retire(&volume, &[], &["stage"]);
    scene.retire(&other, &[], &["stage2"]);
    scene.assert_clean();
}

/// Replaces the image as a takeover by another cluster does: the volume's ID still names the first image.
#[track_caller]
fn replace_image(volume: &Volume) {
    let (spec, old) = (volume.spec(), format!("{}-old", volume.spec()));
    let record = cluster().rbd(&["image-meta", "get", &spec, "cephlet.request"]);
    let mut record: serde_json::Value = serde_json::from_str(&record).expect("a record");
    record["first_id"] = volume.id.rsplit(':').next().into();
    cluster().rbd(&["mv", &spec, &old]);
    cluster().rbd(&["deep", "cp", &old, &spec]);
    cluster().rbd(&["image-meta", "set", &spec, "cephlet.request", &record.to_string()]);
    cluster().rbd(&["rm", &old]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_that_another_cluster_has_taken_over_is_used_and_leaves_the_node() {
    let mut scene = Scene::alone();
    for (name, capability) in [("one", mount("ext4")), ("two", block())] {
        let volume = scene.use_volume(name, 32, capability, &[]);
        scene.unpublish(&volume, "target").expect("unpublish");
        scene.unstage(&volume, "stage").expect("unstage");
        let take_back = unpublish_from(&volume.id, "node-1");
        scene.controller.client().controller_unpublish_volume(&take_back).expect("take it from the node");
        replace_image(&volume);
        // The controller of the other cluster has never seen the first image.
        scene.controller.restart();
        for round in 0..2 {
            let volume = scene.publish_to_node(volume.clone(), false);
            scene.stage(&volume, "stage").expect("stage");
            scene.publish(&volume, "stage", "target").expect("publish");
            let stats = scene.stats(&volume, "target").expect("stats");
            assert!(!stats.volume_condition.abnormal, "{stats:?}");
            scene.expand(&volume, "target", stats.usage[0].total + (32 << 20));
            scene.node.restart();
            if round == 0 {
                scene.unpublish(&volume, "target").expect("unpublish");
                scene.unstage(&volume, "stage").expect("unstage");
                scene
                    .controller
                    .client()
                    .controller_unpublish_volume(&take_back)
                    .expect("take it from the node");
            } else {
                scene.retire(&volume, &["target"], &["stage"]);
            }
        }
    }
    scene.assert_clean();
}
