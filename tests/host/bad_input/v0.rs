//! Through CSI 0.1. Its secrets are nowhere to be found, either.

use std::collections::HashMap;

use cephlet::proto::csi as wire;
use protobuf::{EnumOrUnknown, MessageField};

use super::{Case, MOUNT_FLAGS, NAMES, NO_NAMES, PARAMETERS, PATHS, all_refused, assert_all_different};
use crate::support::machine::run;
use crate::support::requests::map;
use crate::support::v0::*;
use crate::support::{Code, Daemon, raw, refused};

/// "REQUIRED Fields"
#[test]
fn missing_fields_are_named() {
    all_refused(|daemon, id| {
        let client = &Client::of(daemon);
        let at = daemon.text("target");
        let none = MessageField::none;
        let unsaid = wire::ControllerPublishVolumeRequest {
            volume_capability: none(),
            ..publish_to(id, "node-1", block())
        };
        let useless = wire::CreateVolumeRequest { volume_capabilities: vec![], ..volume("x") };
        let unpublished =
            wire::NodePublishVolumeRequest { volume_capability: none(), ..publish(id, &at, block()) };
        vec![
            ("name is missing", client.create_volume(&volume("")).map(drop)),
            ("volume_capabilities is missing", client.create_volume(&useless).map(drop)),
            ("volume_id is missing", client.delete_volume(&delete("")).map(drop)),
            (
                "volume_id is missing",
                client.controller_publish_volume(&publish_to("", "node-1", block())).map(drop),
            ),
            ("node_id is missing", client.controller_publish_volume(&publish_to(id, "", block())).map(drop)),
            ("volume_capability is missing", client.controller_publish_volume(&unsaid).map(drop)),
            (
                "volume_id is missing",
                client.controller_unpublish_volume(&unpublish_from("", "node-1")).map(drop),
            ),
            (
                "volume_id is missing",
                client.validate_volume_capabilities(&validate("", &[block()])).map(drop),
            ),
            (
                "volume_capabilities is missing",
                client.validate_volume_capabilities(&validate(id, &[])).map(drop),
            ),
            ("volume_id is missing", client.node_publish_volume(&publish("", &at, block())).map(drop)),
            ("target_path is missing", client.node_publish_volume(&publish(id, "", block())).map(drop)),
            ("volume_capability is missing", client.node_publish_volume(&unpublished).map(drop)),
            ("volume_id is missing", client.node_unpublish_volume(&unpublish("", &at)).map(drop)),
            ("target_path is missing", client.node_unpublish_volume(&unpublish(id, "")).map(drop)),
        ]
    });
}

/// "Field Size Limits": 128 bytes for strings, 4 KiB for maps, and for all mount flags together. Paths have
/// the kernel's limit.
#[test]
fn long_strings_are_named() {
    let long = "x".repeat(129);
    all_refused(|daemon, id| {
        let client = &Client::of(daemon);
        let (at, too_long) = (daemon.text("target"), format!("/{}", "p".repeat(4095)));
        let from =
            |id: &str, node: &str| client.controller_unpublish_volume(&unpublish_from(id, node)).map(drop);
        let to =
            |id: &str, node: &str| client.controller_publish_volume(&publish_to(id, node, block())).map(drop);
        let at_path =
            |id: &str, path: &str| client.node_publish_volume(&publish(id, path, block())).map(drop);
        let long_type = volume_as("x", mib(8), mount(&long));
        let validated = client.validate_volume_capabilities(&validate(&long, &[block()])).map(drop);
        vec![
            ("name is 129 bytes", client.create_volume(&volume(&long)).map(drop)),
            ("fs_type is 129 bytes", client.create_volume(&long_type).map(drop)),
            ("volume_id is 129 bytes", client.delete_volume(&delete(&long)).map(drop)),
            ("volume_id is 129 bytes", to(&long, "node-1")),
            ("volume_id is 129 bytes", from(&long, "node-1")),
            ("volume_id is 129 bytes", validated),
            ("volume_id is 129 bytes", at_path(&long, &at)),
            ("volume_id is 129 bytes", client.node_unpublish_volume(&unpublish(&long, &at)).map(drop)),
            ("node_id is 129 bytes", to(id, &long)),
            ("node_id is 129 bytes", from(id, &long)),
            ("starting_token is 129 bytes", client.list_volumes(&page(1, &long)).map(drop)),
            ("target_path is", at_path(id, &too_long)),
        ]
    });
}

