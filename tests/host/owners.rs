//! Who owns the root of a new file system, and the group that shares it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};

use cephlet::proto::csi_v1 as wire;

use crate::support::cli::done;
use crate::support::machine::{owner, write_as};
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, TestVolume, refused};

const NOBODY: u32 = 65534;

fn volume_with(name: &str, parameters: &[(&str, &str)]) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest { parameters: map(parameters), ..volume(name) }
}

/// Has the volume staged and published for this group.
#[track_caller]
fn put_in_use(volume: &TestVolume<'_>, group: &str) {
    let shared = shared_with(volume.capability.clone(), group);
    volume.stage_as("stage", shared.clone()).expect("stage");
    volume.publish_as("stage", "target", shared).expect("publish");
}

#[track_caller]
fn take_back(volume: &TestVolume<'_>) {
    volume.unpublish("target").expect("unpublish");
    volume.unstage("stage").expect("unstage");
}

#[test]
fn an_unprivileged_process_writes_to_its_new_volume() {
    let daemon = Daemon::start();
    let parameters = [("uid", "65534"), ("gid", "100"), ("mode", "0750")];
    let volume = TestVolume::make(&daemon, volume_with("one", &parameters));
    put_in_use(&volume, "");
    let root = daemon.path("target");
    assert_eq!(owner(&root), (NOBODY, 100, 0o750));
    assert!(write_as(NOBODY, NOBODY, &root, "file") && !write_as(1, 1, &root, "other"));

    // What its users make of it later stays, also in a copy.
    chown(&root, Some(7), Some(7)).expect("chown");
    fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("chmod");
    take_back(&volume);
    put_in_use(&volume, "");
    assert_eq!(owner(&root), (7, 7, 0o755));
    take_back(&volume);
    let copy = TestVolume::make(&daemon, from_volume(volume_with("copy", &parameters), &volume.id));
    put_in_use(&copy, "");
    assert_eq!(owner(&root), (7, 7, 0o755));
    assert_eq!(fs::read_to_string(root.join("file")).expect("read"), "data\n");
    copy.retire(&["target"], &["stage"]);
    volume.retire(&[], &[]);
}

#[test]
fn without_parameters_the_root_is_of_root_and_a_volume_context_can_say_otherwise() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    put_in_use(&volume, "");
    assert_eq!(owner(&daemon.path("target")), (0, 0, 0o755));
    take_back(&volume);
    let context = map(&[("fsType", "ext4"), ("uid", "5")]);
    let question = wire::ValidateVolumeCapabilitiesRequest {
        volume_context: context.clone(),
        ..validate(&volume.id, mount("ext4"))
    };
    let verdict = volume.client.validate_volume_capabilities(&question).expect("validate");
    assert!(verdict.confirmed.is_some(), "{verdict:?}");
    let request = wire::NodeStageVolumeRequest {
        volume_context: context,
        ..stage(&volume.id, &daemon.text("stage"), mount("ext4"))
    };
    volume.client.node_stage_volume(&request).expect("stage what was registered");
    assert_eq!(owner(&daemon.path("stage")), (5, 0, 0o755));
    let wrong = wire::NodeStageVolumeRequest { volume_context: map(&[("uid", "nobody")]), ..request };
    refused(volume.client.node_stage_volume(&wrong), Code::INVALID_ARGUMENT, &["uid", "nobody"]);
    volume.retire(&[], &["stage"]);
}

#[test]
fn what_is_no_owner_is_refused_and_a_block_volume_takes_no_notice() {
    let daemon = Daemon::start();
    for (key, value) in
        [("uid", "nobody"), ("gid", "4294967295"), ("mode", "rwx"), ("mountGroupPolicy", "no")]
    {
        let asked = daemon.client().create(&volume_with("wrong", &[(key, value)]));
        refused(asked, Code::INVALID_ARGUMENT, &[key, value, "allowed"]);
    }
    let parameters = map(&[("uid", "65534")]);
    let device = wire::CreateVolumeRequest { parameters, ..volume_as("device", 8 * MIB, block()) };
    let device = TestVolume::make(&daemon, device);
    device.stage("stage").expect("stage");
    device.publish("stage", "target").expect("publish");
    device.retire(&["target"], &["stage"]);
}

