//! Paths that mislead: those of other volumes, spelt in two ways, through links, one in the other.

mod support;

use std::os::unix::fs::symlink;

use support::daemon::exists;
use support::machine::{is_mounted, mounts_below, run, text};
use support::requests::*;
use support::{Code, Daemon, Setup, TestVolume, refused};

const ABSENT: &str = "local:node-1:::csi-vol-no:1";

#[test]
fn a_stage_that_fails_unmounts_nobody_else() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    let at = daemon.text("stage");
    refused(volume.client.node_stage_volume(&stage(ABSENT, &at, mount("ext4"))), Code::NOT_FOUND, &[ABSENT]);
    assert!(is_mounted(&volume.path("stage")), "the other volume was unmounted");
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_target_whose_device_is_gone_is_taken_back() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 8, block());
    volume.stage("stage").expect("stage");
    volume.publish("stage", "device").expect("publish");
    let device = run("losetup", &["-nO", "NAME", "-j", text(&volume.image())]);
    run("losetup", &["-d", &device]);
    volume.retire(&["device"], &["stage"]);
    assert!(!exists(&volume.path("device")));
    daemon.assert_node_is_clean();
}

#[test]
fn the_runtime_directory_may_be_reached_by_a_link() {
    let setup = Setup::new();
    let real = setup.scratch.dir("elsewhere");
    symlink(&real, setup.scratch.path("link")).expect("a link");
    let linked = setup.scratch.path("link/run").display().to_string();
    let daemon = setup.set("CEPHLET_RUNTIME_DIR", linked).start();
    let volume = TestVolume::in_use(&daemon, "one");
    volume.stage("stage").expect("stage again");
    assert_eq!(mounts_below(&real).len(), 1);
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}
