//! What the daemon makes for targets and staging paths, and what becomes of it; targets with data of a user.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::machine::{exists, loops_below, mounts_below, run, text};
use crate::support::requests::*;
use crate::support::{Code, Daemon, Setup, TestVolume, refused, v0};

use AccessModeOf as Mode;

#[test]
fn directories_above_a_target_are_open_to_all_and_go_with_the_last_target() {
    let daemon = Setup::new().under(&["sh", "-c", "umask 0077; exec \"$@\"", "sh"]).start();
    let (one, two) = (
        TestVolume::create(&daemon, "one", 32, mount("ext4")),
        TestVolume::create(&daemon, "two", 8, block()),
    );
    let kept = daemon.scratch().dir("kept");
    one.stage("srv/staging/one").expect("stage");
    two.stage("stage").expect("stage");
    one.publish("srv/staging/one", "srv/data/web").expect("publish");
    two.publish("stage", "srv/data/disks/one").expect("publish a device");
    one.publish("srv/staging/one", "kept/a/b").expect("publish");
    let mode = |name: &str| fs::metadata(daemon.path(name)).expect(name).permissions().mode() & 0o7777;
    for name in ["srv", "srv/data", "srv/data/disks", "srv/staging", "kept/a"] {
        assert_eq!(mode(name), 0o755, "{name}");
    }
    one.unpublish("srv/data/web").expect("unpublish");
    assert!(exists(&daemon.path("srv/data/disks/one")) && !exists(&daemon.path("srv/data/web")));
    one.unpublish("kept/a/b").expect("unpublish");
    assert!(kept.exists() && !exists(&kept.join("a")), "only what was made goes");
    two.retire(&["srv/data/disks/one"], &["stage"]);
    assert!(!exists(&daemon.path("srv/data")), "it was made for the target of another volume");
    assert!(exists(&daemon.path("srv/staging/one")));
    one.retire(&[], &["srv/staging/one"]);
    assert!(!exists(&daemon.path("srv")) && !exists(&daemon.path("stage")));
    daemon.assert_node_is_clean();
}

#[test]
fn directories_above_a_target_stay_with_what_is_in_them() {
    let mut daemon = Daemon::start();
    let id = {
        let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
        volume.stage("stage").expect("stage");
        volume.publish("stage", "srv/data/web").expect("publish");
        volume.id
    };
    daemon.kill9();
    daemon.restart();
    fs::write(daemon.path("srv/file"), "theirs").expect("somebody uses it");
    daemon.client().node_unpublish_volume(&unpublish(&id, &daemon.text("srv/data/web"))).expect("unpublish");
    assert_eq!(fs::read_to_string(daemon.path("srv/file")).expect("it stays"), "theirs");
    assert!(!exists(&daemon.path("srv/data")), "it was empty");
    daemon.client().node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}

/// Unmounts a path by hand and leaves a user's file there.
fn leave_data(volume: &TestVolume<'_>, target: &str) {
    run("umount", &[text(&volume.path(target))]);
    match volume.path(target).is_dir() {
        true => fs::write(volume.path(target).join("theirs"), "x"),
        false => fs::write(volume.path(target), "x"),
    }
    .expect("write below the mount");
}

/// Removes the file that [`leave_data`] left.
fn take_data(volume: &TestVolume<'_>, target: &str) {
    let theirs = volume.path(target).join("theirs");
    fs::remove_file(if theirs.exists() { theirs } else { volume.path(target) }).expect("move it away");
}

#[track_caller]
fn assert_detached(daemon: &Daemon) {
    let (loops, mounts) = (loops_below(&daemon.local_dir()), mounts_below(&daemon.path("")));
    assert!(loops.is_empty() && mounts.is_empty(), "{loops:?} {mounts:?}");
}