#[test]
fn the_operator_gets_a_volume_of_its_owner() {
    let daemon = Daemon::start();
    let id =
        done(&daemon, "volume create web --size 320M --fs xfs --parameter uid=65534 --parameter mode=0700");
    let target = daemon.text("target");
    done(&daemon, &format!("volume publish {id} {target}"));
    assert_eq!(owner(&daemon.path("target")), (NOBODY, 0, 0o700));
    done(&daemon, &format!("volume unpublish {id} {target}"));
    done(&daemon, &format!("volume delete {id}"));
}

#[test]
fn a_group_writes_to_the_volume_and_its_files_are_left_alone() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let (root, file) = (daemon.path("target"), daemon.path("target/file"));
    put_in_use(&volume, "");
    fs::write(&file, "").expect("write");
    take_back(&volume);
    put_in_use(&volume, "100");
    assert_eq!((owner(&root), owner(&file).1), ((0, 100, 0o2775), 0));
    assert!(write_as(1, 100, &root, "new") && !write_as(1, 1, &root, "other"));
    assert_eq!(owner(&root.join("new")).1, 100);
    put_in_use(&volume, "100");

    // Another group: only when no consumer has the volume.
    let other = shared_with(mount("ext4"), "200");
    let said = ["group 100", "200"];
    refused(volume.stage_as("stage", other.clone()), Code::ALREADY_EXISTS, &said);
    refused(volume.publish_as("stage", "target", other.clone()), Code::ALREADY_EXISTS, &said);
    refused(volume.publish_as("stage", "second", other.clone()), Code::FAILED_PRECONDITION, &said);
    volume.publish_as("stage", "second", mount("ext4")).expect("it asks for none");
    assert_eq!(owner(&root).1, 100);
    volume.unpublish("second").expect("unpublish");
    volume.unpublish("target").expect("unpublish");
    volume.publish_as("stage", "target", other).expect("publish");
    assert_eq!(owner(&root), (0, 200, 0o2775));
    take_back(&volume);
    put_in_use(&volume, "300");
    assert_eq!(owner(&root), (0, 300, 0o2775));
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn a_group_gets_everything_where_the_volume_says_so() {
    let daemon = Daemon::start();
    let parameters = [("mountGroupPolicy", "always"), ("mode", "0700")];
    let volume = TestVolume::make(&daemon, volume_with("one", &parameters));
    let root = daemon.path("target");
    put_in_use(&volume, "");
    fs::create_dir(root.join("sub")).expect("make a directory");
    fs::write(root.join("sub/file"), "").expect("write");
    take_back(&volume);
    put_in_use(&volume, "100");
    assert_eq!(owner(&root), (0, 100, 0o2770));
    assert_eq!(
        (owner(&root.join("sub")), owner(&root.join("sub/file"))),
        ((0, 100, 0o2775), (0, 100, 0o664))
    );
    assert!(write_as(1, 100, &root.join("sub"), "new"));
    volume.retire(&["target"], &["stage"]);
}

#[test]
fn a_volume_that_is_only_read_is_not_changed() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    volume.stage("stage").expect("stage");
    let reader = wire::NodePublishVolumeRequest {
        readonly: true,
        ..publish(
            &volume.id,
            &daemon.text("stage"),
            &daemon.text("target"),
            shared_with(mount("ext4"), "100"),
        )
    };
    volume.client.node_publish_volume(&reader).expect("publish");
    assert_eq!(owner(&daemon.path("target")), (0, 0, 0o755));
    take_back(&volume);
    let readers = mount_as("ext4", AccessModeOf::SINGLE_NODE_READER_ONLY, &[]);
    volume.stage_as("stage", shared_with(readers, "100")).expect("stage");
    assert_eq!(owner(&daemon.path("stage")), (0, 0, 0o755));
    volume.retire(&[], &["stage"]);
}
