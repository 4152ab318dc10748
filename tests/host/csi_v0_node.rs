//! CSI 0.1 on the node, with real mounts on the local backend. The tests name the sections whose MUSTs they
//! check.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use cephlet::proto::csi as wire;
use protobuf::Message;

use crate::support::client::Answer;
use crate::support::machine::{is_mounted, loops_below, mount_at, mounts_below};
use crate::support::stub::Hanging;
use crate::support::v0::*;
use crate::support::v0_controller::Subject;
use crate::support::{Code, Daemon, Setup, raw, refused, requests};

/// A volume of a daemon, through 0.1.
struct Volume {
    daemon: Daemon,
    client: Client,
    id: String,
    capability: wire::VolumeCapability,
}

impl Volume {
    fn new(capability: wire::VolumeCapability) -> Self {
        Self::of(Daemon::start(), capability)
    }

    fn of(daemon: Daemon, capability: wire::VolumeCapability) -> Self {
        let client = Client::of(&daemon);
        let id = client.create(&volume_as("one", mib(32), capability.clone())).expect("create").id;
        Self { daemon, client, id, capability }
    }

    fn request(&self, target: &str) -> wire::NodePublishVolumeRequest {
        publish(&self.id, &self.daemon.text(target), self.capability.clone())
    }

    /// Publishes at a directory, or for a device a file, that the orchestrator has made.
    fn publish(&self, target: &str) -> Answer<()> {
        self.send(&self.request(target))
    }

    fn send(&self, request: &wire::NodePublishVolumeRequest) -> Answer<()> {
        let path = Path::new(&request.target_path);
        if request.volume_capability.has_block() {
            fs::OpenOptions::new().create(true).append(true).open(path).expect("make the target");
        } else {
            fs::create_dir_all(path).expect("make the target");
        }
        self.client.node_publish_volume(request).map(drop)
    }

    fn unpublish(&self, target: &str) -> Answer<()> {
        self.client.node_unpublish_volume(&unpublish(&self.id, &self.daemon.text(target))).map(drop)
    }

    fn restart(&mut self) {
        self.daemon.restart();
        self.client = Client::of(&self.daemon);
    }
}

/// "NodePublishVolume", "NodeUnpublishVolume": idempotent, and one undoes the other. The target belongs to
/// the orchestrator.
#[test]
fn a_file_system_is_published_and_unpublished() {
    for fs_type in ["", "ext4"] {
        let volume = Volume::new(mount(fs_type));
        for round in 0..2 {
            for _ in 0..2 {
                volume.publish("target").expect("publish");
            }
            assert_eq!(mounts_below(&volume.daemon.path("target")).len(), 1, "mounted once");
            let file = volume.daemon.path("target/file");
            match round {
                0 => fs::write(&file, "data").expect("write"),
                _ => assert_eq!(fs::read_to_string(&file).expect("read"), "data"),
            }
            for _ in 0..2 {
                volume.unpublish("target").expect("unpublish");
            }
            assert!(volume.daemon.path("target").is_dir(), "it was not made by us");
            volume.daemon.assert_node_is_clean();
        }
    }
}

#[test]
fn a_device_is_published_and_unpublished() {
    let volume = Volume::new(block());
    for _ in 0..2 {
        volume.publish("device").expect("publish");
    }
    fs::write(volume.daemon.path("device"), "data").expect("write");
    refused(volume.client.delete_volume(&delete(&volume.id)), Code::FAILED_PRECONDITION, &["device"]);
    for _ in 0..2 {
        volume.unpublish("device").expect("unpublish");
    }
    assert_eq!(fs::metadata(volume.daemon.path("device")).expect("it stays").len(), 0);
    volume.daemon.assert_node_is_clean();
    volume.client.delete_volume(&delete(&volume.id)).expect("delete");
}

/// "NodePublishVolume": the node makes a target that the orchestrator has not made, and removes it later.
#[test]
fn a_target_that_is_missing_is_made_and_removed() {
    let volume = Volume::new(mount("ext4"));
    volume.client.node_publish_volume(&volume.request("made")).expect("publish");
    assert!(is_mounted(&volume.daemon.path("made")));
    volume.unpublish("made").expect("unpublish");
    assert!(!volume.daemon.path("made").exists());
}