/// The same for maps and mount flags.
#[test]
fn large_maps_are_named() {
    let much = map(&[("key", &"v".repeat(4096))]);
    all_refused(|daemon, id| {
        let client = &Client::of(daemon);
        let create = |request: wire::CreateVolumeRequest| client.create_volume(&request).map(drop);
        let at = daemon.text("target");
        let to = publish_to(id, "node-1", block());
        let attributes =
            wire::ControllerPublishVolumeRequest { volume_attributes: much.clone(), ..to.clone() };
        let checked = wire::ValidateVolumeCapabilitiesRequest {
            volume_attributes: much.clone(),
            ..validate(id, &[block()])
        };
        let info =
            wire::NodePublishVolumeRequest { publish_volume_info: much.clone(), ..publish(id, &at, block()) };
        let on_node =
            wire::NodePublishVolumeRequest { volume_attributes: much.clone(), ..publish(id, &at, block()) };
        let parameters = wire::GetCapacityRequest { parameters: much.clone(), ..capacity() };
        vec![
            ("parameters is", create(wire::CreateVolumeRequest { parameters: much.clone(), ..volume("x") })),
            ("mount_flags is", create(volume_as("x", mib(8), with_flags(17)))),
            ("volume_attributes is", client.controller_publish_volume(&attributes).map(drop)),
            ("volume_attributes is", client.validate_volume_capabilities(&checked).map(drop)),
            ("publish_volume_info is", client.node_publish_volume(&info).map(drop)),
            ("volume_attributes is", client.node_publish_volume(&on_node).map(drop)),
            ("parameters is", client.get_capacity(&parameters).map(drop)),
        ]
    });
    let longest = volume_as(&"x".repeat(128), mib(8), with_flags(16));
    Client::of(&Daemon::start()).create(&longest).expect("so much is allowed");
}

/// Flags of 256 bytes each.
fn with_flags(count: usize) -> wire::VolumeCapability {
    mount_as("ext4", Mode::SINGLE_NODE_WRITER, &vec!["f".repeat(256).as_str(); count])
}

/// "target_path … MUST be an absolute path"
#[test]
fn paths_that_could_lead_astray_are_named() {
    all_refused(|daemon, id| {
        let client = &Client::of(daemon);
        let publish =
            |path: &&str| ("target_path", client.node_publish_volume(&publish(id, path, block())).map(drop));
        let unpublish =
            |path: &&str| ("target_path", client.node_unpublish_volume(&unpublish(id, path)).map(drop));
        PATHS.iter().map(publish).chain(PATHS.iter().map(unpublish)).collect()
    });
}

/// "VolumeCapability", in every message that has one.
#[test]
fn capabilities_that_say_nothing_are_named() {
    use wire::volume_capability::AccessMode;
    let with_mode = |mode| wire::VolumeCapability { access_mode: mode, ..mount("ext4") };
    let number = |number| {
        MessageField::some(AccessMode { mode: EnumOrUnknown::from_i32(number), ..Default::default() })
    };
    let flags = MOUNT_FLAGS.map(|flag| ("mount_flags", mount_as("ext4", Mode::SINGLE_NODE_WRITER, &[flag])));
    let wrong = [
        ("neither block nor mount", wire::VolumeCapability { access_type: None, ..mount("ext4") }),
        ("access_mode", with_mode(MessageField::none())),
        ("access_mode", with_mode(number(0))),
        // v1 has more of them.
        ("access_mode", with_mode(number(6))),
        ("access_mode", with_mode(number(7))),
        ("access_mode", with_mode(number(-1))),
        ("fs_type is 129 bytes", mount(&"x".repeat(129))),
    ];
    all_refused(|daemon, id| {
        let client = &Client::of(daemon);
        let at = daemon.text("target");
        let asked = wrong.iter().chain(&flags).map(|(what, capability)| {
            let room =
                wire::GetCapacityRequest { volume_capabilities: vec![capability.clone()], ..capacity() };
            [
                (*what, client.create_volume(&volume_as("x", mib(8), capability.clone())).map(drop)),
                (*what, client.get_capacity(&room).map(drop)),
                (
                    *what,
                    client
                        .validate_volume_capabilities(&validate(id, std::slice::from_ref(capability)))
                        .map(drop),
                ),
                (
                    *what,
                    client.controller_publish_volume(&publish_to(id, "node-1", capability.clone())).map(drop),
                ),
                (*what, client.node_publish_volume(&publish(id, &at, capability.clone())).map(drop)),
            ]
        });
        asked.flatten().collect()
    });
}

/// "CreateVolume": its parameters must be possible; and "GetCapacity" has the same parameters.
#[test]
fn parameters_that_mean_nothing_are_named_with_what_was_meant() {
    all_refused(|daemon, _| {
        let client = &Client::of(daemon);
        let asked = PARAMETERS.map(|(what, pair)| {
            let made =
                wire::CreateVolumeRequest { parameters: map(&[pair]), ..volume_as("x", mib(8), block()) };
            let room = wire::GetCapacityRequest { parameters: map(&[pair]), ..capacity() };
            [(what, client.create_volume(&made).map(drop)), (what, client.get_capacity(&room).map(drop))]
        });
        asked.into_iter().flatten().collect()
    });
}

