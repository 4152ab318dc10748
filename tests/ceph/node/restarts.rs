//! The daemon is killed while volumes are in use.

use std::fs;

use super::scene::{Scene, device, devices};
use crate::support::corner::entry;
use crate::support::machine::{exists, is_mounted, run, text};
use crate::support::requests::*;
use crate::support::{Code, MIB, Setup, cluster, refused};

#[test]
#[ignore = "long: tests/run --full"]
fn volumes_outlive_a_killed_daemon() {
    for capability in [mount("ext4"), block()] {
        let mut scene = Scene::without_tools();
        let volume = scene.use_volume("one", 32, capability, &[]);
        let kernel = device(&volume);
        scene.node.kill9();
        assert!(is_mounted(&scene.path("target")) && devices(&volume) == [kernel.clone()]);
        scene.node.restart();
        scene.stage(&volume, "stage").expect("stage what is staged");
        scene.publish(&volume, "stage", "target").expect("publish what is published");
        assert_eq!(devices(&volume), [kernel]);
        assert_eq!(scene.expand(&volume, "target", 64 * MIB), 64 * MIB);
        scene.node.kill9();
        scene.node.restart();
        scene.retire(&volume, &["target"], &["stage"]);
        assert!(!exists(&scene.path("target")), "we made it, in another life");
        scene.assert_clean();
    }
}

/// The node's clusters are those of a file, which the operator edits while a volume is in use.
#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_of_a_removed_cluster_is_unstaged() {
    let mut scene = Scene::of_node(|node| {
        let file = node.scratch.path("clusters.toml");
        fs::write(&file, entry("ceph", cluster(), "cephlet-node")).expect("write the file");
        let own = ["CEPHLET_CEPH_CONF", "CEPHLET_CEPH_USER", "CEPHLET_CEPH_KEYRING"];
        own.into_iter().fold(node, Setup::unset).set("CEPHLET_CLUSTERS", file.display())
    });
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    fs::write(scene.path("clusters.toml"), entry("other", cluster(), "cephlet-node")).expect("edit the file");
    scene.node.restart();
    refused(scene.stage(&volume, "elsewhere"), Code::FAILED_PRECONDITION, &[&volume.id]);
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

/// The image was moved to the trash, and its node was not told.
#[test]
#[ignore = "long: tests/run --full"]
fn an_earlier_volume_of_the_same_name_is_unmapped() {
    let scene = Scene::without_tools();
    let earlier = scene.give("one", 8, block(), &[]);
    scene.stage(&earlier, "stage").expect("stage");
    cluster().rbd(&["trash", "mv", &earlier.spec()]);
    let volume = scene.give("one", 8, block(), &[]);
    assert_ne!(volume.id, earlier.id);
    scene.stage(&volume, "stage").expect("stage the new one");
    device(&volume);
    scene.unstage(&earlier, "stage").expect("it is not staged any more");
    device(&volume);
    scene.retire(&volume, &[], &["stage"]);
    let id = earlier.id.rsplit(':').next().expect("the image's id");
    cluster().rbd(&["trash", "rm", "--no-progress", &format!("rbd/{id}")]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_staged_volume_is_unstaged_after_a_restart() {
    let mut scene = Scene::without_tools();
    let volume = scene.give("one", 32, mount("ext4"), &[]);
    scene.stage(&volume, "stage").expect("stage");
    fs::write(scene.path("stage/file"), "content").expect("write");
    scene.node.kill9();
    // The staging path was unmounted meanwhile.
    run("umount", &[text(&scene.path("stage"))]);
    scene.node.restart();
    scene.stage(&volume, "stage").expect("it is mounted again");
    assert_eq!(fs::read_to_string(scene.path("stage/file")).expect("read"), "content");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}
