//! File systems with errors: the node reports the errors that the kernel knows of, and checks the file system
//! when it is staged next.

use std::fs;
use std::path::Path;

use crate::support::cli::{done, json};
use crate::support::client::Answer;
use crate::support::machine::{loops_below, run, text};
use crate::support::requests::*;
use crate::support::scratch::fill_up;
use crate::support::{Code, Daemon, MIB, Setup, TestVolume, await_that, refused};

use AccessModeOf as Mode;

/// The kernel's name of the volume's device.
fn device(volume: &TestVolume<'_>) -> String {
    let (device, _) = loops_below(&volume.image()).remove(0);
    device.file_name().expect("a name").display().to_string()
}

/// Makes the kernel find an error in an ext4.
fn break_ext4(volume: &TestVolume<'_>) {
    fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", device(volume)), "1").expect("trigger an error");
}

/// A mounted volume of several writers, staged at `stage` and published at `target`.
fn in_use<'a>(daemon: &'a Daemon, fs_type: &str, mib: i64, flags: &[&str]) -> TestVolume<'a> {
    let capability = mount_as(fs_type, Mode::SINGLE_NODE_MULTI_WRITER, flags);
    let volume = TestVolume::create(daemon, "one", mib, capability);
    volume.stage("stage").expect("stage");
    volume.publish("stage", "target").expect("publish");
    fs::write(volume.path("target/file"), "content").expect("write");
    volume
}

/// The trouble that the node reports for the volume; empty if it is well.
fn said(volume: &TestVolume<'_>, at: &str) -> String {
    let condition = volume.stats(at).expect("stats").volume_condition;
    if condition.abnormal { condition.message.clone() } else { String::new() }
}

#[track_caller]
fn assert_refused(answer: Answer<()>, volume: &TestVolume<'_>, what: &str) {
    let parts = [volume.id.as_str(), what, "unpublish it everywhere on this node", "checked"];
    refused(answer, Code::FAILED_PRECONDITION, &parts);
}

/// No user can write to the volume: every report says so, and publications for writing are refused.
#[track_caller]
fn assert_broken(volume: &TestVolume<'_>, what: &str) {
    for at in ["target", "stage"] {
        let said = said(volume, at);
        assert!(said.contains(what) && said.contains("unpublish it everywhere"), "{at}: {said}");
    }
    assert_refused(volume.publish("stage", "target"), volume, what);
    assert_refused(volume.publish("stage", "second"), volume, what);
    assert_refused(volume.stage("second stage"), volume, what);
    volume.publish_read_only("stage", "reader").expect("readers pass");
}

/// After an unstage and another stage, the volume is sound.
#[track_caller]
fn assert_heals(volume: &TestVolume<'_>, targets: &[&str]) {
    targets.iter().for_each(|target| volume.unpublish(target).expect("unpublish"));
    volume.unstage("stage").expect("unstage");
    volume.stage("stage").expect("stage it again");
    assert_eq!(said(volume, "stage"), "");
    assert_eq!(fs::read_to_string(volume.path("stage/file")).expect("read"), "content");
    volume.publish("stage", "target").expect("publish it again");
    fs::write(volume.path("target/more"), "content").expect("write again");
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn an_ext4_that_the_kernel_made_read_only_is_refused_to_writers() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "ext4", 32, &["errors=remount-ro"]);
    run("sync", &["-f", text(&volume.path("target"))]);
    break_ext4(&volume);
    assert!(fs::write(volume.path("target/more"), "x").is_err(), "it takes no writes");
    assert_broken(&volume, "made it read-only after an error");
    let got = volume.client.controller_get_volume(&get(&volume.id)).expect("get");
    assert!(got.status.volume_condition.message.contains("made it read-only"), "{got:?}");
    let listed = volume.client.list_volumes(&page(0, "")).expect("list").entries.remove(0);
    assert!(listed.status.volume_condition.message.contains("made it read-only"), "{listed:?}");
    assert_heals(&volume, &["target", "reader"]);
    daemon.assert_node_is_clean();
}

#[test]
fn an_ext4_that_goes_on_after_errors_is_abnormal_until_it_is_checked() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "ext4", 32, &["errors=continue"]);
    break_ext4(&volume);
    fs::write(volume.path("target/more"), "content").expect("it takes writes");
    // The kernel counts the error in a worker of its own (fs/ext4/super.c, ext4_handle_error).
    let told = await_that("the error is counted", || match said(&volume, "target") {
        told if told.is_empty() => Err(told),
        told => Ok(told),
    });
    assert!(told.contains("found errors") && told.contains("checked"), "{told}");
    volume.publish("stage", "second").expect("it is not refused");
    assert_heals(&volume, &["target", "second"]);
}

