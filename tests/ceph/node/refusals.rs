//! Images that cannot be mapped, and reports on a mapping that went bad.

use std::fs;
use std::path::Path;

use super::scene::{Scene, devices};
use crate::support::machine::{run, text};
use crate::support::requests::*;
use crate::support::{Code, refused};

#[test]
#[ignore = "long: tests/run --full"]
fn features_that_the_kernel_lacks_are_named_with_both_ways_out() {
    let scene = Scene::without_tools();
    let mut volume =
        scene.give("one", 8, mount("ext4"), &[("imageFeatures", "layering,exclusive-lock,journaling")]);
    let ways = ["journaling", "mounter=rbd-nbd", "rbd feature disable"];
    refused(scene.stage(&volume, "stage"), Code::FAILED_PRECONDITION, &ways);
    // The feature was enabled after the controller looked: the kernel itself refuses, half way.
    volume.told.insert("imageFeatures".into(), "layering,exclusive-lock".into());
    refused(
        scene.stage(&volume, "stage"),
        Code::FAILED_PRECONDITION,
        &["rbd feature disable", "mounter=rbd-nbd"],
    );
    assert!(devices(&volume).is_empty());
    scene.cluster().rbd(&["feature", "disable", &volume.spec(), "journaling"]);
    scene.stage(&volume, "stage").expect("the second way out");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}

/// The daemon sees a /dev in which devices do not appear, as in a container that has its own.
const OWN_DEV: &str = "mount -t tmpfs dev /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9 && exec \"$@\"";

#[test]
#[ignore = "long: tests/run --full"]
fn a_map_that_fails_half_way_leaves_no_device() {
    let scene =
        Scene::of_node(|node| node.under(&["/usr/bin/unshare", "--mount", "/bin/sh", "-c", OWN_DEV, "sh"]));
    let volume = scene.give("one", 8, mount("ext4"), &[]);
    let answer = scene.stage(&volume, "stage").expect_err("there is no node of the device");
    assert!(answer.message.contains("/dev"), "{answer:?}");
    assert!(devices(&volume).is_empty());
    scene.retire(&volume, &[], &["stage"]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn what_is_not_the_volume_is_not_mapped() {
    let scene = Scene::without_tools();
    let mut volume = scene.give("one", 8, mount("ext4"), &[]);
    let told = volume.told.insert("imageId".into(), "1234567890ab".into()).expect("the node was told the id");
    refused(scene.stage(&volume, "stage"), Code::NOT_FOUND, &["1234567890ab"]);
    assert!(devices(&volume).is_empty());
    volume.told.insert("imageId".into(), told);
    let mut wrong = scene.stage_request(&volume, "stage");
    wrong.secrets = map(&[("userID", "cephlet-node"), ("userKey", &scene.cluster().key("reader"))]);
    refused(scene.node.client().node_stage_volume(&wrong), Code::UNAUTHENTICATED, &["client.cephlet-node"]);
    assert!(devices(&volume).is_empty());
    scene.stage(&volume, "stage").expect("with the right key");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_blocklisted_node_reports_it_and_can_come_back() {
    let scene = Scene::alone();
    if !Path::new("/sys/kernel/debug/ceph").exists() {
        run("mount", &["-t", "debugfs", "debugfs", "/sys/kernel/debug"]);
    }
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    fs::write(scene.path("target/file"), "content").expect("write");
    run("sync", &["-f", text(&scene.path("target"))]);
    assert!(!scene.stats(&volume, "target").expect("stats").volume_condition.abnormal);
    let status = scene.cluster().rbd(&["status", &volume.spec(), "--format", "json"]);
    let (_, rest) = status.split_once(r#""address":""#).expect("a watcher");
    let address = rest.split('"').next().expect("its address");
    scene.cluster().ceph(&["osd", "blocklist", "add", address]);
    // Any I/O tells the kernel's client.
    let write = || drop(fs::File::create(scene.path("target/other")).and_then(|file| file.sync_all()));
    let said = scene.await_trouble(&volume, "target", write);
    assert!(said.contains("blocklist") || said.contains("read-only"), "{said}");
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    assert!(devices(&volume).is_empty());
    scene.stage(&volume, "stage").expect("stage it again");
    assert_eq!(fs::read_to_string(scene.path("stage/file")).expect("read"), "content");
    scene.retire(&volume, &[], &["stage"]);
    scene.cluster().ceph(&["osd", "blocklist", "clear"]);
    scene.assert_clean();
}
