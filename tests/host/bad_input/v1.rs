//! Through CSI v1.

use cephlet::proto::csi_v1 as wire;
use protobuf::{EnumOrUnknown, MessageField};

use super::{MOUNT_FLAGS, NAMES, NO_NAMES, PARAMETERS, PATHS, all_refused, assert_all_different};
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Code, Daemon, MIB, refused};

#[test]
fn missing_fields_of_the_controller_are_named() {
    all_refused(|daemon, id| {
        let client = daemon.client();
        let unsaid = |capability| wire::ControllerPublishVolumeRequest {
            volume_capability: capability,
            ..publish_to(id, "node-1")
        };
        let sizeless =
            wire::ControllerExpandVolumeRequest { capacity_range: MessageField::none(), ..expand(id, 0) };
        vec![
            ("name is missing", client.create_volume(&volume("")).map(drop)),
            (
                "volume_capabilities",
                client
                    .create_volume(&wire::CreateVolumeRequest { volume_capabilities: vec![], ..volume("x") })
                    .map(drop),
            ),
            ("volume_id", client.delete_volume(&delete("")).map(drop)),
            ("volume_id", client.controller_publish_volume(&publish_to("", "node-1")).map(drop)),
            ("node_id", client.controller_publish_volume(&publish_to(id, "")).map(drop)),
            ("volume_capability", client.controller_publish_volume(&unsaid(MessageField::none())).map(drop)),
            ("volume_id", client.controller_unpublish_volume(&unpublish_from("", "node-1")).map(drop)),
            ("volume_id", client.validate_volume_capabilities(&validate("", block())).map(drop)),
            (
                "volume_capabilities",
                client
                    .validate_volume_capabilities(&wire::ValidateVolumeCapabilitiesRequest {
                        volume_capabilities: vec![],
                        ..validate(id, block())
                    })
                    .map(drop),
            ),
            ("source_volume_id", client.create_snapshot(&snapshot("s", "")).map(drop)),
            ("name is missing", client.create_snapshot(&snapshot("", id)).map(drop)),
            ("snapshot_id", client.delete_snapshot(&delete_snapshot("")).map(drop)),
            ("snapshot_id", client.get_snapshot(&get_snapshot("")).map(drop)),
            ("volume_id", client.controller_expand_volume(&expand("", MIB)).map(drop)),
            ("capacity_range", client.controller_expand_volume(&sizeless).map(drop)),
            ("capacity_range", client.controller_expand_volume(&expand(id, 0)).map(drop)),
            ("volume_id", client.controller_get_volume(&get("")).map(drop)),
            ("volume_id", client.controller_modify_volume(&modify("", &[("a", "b")])).map(drop)),
        ]
    });
}

#[test]
fn missing_fields_of_the_node_are_named() {
    all_refused(|daemon, id| {
        let (client, at, none) = (daemon.client(), daemon.text("stage"), MessageField::none);
        vec![
            ("volume_id", client.node_stage_volume(&stage("", &at, block())).map(drop)),
            ("staging_target_path", client.node_stage_volume(&stage(id, "", block())).map(drop)),
            (
                "volume_capability",
                client
                    .node_stage_volume(&wire::NodeStageVolumeRequest {
                        volume_capability: none(),
                        ..stage(id, &at, block())
                    })
                    .map(drop),
            ),
            ("volume_id", client.node_unstage_volume(&unstage("", &at)).map(drop)),
            ("staging_target_path", client.node_unstage_volume(&unstage(id, "")).map(drop)),
            ("volume_id", client.node_publish_volume(&publish("", &at, &at, block())).map(drop)),
            ("target_path", client.node_publish_volume(&publish(id, &at, "", block())).map(drop)),
            (
                "volume_capability",
                client
                    .node_publish_volume(&wire::NodePublishVolumeRequest {
                        volume_capability: none(),
                        ..publish(id, &at, &at, block())
                    })
                    .map(drop),
            ),
            ("volume_id", client.node_unpublish_volume(&unpublish("", &at)).map(drop)),
            ("target_path", client.node_unpublish_volume(&unpublish(id, "")).map(drop)),
            ("volume_id", client.node_get_volume_stats(&stats("", &at)).map(drop)),
            ("volume_path", client.node_get_volume_stats(&stats(id, "")).map(drop)),
            ("volume_id", client.node_expand_volume(&node_expand("", &at)).map(drop)),
            ("volume_path", client.node_expand_volume(&node_expand(id, "")).map(drop)),
        ]
    });
}