/// "CreateVolumeRequest.name": any text, and different texts name different volumes.
#[test]
fn names_are_text() {
    all_refused(|daemon, _| {
        let client = &Client::of(daemon);
        NO_NAMES.map(|name| ("name", client.create_volume(&volume(name)).map(drop))).into()
    });
    let daemon = Daemon::start();
    let client = Client::of(&daemon);
    let ids = NAMES.map(|name| client.create(&volume_as(name, mib(8), block())).expect(name).id);
    assert_all_different(&ids);
    ids.iter().for_each(|id| client.delete_volume(&delete(id)).map(drop).expect("delete"));
}

const MARKER: &str = "AQmarkerOfASecretThatNobodyMaySee==";

/// Sends each request that has them with these credentials.
fn with_credentials(
    client: &Client,
    id: &str,
    target: &str,
    credentials: &HashMap<String, String>,
) -> Vec<Case> {
    macro_rules! ask {
        ($($rpc:ident: $request:expr,)*) => {
            vec![$({
                let mut request = $request;
                request.user_credentials = credentials.clone();
                ("user_credentials", client.$rpc(&request).map(drop))
            },)*]
        };
    }
    std::fs::create_dir_all(target).expect("make the target");
    ask! {
        create_volume: volume("one"),
        controller_publish_volume: publish_to(id, "node-1", mount("ext4")),
        node_publish_volume: publish(id, target, mount("ext4")),
        delete_volume: delete(id),
        node_unpublish_volume: unpublish(id, target),
        controller_unpublish_volume: unpublish_from(id, "node-1"),
        delete_volume: delete(id),
        node_unpublish_volume: unpublish(id, target),
    }
}

/// "user_credentials": keys of letters, digits, '-', '_' and '.'; within the limit of a map.
#[test]
fn credentials_that_are_none_are_named() {
    for wrong in [
        map(&[("a key", "x")]),
        map(&[("", "x")]),
        map(&[(MARKER, "x")]),
        map(&[("key", &MARKER.repeat(200))]),
    ] {
        all_refused(|daemon, id| {
            let client = &Client::of(daemon);
            let cases = with_credentials(client, id, &daemon.text("target"), &wrong);
            let told = cases
                .iter()
                .any(|(_, answer)| answer.as_ref().is_err_and(|error| error.message.contains(MARKER)));
            assert!(!told && daemon.log.lines_with(MARKER).is_empty());
            cases
        });
    }
}

/// "user_credentials … is sensitive and MUST be treated as such (not logged, etc.)"
#[test]
fn credentials_are_nowhere() {
    let mut daemon = Daemon::start();
    let credentials = map(&[("userID", MARKER), ("userKey", MARKER), ("other-key_1.2", MARKER)]);
    let id = Client::of(&daemon).create(&volume("one")).expect("create").id;
    let (mut served, mut failed) = (0, 0);
    for _ in 0..2 {
        for (_, answer) in with_credentials(&Client::of(&daemon), &id, &daemon.text("target"), &credentials) {
            match answer {
                Ok(()) => served += 1,
                Err(error) => {
                    assert!(!error.message.contains(MARKER), "{error:?}");
                    failed += 1;
                }
            }
        }
        daemon.restart();
    }
    assert!(served > 5 && failed > 2, "{served} served, {failed} failed");
    let lines = daemon.log.lines_with(MARKER);
    assert!(lines.is_empty(), "in the log: {lines:?}");
    let [state, run_dir, local] = ["state", "run", "local"].map(|name| daemon.text(name));
    let found = run("sh", &["-c", &format!("grep -rlaF -e '{MARKER}' {state} {run_dir} {local} || true")]);
    assert!(found.is_empty(), "in {found}");
}

/// "mount_flags MAY contain sensitive information"
#[test]
fn mount_flags_are_not_repeated() {
    let daemon = Daemon::start();
    let client = Client::of(&daemon);
    let id = client.create(&volume("one")).expect("create").id;
    let with = |flag: &str| {
        client.publish(&publish(
            &id,
            &daemon.text("target"),
            mount_as("ext4", Mode::SINGLE_NODE_WRITER, &[flag]),
        ))
    };
    let unknown = with(MARKER).expect_err("an unknown option");
    with("noatime").expect("publish");
    let other = with(MARKER).expect_err("published otherwise");
    assert_eq!(other.code, Code::ALREADY_EXISTS);
    assert!(![unknown.message, other.message].iter().any(|message| message.contains(MARKER)));
    assert!(daemon.log.lines_with(MARKER).is_empty());
}

/// Bytes that are no request are refused, and the next request is served.
#[test]
fn bytes_that_are_no_request_are_refused() {
    let daemon = Daemon::start();
    let channel = daemon.client().channel;
    for method in [
        "/csi.Identity/GetSupportedVersions",
        "/csi.Controller/CreateVolume",
        "/csi.Controller/ListVolumes",
        "/csi.Node/NodePublishVolume",
        "/csi.Node/GetNodeID",
    ] {
        for bytes in [vec![0xff; 16], vec![0x0a, 0xff, 0xff, 0xff, 0x7f], vec![7; 1000]] {
            refused(raw::call(&channel, method, bytes), Code::INVALID_ARGUMENT, &[]);
        }
    }
    daemon.assert_well();
}
