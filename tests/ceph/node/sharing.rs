//! One mapping and one real mount for all users of a volume, and volumes that are read-only.

use std::fs;
use std::io::ErrorKind;

use super::scene::{Scene, Volume, device, devices};
use crate::support::machine::{is_mounted, mount_at, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, refused};
use AccessModeOf as Mode;

#[test]
#[ignore = "long: tests/run --full"]
fn many_paths_share_one_mapping_and_one_mount() {
    let scene = Scene::new();
    let volume = scene.give("one", 32, mount_as("ext4", Mode::SINGLE_NODE_MULTI_WRITER, &[]), &[]);
    for (staging, target) in [("s1", "t1"), ("s2", "t2"), ("s2", "t3")] {
        scene.stage(&volume, staging).expect("stage");
        scene.publish(&volume, staging, target).expect("publish");
    }
    let kernel = device(&volume);
    let real = mounts_below(&scene.node.path("run"));
    assert_eq!((real.len(), real[0].source.as_str()), (1, text(&kernel)));
    fs::write(scene.path("t1/file"), "from the first").expect("write");
    scene.unpublish(&volume, "t1").expect("unpublish");
    scene.unstage(&volume, "s1").expect("unstage");
    assert_eq!(device(&volume), kernel, "others use it");
    assert_eq!(fs::read_to_string(scene.path("t3/file")).expect("read"), "from the first");
    refused(scene.unstage(&volume, "s2"), Code::FAILED_PRECONDITION, &["still published at"]);
    assert!(is_mounted(&scene.path("t2")) && devices(&volume) == [kernel]);
    scene.retire(&volume, &["t2", "t3"], &["s2"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn what_is_published_read_only_cannot_be_written() {
    let scene = Scene::new();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    fs::write(scene.path("target/file"), "content").expect("write");
    scene.publish_read_only(&volume, "stage", "reader").expect("publish");
    let denied = fs::write(scene.path("reader/file"), "other").expect_err("it is read-only");
    assert_eq!(denied.kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(fs::read_to_string(scene.path("reader/file")).expect("read"), "content");
    scene.retire(&volume, &["reader", "target"], &["stage"]);
    scene.assert_clean();
}

/// Fills the volume, takes it from the node and gives it back, only to be read.
fn published_to_readers(scene: &Scene, fs_type: &str, mib: i64, mode: Mode) -> Volume {
    let volume = scene.use_volume("one", mib, mount(fs_type), &[]);
    fs::write(scene.path("target/file"), "content").expect("write");
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    let controller = scene.controller.client();
    controller
        .controller_unpublish_volume(&unpublish_from(&volume.id, "node-1"))
        .expect("take it from the node");
    let capability = mount_as(fs_type, mode, &[]);
    scene.publish_to_node(Volume { capability, ..volume }, true)
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_for_readers_is_mapped_and_mounted_read_only() {
    let [many, one] = [Mode::MULTI_NODE_READER_ONLY, Mode::SINGLE_NODE_READER_ONLY];
    for (fs_type, mib, mode) in [("ext4", 32, many), ("ext4", 32, one), ("xfs", 320, many)] {
        let scene = Scene::without_tools();
        let volume = published_to_readers(&scene, fs_type, mib, mode);
        scene.stage(&volume, "stage").expect("stage");
        scene.publish(&volume, "stage", "target").expect("publish");
        assert_eq!(run("blockdev", &["--getro", text(&device(&volume))]), "1");
        assert_eq!(fs::read_to_string(scene.path("target/file")).expect("read"), "content");
        assert!(
            mount_at(&scene.path("target")).expect("mounted").options.split(',').any(|option| option == "ro")
        );
        let stats = scene.stats(&volume, "target").expect("stats");
        assert!(!stats.volume_condition.abnormal, "read-only as it was asked for: {stats:?}");
        scene.retire(&volume, &["target"], &["stage"]);
        scene.assert_clean();
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_block_volume_for_readers_refuses_writes() {
    let scene = Scene::without_tools();
    let volume = scene.make(volume_as("one", 8 << 20, block_as(Mode::MULTI_NODE_READER_ONLY)));
    let volume = scene.publish_to_node(volume, true);
    scene.stage(&volume, "stage").expect("stage");
    scene.publish(&volume, "stage", "target").expect("publish");
    assert_eq!(run("blockdev", &["--getro", text(&scene.path("target"))]), "1");
    assert!(fs::write(scene.path("target"), "x").is_err(), "it was written");
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

/// The holders of the volume's image.
fn holders(scene: &Scene, volume: &Volume) -> String {
    scene.cluster().holders("rbd", volume.id.rsplit(':').next().expect("the image's id"))
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_without_a_publish_context_takes_the_lock_itself() {
    let scene = Scene::new();
    let volume = scene.make(volume_as("one", 32 << 20, mount("ext4")));
    for at in ["first", "second"] {
        scene.stage(&volume, at).expect("stage");
        assert!(holders(&scene, &volume).contains("node-1"), "{}", holders(&scene, &volume));
    }
    let mut elsewhere = publish_to(&volume.id, "node-2");
    elsewhere.volume_capability = Some(volume.capability.clone()).into();
    let controller = scene.controller.client();
    refused(controller.controller_publish_volume(&elsewhere), Code::FAILED_PRECONDITION, &["node-1"]);
    scene.unstage(&volume, "first").expect("unstage");
    assert!(holders(&scene, &volume).contains("node-1"), "it is still staged");
    scene.unstage(&volume, "second").expect("unstage");
    assert_eq!(holders(&scene, &volume), "");
    controller.controller_publish_volume(&elsewhere).expect("nobody has it any more");
    controller.controller_unpublish_volume(&unpublish_from(&volume.id, "")).expect("take it back");
    scene.retire(&volume, &[], &[]);
    scene.assert_clean();
}