#[test]
fn data_in_a_target_that_was_unmounted_keeps_the_target_and_not_the_device() {
    for capability in [mount("ext4"), block()] {
        let mut daemon = Daemon::start();
        let volume = TestVolume::create(&daemon, "one", 32, capability);
        volume.stage("stage").expect("stage");
        volume.publish("stage", "srv/target").expect("publish");
        leave_data(&volume, "srv/target");
        let still_refused = |volume: &TestVolume<'_>| {
            refused(volume.unpublish("srv/target"), Code::FAILED_PRECONDITION, &["srv/target"]);
        };
        still_refused(&volume);
        volume.stats("stage").expect("it is staged still");
        volume.unstage("stage").expect("unstage");
        assert_detached(&daemon);
        still_refused(&volume);
        let (id, again) = (volume.id.clone(), volume.capability.clone());
        drop(volume);
        daemon.kill9();
        daemon.restart();
        let client = daemon.client();
        let request = unpublish(&id, &daemon.text("srv/target"));
        refused(client.node_unpublish_volume(&request), Code::FAILED_PRECONDITION, &["srv/target"]);
        // The file that was left does not block the volume.
        let (staging, other) = (daemon.text("stage"), daemon.text("other"));
        client.node_stage_volume(&stage(&id, &staging, again.clone())).expect("stage again");
        client.node_publish_volume(&publish(&id, &staging, &other, again)).expect("publish elsewhere");
        client.node_unpublish_volume(&unpublish(&id, &other)).expect("unpublish");
        client.node_unstage_volume(&unstage(&id, &staging)).expect("unstage");
        assert_detached(&daemon);
        refused(client.node_unpublish_volume(&request), Code::FAILED_PRECONDITION, &["srv/target"]);
        let theirs = daemon.path("srv/target/theirs");
        fs::remove_file(if theirs.exists() { theirs } else { daemon.path("srv/target") }).expect("move it");
        client.node_unpublish_volume(&request).expect("now it is empty");
        assert!(!exists(&daemon.path("srv")));
        client.delete_volume(&delete(&id)).expect("delete");
        daemon.assert_node_is_clean();
    }
}

#[test]
fn a_target_that_was_left_behind_can_be_published_at_again() {
    let daemon = Daemon::start();
    let volume =
        TestVolume::create(&daemon, "one", 32, mount_as("ext4", Mode::SINGLE_NODE_SINGLE_WRITER, &[]));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "target").expect("publish");
    leave_data(&volume, "target");
    refused(volume.unpublish("target"), Code::FAILED_PRECONDITION, &[&daemon.text("target")]);
    volume.publish("stage", "target").expect("publish over it");
    assert!(!exists(&volume.path("target/theirs")));
    refused(volume.unstage("stage"), Code::FAILED_PRECONDITION, &[&daemon.text("target")]);
    refused(volume.unpublish("target"), Code::FAILED_PRECONDITION, &[&daemon.text("target")]);
    take_data(&volume, "target");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn unstage_is_enough_where_a_target_was_unmounted_by_hand() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    run("umount", &[text(&volume.path("target"))]);
    volume.unstage("stage").expect("unstage");
    assert_detached(&daemon);
    assert!(!exists(&volume.path("target")));
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

/// CSI 0.1 and the command line.
#[test]
fn data_in_a_target_keeps_no_device_without_a_stage_or_by_hand() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let client = v0::Client::of(&daemon);
    let target = daemon.text("made");
    client.node_publish_volume(&v0::publish(&volume.id, &target, v0::mount("ext4"))).expect("publish");
    leave_data(&volume, "made");
    for _ in 0..2 {
        let unpublished = client.node_unpublish_volume(&v0::unpublish(&volume.id, &target));
        refused(unpublished, Code::FAILED_PRECONDITION, &[&target]);
        assert_detached(&daemon);
    }
    take_data(&volume, "made");
    client.node_unpublish_volume(&v0::unpublish(&volume.id, &target)).expect("unpublish");
    let typed = |verb: &str| daemon.type_in(&format!("cephlet volume {verb} {} {target}", volume.id), &[]);
    typed("publish").expect("publish");
    leave_data(&volume, "made");
    let refusal = typed("unpublish").expect_err("it holds data");
    assert!(refusal.contains(&target), "{refusal}");
    assert_detached(&daemon);
    take_data(&volume, "made");
    typed("unpublish").expect("unpublish");
    daemon.assert_node_is_clean();
}
