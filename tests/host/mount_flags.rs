//! Mount flags as orchestrators send them: one or several in an item, with and without `ro` and `rw`.

use std::fs;
use std::io::ErrorKind;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::mount_at;
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, TestVolume, refused, v0};

use AccessModeOf as Mode;

fn flagged(mode: Mode, flags: &[&str]) -> wire::VolumeCapability {
    mount_as("xfs", mode, flags)
}

#[test]
fn several_flags_in_one_item_are_several_flags() {
    let daemon = Daemon::start();
    let together = flagged(Mode::SINGLE_NODE_WRITER, &["noatime,ro"]);
    let apart = flagged(Mode::SINGLE_NODE_WRITER, &["ro", "noatime"]);
    let volume = TestVolume::create(&daemon, "one", 320, together.clone());
    volume.stage_as("other", flagged(Mode::SINGLE_NODE_WRITER, &["noatime,"])).expect("stage for writing");
    volume.stage("stage").expect("stage for reading");
    volume.stage_as("stage", apart.clone()).expect("the same again");
    volume.publish_as("stage", "target", apart).expect("publish");
    volume.publish("stage", "target").expect("the same again");
    let options = mount_at(&volume.path("target")).expect("mounted").options;
    assert!(["ro", "noatime"].iter().all(|flag| options.split(',').any(|is| is == *flag)), "{options}");
    let refusal = fs::write(volume.path("target/file"), "x").expect_err("read-only");
    assert_eq!(refusal.kind(), ErrorKind::ReadOnlyFilesystem);
    fs::write(volume.path("other/file"), "x").expect("the volume itself is not read-only");
    let condition = volume.stats("target").expect("stats").volume_condition;
    assert!(!condition.abnormal, "{condition:?}");
    volume.expand(384 * MIB).expect("expand");
    volume.node_expand("stage", 384 * MIB).expect("its file system grows");
    volume.retire(&["target"], &["stage", "other"]);
    daemon.assert_node_is_clean();
}

#[test]
fn flags_that_contradict_each_other_or_the_request_are_refused() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 320, mount("xfs"));
    let staged = |mode, flags: &[&str]| volume.stage_as("stage", flagged(mode, flags));
    for flags in [&["ro", "rw"][..], &["rw,noatime,ro"]] {
        refused(staged(Mode::SINGLE_NODE_WRITER, flags), Code::INVALID_ARGUMENT, &["both ro and rw"]);
    }
    refused(staged(Mode::SINGLE_NODE_READER_ONLY, &["rw"]), Code::INVALID_ARGUMENT, &["rw", "access_mode"]);
    let open = ["context=\"system_u:object_r:tmp_t:s0:c1,c2"];
    refused(staged(Mode::SINGLE_NODE_WRITER, &open), Code::INVALID_ARGUMENT, &["double quote"]);
    volume.stage_as("stage", flagged(Mode::SINGLE_NODE_WRITER, &["rw"])).expect("rw is the default");
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    let writes = flagged(Mode::SINGLE_NODE_WRITER, &["rw"]);
    let request = wire::NodePublishVolumeRequest {
        readonly: true,
        ..publish(&volume.id, &staging, &target, writes.clone())
    };
    refused(volume.client.node_publish_volume(&request), Code::INVALID_ARGUMENT, &["rw", "readonly"]);
    let request = wire::ControllerPublishVolumeRequest {
        readonly: true,
        volume_capability: protobuf::MessageField::some(writes),
        ..publish_to(&volume.id, "node-1")
    };
    refused(volume.client.controller_publish_volume(&request), Code::INVALID_ARGUMENT, &["rw", "readonly"]);
    volume.retire(&[], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn csi_0_1_and_the_command_line_split_flags_too() {
    let daemon = Daemon::start();
    let volume = TestVolume::create(&daemon, "one", 32, mount("ext4"));
    let client = v0::Client::of(&daemon);
    let publish = |flags: &[&str]| {
        let capability = v0::mount_as("ext4", v0::Mode::SINGLE_NODE_WRITER, flags);
        client.publish(&v0::publish(&volume.id, &daemon.text("target"), capability))
    };
    refused(publish(&["rw,ro"]), Code::INVALID_ARGUMENT, &["both ro and rw"]);
    publish(&["noatime,ro"]).expect("publish");
    publish(&["ro", "noatime"]).expect("the same again");
    client.node_unpublish_volume(&v0::unpublish(&volume.id, &daemon.text("target"))).expect("unpublish");
    let line =
        |target| format!("cephlet volume publish {} {} --flags noatime,ro", volume.id, daemon.text(target));
    daemon.type_in(&line("by-hand"), &[]).expect("publish");
    assert!(mount_at(&volume.path("by-hand")).expect("mounted").options.starts_with("ro,"));
    daemon
        .type_in(&format!("cephlet volume unpublish {} {}", volume.id, daemon.text("by-hand")), &[])
        .expect("unpublish");
    daemon.assert_node_is_clean();
}