/// "NodePublishVolume", the table of second calls, for volumes of a single node: every column.
#[test]
fn a_second_publish_is_answered_as_the_table_says() {
    let mut volume = Volume::new(mount("ext4"));
    let same = volume.request("t1");
    let read_only = wire::NodePublishVolumeRequest { readonly: true, ..same.clone() };
    let with = |capability: wire::VolumeCapability| wire::NodePublishVolumeRequest {
        volume_capability: Some(capability).into(),
        ..same.clone()
    };
    let others = [
        read_only,
        with(mount_as("ext4", Mode::SINGLE_NODE_READER_ONLY, &[])),
        with(mount_as("ext4", Mode::SINGLE_NODE_WRITER, &["noatime"])),
        with(mount_as("ext4", Mode::SINGLE_NODE_WRITER, &["ro"])),
        with(mount("xfs")),
    ];
    volume.send(&same).expect("publish");
    for _ in 0..2 {
        volume.send(&same).expect("the same again");
        for other in &others {
            refused(volume.send(other), Code::ALREADY_EXISTS, &[&volume.id]);
            let elsewhere =
                wire::NodePublishVolumeRequest { target_path: volume.daemon.text("t2"), ..other.clone() };
            refused(volume.send(&elsewhere), Code::FAILED_PRECONDITION, &["t1"]);
        }
        refused(volume.send(&volume.request("t2")), Code::FAILED_PRECONDITION, &["t1"]);
        assert!(!is_mounted(&volume.daemon.path("t2")));
        fs::write(volume.daemon.path("t1/file"), "data").expect("what is published is as it was");
        volume.restart();
    }
    volume.unpublish("t1").expect("unpublish");
    volume.publish("t2").expect("now it is free");
    volume.unpublish("t2").expect("unpublish");
    volume.daemon.assert_node_is_clean();
}

/// "NodePublishVolume": published read-only, nothing can be written, neither to a file system nor to a
/// device.
#[test]
fn what_is_published_read_only_is_read_only() {
    for (capability, at) in [(mount("ext4"), "target"), (block(), "device")] {
        let volume = Volume::new(capability);
        volume.publish(at).expect("publish");
        volume.unpublish(at).expect("unpublish");
        let request = wire::NodePublishVolumeRequest { readonly: true, ..volume.request(at) };
        for _ in 0..2 {
            volume.send(&request).expect("publish read-only");
        }
        refused(volume.publish(at), Code::ALREADY_EXISTS, &[&volume.id]);
        let file = if at == "device" { at } else { "target/file" };
        let refusal = fs::write(volume.daemon.path(file), "data").expect_err("it is read-only").kind();
        assert!(
            matches!(refusal, ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied),
            "{refusal:?}"
        );
        volume.unpublish(at).expect("unpublish");
        volume.publish(at).expect("publish for writing");
        volume.unpublish(at).expect("unpublish");
        volume.daemon.assert_node_is_clean();
    }
}

/// "NodePublishVolume": what ControllerPublishVolume says is passed on, here that nothing may be written.
#[test]
fn what_the_controller_says_reaches_the_node() {
    let volume = Volume::new(block());
    let request =
        wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(&volume.id, "node-1", block()) };
    let publish_volume_info =
        volume.client.controller_publish_volume(&request).expect("publish").publish_volume_info;
    volume
        .send(&wire::NodePublishVolumeRequest { publish_volume_info, ..volume.request("device") })
        .expect("publish");
    fs::write(volume.daemon.path("device"), "data").expect_err("the device is read-only");
    volume.unpublish("device").expect("unpublish");
}

/// "NodePublishVolume Errors", "NodeUnpublishVolume Errors": 5 for a volume that does not exist, or no longer
/// exists.
#[test]
fn absent_volumes_are_not_found() {
    let it = Subject::local();
    let target = it.daemon.text("target");
    for id in ["nobody's".to_string(), it.former()] {
        refused(it.client.publish(&publish(&id, &target, block())), Code::NOT_FOUND, &[&id]);
        refused(it.client.node_unpublish_volume(&unpublish(&id, &target)), Code::NOT_FOUND, &[&id]);
    }
    let id = it.create("one").id;
    it.client.node_unpublish_volume(&unpublish(&id, &target)).expect("it is there, and not published");
    it.daemon.assert_node_is_clean();
}