#[test]
fn what_is_too_long_is_named() {
    let (long, fits) = ("x".repeat(129), "x".repeat(128));
    let much = map(&[("key", &"v".repeat(4096))]);
    all_refused(|daemon, id| {
        let (client, at) = (daemon.client(), daemon.text("stage"));
        client.delete_volume(&delete(&fits)).expect("128 bytes are allowed");
        let create = |request: wire::CreateVolumeRequest| client.create_volume(&request).map(drop);
        let flags = mount_as("ext4", AccessModeOf::SINGLE_NODE_WRITER, &[&"f".repeat(4097)]);
        let published =
            wire::NodeStageVolumeRequest { publish_context: much.clone(), ..stage(id, &at, block()) };
        let context =
            wire::NodeStageVolumeRequest { volume_context: much.clone(), ..stage(id, &at, block()) };
        vec![
            ("name is 129 bytes", create(volume(&long))),
            ("parameters", create(wire::CreateVolumeRequest { parameters: much.clone(), ..volume("x") })),
            (
                "mutable_parameters",
                create(wire::CreateVolumeRequest { mutable_parameters: much.clone(), ..volume("x") }),
            ),
            ("secrets", create(wire::CreateVolumeRequest { secrets: much.clone(), ..volume("x") })),
            ("fs_type", create(volume_as("x", MIB, mount(&long)))),
            ("mount_flags", create(volume_as("x", MIB, flags))),
            ("volume_id", create(from_volume(volume("x"), &long))),
            ("snapshot_id", create(from_snapshot(volume("x"), &long))),
            ("volume_id", client.delete_volume(&delete(&long)).map(drop)),
            ("volume_id", client.controller_get_volume(&get(&long)).map(drop)),
            ("node_id", client.controller_publish_volume(&publish_to(id, &"n".repeat(257))).map(drop)),
            ("name is 129 bytes", client.create_snapshot(&snapshot(&long, id)).map(drop)),
            ("starting_token", client.list_volumes(&page(1, &long)).map(drop)),
            ("publish_context", client.node_stage_volume(&published).map(drop)),
            ("volume_context", client.node_stage_volume(&context).map(drop)),
            (
                "staging_target_path",
                client.node_stage_volume(&stage(id, &format!("/{}", "p/".repeat(2048)), block())).map(drop),
            ),
        ]
    });
    Daemon::start().client().create(&volume(&fits)).expect("128 bytes are allowed");
}

#[test]
fn paths_that_could_lead_astray_are_named() {
    all_refused(|daemon, id| {
        let (client, good) = (daemon.client(), daemon.text("stage"));
        let asked = PATHS.map(|bad| {
            refused(client.node_get_volume_stats(&stats(id, bad)), Code::NOT_FOUND, &[id]);
            refused(client.node_expand_volume(&node_expand(id, bad)), Code::NOT_FOUND, &[id]);
            [
                ("staging_target_path", client.node_stage_volume(&stage(id, bad, block())).map(drop)),
                ("staging_target_path", client.node_unstage_volume(&unstage(id, bad)).map(drop)),
                (
                    "staging_target_path",
                    client.node_publish_volume(&publish(id, bad, &good, block())).map(drop),
                ),
                ("target_path", client.node_publish_volume(&publish(id, &good, bad, block())).map(drop)),
                ("target_path", client.node_unpublish_volume(&unpublish(id, bad)).map(drop)),
            ]
        });
        asked.into_iter().flatten().collect()
    });
}

