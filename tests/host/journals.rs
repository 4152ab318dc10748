//! Copies of file systems in use have what was synced before, even if they are staged read-only.

use std::fs;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::machine::{loops_below, run, text};
use crate::support::requests::*;
use crate::support::{Daemon, MIB, TestVolume};

use AccessModeOf as Mode;

const READER: Mode = Mode::SINGLE_NODE_READER_ONLY;

/// A volume that is a copy of one that was mounted and had a file synced a moment before.
fn copy_of_a_volume_in_use<'a>(daemon: &'a Daemon, fs_type: &str, mib: i64) -> TestVolume<'a> {
    let source = TestVolume::create(daemon, "source", mib, mount(fs_type));
    let copy = TestVolume::create(daemon, "copy", mib, mount(fs_type));
    source.stage("source").expect("stage");
    let file = daemon.text("source/file");
    // Data that is not synced would be written back by unmounting.
    run("sync", &["--file-system", &daemon.text("source")]);
    run("sh", &["-c", "printf synced > \"$1\" && sync \"$1\"", "write", &file]);
    run("cp", &[text(&source.image()), text(&copy.image())]);
    source.retire(&[], &["source"]);
    copy
}

fn has_what_was_synced(fs_type: &str, mib: i64) {
    let daemon = Daemon::start();
    let copy = copy_of_a_volume_in_use(&daemon, fs_type, mib);
    let request = wire::ControllerPublishVolumeRequest {
        readonly: true,
        volume_capability: MessageField::some(mount_as(fs_type, READER, &[])),
        ..publish_to(&copy.id, "node-1")
    };
    let told = copy.client.controller_publish_volume(&request).expect("publish for reading").publish_context;
    let request = wire::NodeStageVolumeRequest {
        publish_context: told,
        ..stage(&copy.id, &daemon.text("stage"), mount_as(fs_type, READER, &[]))
    };
    for _ in 0..2 {
        copy.client.node_stage_volume(&request).expect("stage for reading");
        let read = fs::read_to_string(daemon.path("stage/file")).expect("UNSAFE: what was synced is missing");
        assert_eq!(read, "synced", "UNSAFE: {fs_type}");
        let [(device, _)] = loops_below(&copy.image()).try_into().expect("one device");
        assert_eq!(run("blockdev", &["--getro", text(&device)]), "1");
        copy.unstage("stage").expect("unstage");
    }
    copy.client.controller_unpublish_volume(&unpublish_from(&copy.id, "")).expect("unpublish");
    copy.retire(&[], &[]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_read_only_ext4_has_what_was_synced() {
    has_what_was_synced("ext4", 32);
}

#[test]
fn a_read_only_xfs_has_what_was_synced() {
    has_what_was_synced("xfs", 320);
}

#[test]
fn a_read_only_btrfs_has_what_was_synced() {
    has_what_was_synced("btrfs", 128);
}

/// A daemon that was killed before it made the device read-only leaves it writable.
#[test]
fn a_device_that_was_left_writable_is_read_only_again() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    volume.unstage("stage").expect("unstage");
    run("losetup", &["--find", text(&volume.image())]);
    let request = wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(&volume.id, "node-1") };
    let told = volume.client.controller_publish_volume(&request).expect("publish").publish_context;
    let request = wire::NodeStageVolumeRequest {
        publish_context: told,
        ..stage(&volume.id, &daemon.text("stage"), mount("ext4"))
    };
    volume.client.node_stage_volume(&request).expect("stage");
    let [(device, _)] = loops_below(&volume.image()).try_into().expect("one device");
    assert_eq!(run("blockdev", &["--getro", text(&device)]), "1");
    volume.unstage("stage").expect("unstage");
    volume.client.controller_unpublish_volume(&unpublish_from(&volume.id, "")).expect("unpublish");
    assert_eq!(volume.size, 32 * MIB);
    volume.retire(&[], &[]);
    daemon.assert_node_is_clean();
}