/// A publishing that fails leaves the state from before.
#[test]
fn a_failed_publishing_leaves_nothing() {
    let volume = Volume::new(mount("ext4"));
    let flags = mount_as("ext4", Mode::SINGLE_NODE_WRITER, &["nobody_knows_this"]);
    let request =
        wire::NodePublishVolumeRequest { volume_capability: Some(flags).into(), ..volume.request("target") };
    refused(volume.send(&request), Code::INVALID_ARGUMENT, &[&volume.id]);
    volume.daemon.assert_node_is_clean();
    fs::write(volume.daemon.path("file"), "").expect("a file");
    refused(
        volume.client.node_publish_volume(&volume.request("file")),
        Code::FAILED_PRECONDITION,
        &["is no directory"],
    );
    volume.daemon.assert_node_is_clean();
    assert!(volume.daemon.path("target").is_dir() && volume.daemon.path("file").is_file());
    volume.client.delete_volume(&delete(&volume.id)).expect("nobody uses it");
}

/// A volume whose publishing at `broken` died while its file system was made; the daemon runs again.
fn broken_off() -> Volume {
    let setup = Setup::new().in_own_session();
    let mkfs = Hanging::new(&setup.scratch, "mkfs.ext4");
    let mut volume = Volume::of(setup.set("CEPHLET_TOOL_PATH", mkfs.tool_path()).start(), mount("ext4"));
    let bytes = volume.request("broken").write_to_bytes().expect("encodes");
    let channel = volume.daemon.client().channel;
    let _call = raw::begin(&channel, "/csi.Node/NodePublishVolume", bytes);
    mkfs.await_start();
    volume.daemon.kill9();
    mkfs.release();
    volume.daemon.await_leftovers();
    volume.restart();
    assert_eq!(
        (loops_below(&volume.daemon.local_dir()).len(), is_mounted(&volume.daemon.path("broken"))),
        (1, false)
    );
    volume
}

/// "NodePublishVolume": "If this RPC failed, or the CO does not know if it failed or not, it MAY choose to
/// call NodePublishVolume again, or choose to call NodeUnpublishVolume." It may also do neither: where
/// nothing was ever mounted nothing is in the way.
#[test]
fn an_interrupted_publish_does_not_block_another() {
    for (at, flag) in [("elsewhere", "noatime"), ("broken", "nodiratime")] {
        let volume = broken_off();
        let capability = mount_as("ext4", Mode::SINGLE_NODE_WRITER, &[flag]);
        let request = wire::NodePublishVolumeRequest {
            volume_capability: Some(capability).into(),
            ..volume.request(at)
        };
        volume.send(&request).expect("publish in another way");
        assert!(mount_at(&volume.daemon.path(at)).expect("a mount").options.contains(flag));
        volume.unpublish(at).expect("unpublish");
        volume.daemon.assert_node_is_clean();
    }
}

#[test]
fn a_publishing_that_was_broken_off_is_done_when_it_is_asked_again() {
    let volume = broken_off();
    volume.publish("broken").expect("publish");
    refused(volume.publish("elsewhere"), Code::FAILED_PRECONDITION, &["broken"]);
    volume.unpublish("broken").expect("unpublish");
    volume.daemon.assert_node_is_clean();
}

#[test]
fn a_publishing_that_was_broken_off_holds_no_device() {
    let volume = broken_off();
    volume.client.delete_volume(&delete(&volume.id)).expect("nobody has it");
    volume.daemon.assert_node_is_clean();
    let volume = broken_off();
    let (v1, staging) = (volume.daemon.client(), volume.daemon.text("stage"));
    v1.node_stage_volume(&requests::stage(&volume.id, &staging, requests::mount("ext4"))).expect("stage");
    v1.node_unstage_volume(&requests::unstage(&volume.id, &staging)).expect("unstage");
    volume.daemon.assert_node_is_clean();
}

/// Paths are as long as the kernel allows, and mean the same however they are spelled.
#[test]
fn targets_may_have_long_paths() {
    let volume = Volume::new(mount("ext4"));
    let long = format!("{}/{}", "a".repeat(200), "b".repeat(200));
    volume.publish(&long).expect("publish");
    volume.unpublish(&format!("{}//{}/", "a".repeat(200), "b".repeat(200))).expect("unpublish");
    assert!(!is_mounted(&volume.daemon.path(&long)) && volume.daemon.path(&long).is_dir());
    volume.daemon.assert_node_is_clean();
}