#[test]
fn capabilities_that_say_nothing_are_named() {
    use wire::volume_capability::{AccessMode, MountVolume};
    let number = |number| AccessMode { mode: EnumOrUnknown::from_i32(number), ..Default::default() };
    let with_mode = |mode| wire::VolumeCapability { access_mode: mode, ..mount("ext4") };
    let grouped = MountVolume { volume_mount_group: "users".to_string(), ..Default::default() };
    let mut group = mount("ext4");
    group.set_mount(grouped);
    let flags =
        MOUNT_FLAGS.map(|flag| ("mount_flags", mount_as("ext4", AccessModeOf::SINGLE_NODE_WRITER, &[flag])));
    let wrong = [
        ("neither block nor mount", wire::VolumeCapability { access_type: None, ..mount("ext4") }),
        ("access_mode", with_mode(MessageField::none())),
        ("access_mode", with_mode(MessageField::some(number(0)))),
        ("access_mode", with_mode(MessageField::some(number(8)))),
        ("access_mode", with_mode(MessageField::some(number(-1)))),
        ("volume_mount_group", group),
        ("file system", mount("vfat")),
        ("file system", mount("../ext4")),
    ];
    all_refused(|daemon, id| {
        let (client, at, target) = (daemon.client(), daemon.text("stage"), daemon.text("target"));
        let asked = wrong.iter().chain(&flags).map(|(what, capability)| {
            let publication = wire::ControllerPublishVolumeRequest {
                volume_capability: MessageField::some(capability.clone()),
                ..publish_to(id, "node-1")
            };
            [
                (*what, client.create_volume(&volume_as("x", MIB, capability.clone())).map(drop)),
                (*what, client.controller_publish_volume(&publication).map(drop)),
                (*what, client.node_stage_volume(&stage(id, &at, capability.clone())).map(drop)),
                (*what, client.node_publish_volume(&publish(id, &at, &target, capability.clone())).map(drop)),
            ]
        });
        asked.flatten().collect()
    });
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    all_refused(|daemon, id| {
        let client = daemon.client();
        let create = |required, limit| {
            client
                .create_volume(&wire::CreateVolumeRequest {
                    capacity_range: range(required, limit),
                    ..volume("x")
                })
                .map(drop)
        };
        let larger = |required, limit| {
            client
                .controller_expand_volume(&wire::ControllerExpandVolumeRequest {
                    capacity_range: range(required, limit),
                    ..expand(id, 0)
                })
                .map(drop)
        };
        let asked = [&create as &dyn Fn(i64, i64) -> Answer<()>, &larger].map(|ask| {
            refused(ask(i64::MAX, 0), Code::OUT_OF_RANGE, &[]);
            refused(ask(i64::MAX, i64::MAX), Code::OUT_OF_RANGE, &[]);
            [
                ("required_bytes", ask(-1, 0)),
                ("limit_bytes", ask(1, -1)),
                ("required_bytes", ask(i64::MIN, 0)),
                ("limit_bytes", ask(64 * MIB, 63 * MIB)),
            ]
        });
        asked.into_iter().flatten().collect()
    });
}

#[test]
fn parameters_that_mean_nothing_are_named_with_what_was_meant() {
    all_refused(|daemon, _| {
        let client = daemon.client();
        let create =
            |pair: (&str, &str)| wire::CreateVolumeRequest { parameters: map(&[pair]), ..volume("x") };
        let mutable = wire::CreateVolumeRequest { mutable_parameters: map(&[("iops", "1")]), ..volume("x") };
        let wrong = PARAMETERS.map(|(meant, pair)| (meant, client.create_volume(&create(pair)).map(drop)));
        wrong.into_iter().chain([("iops", client.create_volume(&mutable).map(drop))]).collect()
    });
}

#[test]
fn names_are_text() {
    all_refused(|daemon, _| {
        NO_NAMES.map(|name| ("name", daemon.client().create_volume(&volume(name)).map(drop))).into()
    });
    let daemon = Daemon::start();
    let client = daemon.client();
    let ids = NAMES.map(|name| client.create(&volume_as(name, MIB, block())).expect(name).volume_id);
    assert_all_different(&ids);
    ids.iter().for_each(|id| client.delete_volume(&delete(id)).map(drop).expect("delete"));
}