/// The kernel keeps its count, whatever the state of the file system says.
#[test]
fn errors_that_were_recorded_before_are_checked_and_forgotten() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "ext4", 32, &[]);
    volume.unpublish("target").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    run("debugfs", &["-w", "-R", "set_super_value error_count 3", text(&volume.image())]);
    volume.stage("stage").expect("stage");
    assert_heals(&volume, &[]);
}

#[test]
fn a_shut_down_ext4_is_refused_to_writers() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "ext4", 32, &[]);
    run("sync", &["-f", text(&volume.path("target"))]);
    run("xfs_io", &["-x", "-c", "shutdown", text(&volume.path("target"))]);
    assert_broken(&volume, "shut its file system down");
    assert_heals(&volume, &["target", "reader"]);
}

#[test]
fn a_shut_down_xfs_is_refused_to_writers() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "xfs", 320, &[]);
    run("sync", &["-f", text(&volume.path("target"))]);
    run("xfs_io", &["-x", "-c", "shutdown", text(&volume.path("target"))]);
    assert_broken(&volume, "shut its file system down");
    assert_heals(&volume, &["target", "reader"]);
}

/// Writes until the kernel cannot commit what was written.
fn write_too_much(at: &Path) {
    let failed = (0..64).any(|number| {
        let written = fs::write(at.join(format!("large-{number}")), vec![7; 1 << 20]);
        written.is_err() || rustix::fs::syncfs(fs::File::open(at).expect("open it")).is_err()
    });
    assert!(failed, "there is room for everything");
}

#[test]
fn a_btrfs_whose_storage_ran_full_is_refused_to_writers() {
    let setup = Setup::new();
    let disk = setup.scratch.small_disk("disk", "tmpfs", 256);
    let daemon = setup.set("CEPHLET_LOCAL_DIR", disk.join("local").display()).start();
    let capability = mount_as("btrfs", Mode::SINGLE_NODE_MULTI_WRITER, &[]);
    let volume = TestVolume::make(&daemon, volume_as("one", 128 * MIB, capability));
    volume.stage("stage").expect("stage");
    volume.publish("stage", "target").expect("publish");
    fs::write(volume.path("target/file"), "content").expect("write");
    run("sync", &["-f", text(&volume.path("target"))]);
    let ballast = fill_up(&disk);
    write_too_much(&volume.path("target"));
    assert_broken(&volume, "made it read-only after an error");
    fs::remove_file(ballast).expect("make room");
    assert_heals(&volume, &["target", "reader"]);
}

#[test]
fn the_operator_sees_that_a_volume_is_broken() {
    let daemon = Daemon::start();
    let id = done(&daemon, "volume create web --size 32M");
    let target = daemon.text("target");
    done(&daemon, &format!("volume publish {id} {target} --flags errors=remount-ro"));
    assert_eq!(json(&daemon, &format!("volume show {id}"))["condition"]["abnormal"], false);
    let (device, _) = loops_below(&daemon.local_dir()).remove(0);
    let name = device.file_name().expect("a name").display().to_string();
    fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "1").expect("trigger an error");
    let condition = &json(&daemon, &format!("volume show {id}"))["condition"];
    assert_eq!(condition["abnormal"], true, "{condition}");
    let message = condition["message"].as_str().expect("a message");
    assert!(message.contains("made it read-only") && message.contains("unpublish it"), "{message}");
    done(&daemon, &format!("volume unpublish {id} {target}"));
    assert_eq!(json(&daemon, &format!("volume show {id}"))["condition"]["abnormal"], false);
    done(&daemon, &format!("volume publish {id} {target}"));
    assert_eq!(json(&daemon, &format!("volume show {id}"))["condition"]["abnormal"], false);
}

/// The kernel refuses this growth with the same error as for a missing capability.
#[test]
fn an_ext4_with_errors_grows_when_it_was_checked() {
    let daemon = Daemon::start();
    let volume = in_use(&daemon, "ext4", 32, &["errors=continue"]);
    break_ext4(&volume);
    volume.expand(64 * MIB).expect("expand");
    let refusal = volume.node_expand("target", 64 * MIB).expect_err("it has errors");
    assert_eq!(refusal.code, Code::FAILED_PRECONDITION, "{refusal:?}");
    assert!(refusal.message.contains("found errors") && refusal.message.contains("checked"), "{refusal:?}");
    assert!(!refusal.message.contains("CAP_SYS_RESOURCE"), "{refusal:?}");
    assert_heals(&volume, &["target"]);
}