/// The two protocols on one volume: each leaves alone what the other has staged or published.
#[test]
fn each_protocol_takes_back_its_own() {
    let volume = Volume::new(mount("ext4"));
    let v1 = volume.daemon.client();
    let [staging, target] = ["stage", "v1-target"].map(|name| volume.daemon.text(name));
    let stage = || v1.node_stage_volume(&requests::stage(&volume.id, &staging, requests::mount("ext4")));
    stage().expect("stage");
    volume.publish("target").expect("publish beside it");
    assert_eq!(loops_below(&volume.daemon.local_dir()).len(), 1, "attached once");
    fs::write(volume.daemon.path("target/file"), "data").expect("write");
    assert_eq!(fs::read_to_string(volume.daemon.path("stage/file")).expect("read"), "data");
    // In 0.1 this is the only target; v1 is lenient unless 0.1 has a target.
    let publish =
        || v1.node_publish_volume(&requests::publish(&volume.id, &staging, &target, requests::mount("ext4")));
    refused(publish(), Code::FAILED_PRECONDITION, &["target"]);
    volume.unpublish("target").expect("unpublish");
    assert!(is_mounted(&volume.daemon.path("stage")), "that is v1's");
    publish().expect("publish through v1");
    refused(volume.publish("target"), Code::FAILED_PRECONDITION, &["v1-target"]);
    v1.node_unpublish_volume(&requests::unpublish(&volume.id, &target)).expect("unpublish");
    volume.publish("target").expect("publish");
    v1.node_unstage_volume(&requests::unstage(&volume.id, &staging)).expect("unstage");
    assert_eq!(mount_at(&volume.daemon.path("target")).expect("that is 0.1's").fs_type, "ext4");
    v1.node_unstage_volume(&requests::unstage(&volume.id, &staging)).expect("unstage again");
    fs::write(volume.daemon.path("target/file"), "more").expect("write");
    volume.unpublish("target").expect("unpublish");
    volume.daemon.assert_node_is_clean();
}

/// If both protocols had the same path, one would take it from the other.
#[test]
fn no_path_is_both_a_stage_and_a_target() {
    let volume = Volume::new(mount("ext4"));
    let v1 = volume.daemon.client();
    let stage = |at: &str| {
        v1.node_stage_volume(&requests::stage(&volume.id, &volume.daemon.text(at), requests::mount("ext4")))
    };
    stage("stage").expect("stage");
    for at in ["stage", "stage/below"] {
        refused(volume.publish(at), Code::FAILED_PRECONDITION, &["is staged at", &volume.daemon.text(at)]);
    }
    volume.unpublish("stage").expect("it is no target");
    assert!(is_mounted(&volume.daemon.path("stage")));
    volume.publish("target").expect("publish");
    for at in ["target", "target/below"] {
        refused(stage(at), Code::FAILED_PRECONDITION, &["is published at", &volume.daemon.text(at)]);
    }
    v1.node_unstage_volume(&requests::unstage(&volume.id, &volume.daemon.text("target")))
        .expect("it is no stage");
    assert!(is_mounted(&volume.daemon.path("target")));
    v1.node_unstage_volume(&requests::unstage(&volume.id, &volume.daemon.text("stage"))).expect("unstage");
    volume.unpublish("target").expect("unpublish");
    volume.daemon.assert_node_is_clean();
}

/// The call that takes back the last path takes the device from the node.
#[test]
fn a_target_may_be_unpublished_through_the_other_protocol() {
    let volume = Volume::new(mount("ext4"));
    volume.publish("target").expect("publish");
    let v1 = volume.daemon.client();
    let at = volume.daemon.text("target");
    assert!(v1.node_get_volume_stats(&requests::stats(&volume.id, &at)).expect("stats").usage[0].total > 0);
    v1.node_unpublish_volume(&requests::unpublish(&volume.id, &at)).expect("unpublish");
    assert!(volume.daemon.path("target").is_dir());
    volume.daemon.assert_node_is_clean();
}

/// A restart or a kill between any two calls changes nothing.
#[test]
fn the_daemon_may_end_between_any_two_calls() {
    let mut volume = Volume::new(mount("ext4"));
    for kill in [true, false] {
        let end = |volume: &mut Volume| {
            if kill {
                volume.daemon.kill9();
            }
            volume.restart();
        };
        end(&mut volume);
        volume.publish("target").expect("publish");
        let mounted = mount_at(&volume.daemon.path("target")).map(|mount| mount.source);
        end(&mut volume);
        assert_eq!(mount_at(&volume.daemon.path("target")).map(|mount| mount.source), mounted);
        volume.publish("target").expect("publish again");
        refused(volume.publish("other"), Code::FAILED_PRECONDITION, &["target"]);
        end(&mut volume);
        volume.unpublish("target").expect("unpublish");
        volume.daemon.assert_node_is_clean();
        end(&mut volume);
        volume.unpublish("target").expect("unpublish again");
        assert!(volume.daemon.path("target").is_dir());
    }
}
