//! CSI 0.1 on the local backend: identity, versions, and the controller. The tests name the sections whose
//! MUSTs they check.

use std::collections::HashMap;

use cephlet::proto::csi as wire;
use protobuf::MessageField;

use crate::support::client::Answer;
use crate::support::v0::*;
use crate::support::v0_controller::{Subject, longest_node_id_fits};
use crate::support::{Code, Daemon, Setup, raw, refused, requests};

crate::controller_tests!(Subject::local);

/// "GetSupportedVersions": needs no version, and returns those that are served.
#[test]
fn the_supported_versions_need_no_version() {
    let daemon = Daemon::start();
    let told = Client::of(&daemon)
        .get_supported_versions(&wire::GetSupportedVersionsRequest::default())
        .expect("versions");
    assert_eq!(told.supported_versions, [version().unwrap()]);
}

/// Sends every request that has a version, with this version; returns the answers.
fn in_version(client: &Client, version: MessageField<wire::Version>) -> Vec<(&'static str, Answer<()>)> {
    macro_rules! ask {
        ($($rpc:ident: $request:expr,)*) => {
            vec![$((stringify!($rpc), {
                let mut request = std::convert::identity($request);
                request.version = version.clone();
                client.$rpc(&request).map(drop)
            }),)*]
        };
    }
    ask! {
        get_plugin_info: wire::GetPluginInfoRequest::default(),
        create_volume: volume("one"),
        delete_volume: delete("x"),
        controller_publish_volume: publish_to("x", "node-1", block()),
        controller_unpublish_volume: unpublish_from("x", "node-1"),
        validate_volume_capabilities: validate("x", &[block()]),
        list_volumes: page(0, ""),
        get_capacity: capacity(),
        controller_probe: wire::ControllerProbeRequest::default(),
        controller_get_capabilities: wire::ControllerGetCapabilitiesRequest::default(),
        node_publish_volume: publish("x", "/x", block()),
        node_unpublish_volume: unpublish("x", "/x"),
        get_node_id: wire::GetNodeIDRequest::default(),
        node_probe: wire::NodeProbeRequest::default(),
        node_get_capabilities: wire::NodeGetCapabilitiesRequest::default(),
    }
}

/// "Error Scheme": 3 for a version that is missing or not supported, with those that are.
#[test]
fn other_versions_are_refused_by_every_rpc() {
    let daemon = Daemon::start();
    let client = Client::of(&daemon);
    for asked in [(0, 0, 0), (0, 1, 1), (0, 2, 0), (1, 0, 0), (0, 1, u32::MAX)] {
        let name = format!("version {}.{}.{} ", asked.0, asked.1, asked.2);
        for (rpc, answer) in in_version(&client, version_of(asked.0, asked.1, asked.2)) {
            let said = refused(answer, Code::INVALID_ARGUMENT, &["0.1.0", &name]);
            assert!(said.ends_with("supported versions: 0.1.0"), "{rpc}: {said}");
        }
    }
    for (rpc, answer) in in_version(&client, MessageField::none()) {
        let said = refused(answer, Code::INVALID_ARGUMENT, &["version is missing"]);
        assert!(said.ends_with("supported versions: 0.1.0"), "{rpc}: {said}");
    }
    let served = in_version(&client, version())
        .into_iter()
        .filter(|(_, answer)| answer.as_ref().is_err_and(|failure| failure.code == Code::INVALID_ARGUMENT));
    assert_eq!(served.map(|(rpc, _)| rpc).collect::<Vec<_>>(), [] as [&str; 0]);
}

/// "Available Services": services that a copy does not serve are not implemented, and neither is the package
/// between this one and v1.
#[test]
fn what_is_not_served_is_unimplemented() {
    for (services, absent) in [("node", "controller"), ("controller", "node")] {
        let daemon = Setup::new().set("CEPHLET_SERVICES", services).start();
        let client = Client::of(&daemon);
        client.get_supported_versions(&wire::GetSupportedVersionsRequest::default()).expect("versions");
        for (rpc, answer) in in_version(&client, version()) {
            let is_nodes = rpc.starts_with("node") || rpc == "get_node_id";
            let is_absent = rpc != "get_plugin_info" && is_nodes == (absent == "node");
            match answer {
                answer if is_absent => {
                    drop(refused(answer, Code::UNIMPLEMENTED, &[absent, "CEPHLET_SERVICES"]))
                }
                answer => {
                    assert!(
                        answer.is_ok() || answer.as_ref().is_err_and(|it| it.code == Code::NOT_FOUND),
                        "{rpc}: {answer:?}"
                    )
                }
            }
        }
    }
    let daemon = Daemon::start();
    let answer = raw::call(&daemon.client().channel, "/csi.v0.Identity/Probe", Vec::new());
    assert_eq!(answer.expect_err("nobody speaks it").code, Code::UNIMPLEMENTED);
}

/// "ControllerProbe Errors", "NodeProbe Errors": 9 where something is missing that the one or the other
/// needs.
#[test]
fn probes_report_what_is_missing() {
    let on_node = wire::NodeProbeRequest { version: version(), ..Default::default() };
    let on_controller = wire::ControllerProbeRequest { version: version(), ..Default::default() };
    Client::of(&Daemon::start()).node_probe(&on_node).expect("healthy");
    let without = || Setup::new().under(&["/usr/bin/setpriv", "--bounding-set=-sys_admin"]);
    let node = without().set("CEPHLET_SERVICES", "node").start();
    refused(Client::of(&node).node_probe(&on_node), Code::FAILED_PRECONDITION, &["CAP_SYS_ADMIN"]);
    let both = without().start();
    refused(Client::of(&both).node_probe(&on_node), Code::FAILED_PRECONDITION, &["CAP_SYS_ADMIN"]);
    Client::of(&both).controller_probe(&on_controller).expect("the controller can still make volumes");
    assert!(both.client().is_ready(), "as v1 has it, the plugin can work");
}

/// "GetNodeID": what it tells is what ControllerPublishVolume takes, at most 128 bytes.
#[test]
fn the_longest_node_id_fits() {
    longest_node_id_fits();
}

/// "DeleteVolume": the storage is released. A local snapshot is a copy of its own, and keeps none of it.
#[test]
fn a_local_volume_with_snapshots_is_deleted() {
    let it = Subject::local();
    let id = it.create("one").id;
    it.daemon.client().create_snapshot(&requests::snapshot("s", &id)).expect("snapshot");
    it.client.delete_volume(&delete(&id)).expect("delete");
    assert!(crate::support::machine::images(&it.daemon.local_dir().join("volumes")).is_empty());
}

/// "VolumeInfo": the same attributes in every answer, through either protocol.
#[test]
fn attributes_are_always_the_same() {
    let it = Subject::local();
    let made = it.client.create(&volume_as("one", mib(32), mount("ext4"))).expect("create");
    assert_eq!(made.attributes, HashMap::from([("fsType".to_string(), "ext4".to_string())]));
    assert_eq!(it.client.list(), std::slice::from_ref(&made));
    let same = it.daemon.client().create(&requests::volume("one")).expect("the same through v1");
    assert_eq!((&same.volume_id, &same.volume_context), (&made.id, &made.attributes));
}
