//! One line an rpc in the log, and no secret anywhere.

mod support;

use std::collections::HashMap;

use cephlet::grpc::proto::csi_v1 as wire;
use protobuf::MessageField;
use support::machine::run;
use support::requests::*;
use support::{Daemon, MIB};

const KEY: &str = "userKey";
const MARKER: &str = "AQmarkerOfASecretThatNobodyMaySee==";

fn secrets() -> HashMap<String, String> {
    map(&[(KEY, MARKER), ("userID", MARKER)])
}

/// Every rpc that takes secrets, with them: once for a volume that is there, once for one that is not.
fn tell_secrets(daemon: &Daemon) -> usize {
    let client = daemon.client();
    let made = client.create(&wire::CreateVolumeRequest { secrets: secrets(), ..volume("one") }).expect("create");
    let taken = client.create_snapshot(&wire::CreateSnapshotRequest { secrets: secrets(), ..snapshot("s", &made.volume_id) });
    let taken = taken.expect("snapshot").snapshot.snapshot_id.clone();
    let mut failures = 0;
    let absent = "local:node-1:::csi-vol-00:11";
    for (id, snapshot_id) in [(absent, "local:node-1:::11@0011223344556677"), (made.volume_id.as_str(), taken.as_str())] {
        let (staging, target) = (daemon.text("stage"), daemon.text("target"));
        let secret = secrets;
        let mut note = |failed: bool| failures += usize::from(failed);
        note(
            client
                .controller_publish_volume(&wire::ControllerPublishVolumeRequest {
                    secrets: secret(),
                    ..publish_to(id, "node-1")
                })
                .is_err(),
        );
        note(
            client
                .validate_volume_capabilities(&wire::ValidateVolumeCapabilitiesRequest {
                    secrets: secret(),
                    ..validate(id, block())
                })
                .is_err(),
        );
        note(
            client
                .list_snapshots(&wire::ListSnapshotsRequest {
                    secrets: secret(),
                    snapshot_id: snapshot_id.into(),
                    ..Default::default()
                })
                .is_err(),
        );
        note(client.get_snapshot(&wire::GetSnapshotRequest { secrets: secret(), ..get_snapshot(snapshot_id) }).is_err());
        note(
            client
                .controller_expand_volume(&wire::ControllerExpandVolumeRequest { secrets: secret(), ..expand(id, 40 * MIB) })
                .is_err(),
        );
        note(
            client
                .controller_modify_volume(&wire::ControllerModifyVolumeRequest { secrets: secret(), ..modify(id, &[("a", "b")]) })
                .is_err(),
        );
        note(
            client
                .node_stage_volume(&wire::NodeStageVolumeRequest { secrets: secret(), ..stage(id, &staging, mount("ext4")) })
                .is_err(),
        );
        note(
            client
                .node_publish_volume(&wire::NodePublishVolumeRequest {
                    secrets: secret(),
                    ..publish(id, &staging, &target, mount("ext4"))
                })
                .is_err(),
        );
        note(
            client.node_expand_volume(&wire::NodeExpandVolumeRequest { secrets: secret(), ..node_expand(id, &target) }).is_err(),
        );
        note(client.node_unpublish_volume(&unpublish(id, &target)).is_err());
        note(client.node_unstage_volume(&unstage(id, &staging)).is_err());
        note(client.delete_volume(&wire::DeleteVolumeRequest { secrets: secret(), ..delete(id) }).is_err());
        note(
            client
                .controller_unpublish_volume(&wire::ControllerUnpublishVolumeRequest {
                    secrets: secret(),
                    ..unpublish_from(id, "node-1")
                })
                .is_err(),
        );
        note(client.delete_snapshot(&wire::DeleteSnapshotRequest { secrets: secret(), ..delete_snapshot(snapshot_id) }).is_err());
        note(client.delete_volume(&wire::DeleteVolumeRequest { secrets: secret(), ..delete(id) }).is_err());
    }
    failures
}

/// Asserts that the marker is in no line of the log and in no file but the content of volumes.
#[track_caller]
fn nothing_leaked(daemon: &Daemon) {
    let lines = daemon.log.lines_with(MARKER);
    assert!(lines.is_empty(), "in the log: {lines:?}");
    let [state, run_dir, local] = ["state", "run", "local"].map(|name| daemon.text(name));
    let found = run("sh", &["-c", &format!("grep -rlaF -e '{MARKER}' {state} {run_dir} {local} || true")]);
    assert!(found.is_empty(), "in {found}");
}

#[test]
fn secrets_are_nowhere() {
    let mut daemon = Daemon::start();
    assert!(tell_secrets(&daemon) > 5, "some of it has to fail");
    let client = daemon.client();
    // Refused before they are even looked at.
    let much: HashMap<String, String> = map(&[(KEY, &MARKER.repeat(200))]);
    assert!(client.create(&wire::CreateVolumeRequest { secrets: much, ..volume("two") }).is_err());
    assert!(client.create(&wire::CreateVolumeRequest { secrets: secrets(), ..volume("") }).is_err());
    nothing_leaked(&daemon);
    daemon.restart();
    nothing_leaked(&daemon);
}

#[test]
fn mount_flags_count_as_secrets() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    let flags = mount_as("ext4", AccessModeOf::SINGLE_NODE_WRITER, &[MARKER]);
    let answer = client.node_stage_volume(&stage(&id, &daemon.text("stage"), flags)).expect_err("an unknown option");
    assert!(!answer.message.contains(MARKER), "{}", answer.message);
    let lines = daemon.log.lines_with(MARKER);
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn each_rpc_is_one_line() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    client.controller_get_volume(&get(&id)).expect("get");
    let _ = client.controller_get_volume(&get("absent"));
    client.node_stage_volume(&stage(&id, &daemon.text("stage"), mount("ext4"))).expect("stage");
    client.node_unstage_volume(&unstage(&id, &daemon.text("stage"))).expect("unstage");
    let expected = [
        ("/csi.v1.Controller/CreateVolume ", 1, vec!["one", " OK ", " ms"]),
        ("/csi.v1.Controller/ControllerGetVolume ", 2, vec![" ms"]),
        ("/csi.v1.Node/NodeStageVolume ", 1, vec![&id, " OK ", " ms"]),
        ("/csi.v1.Node/NodeUnstageVolume ", 1, vec![&id, " OK ", " ms"]),
    ];
    for (method, count, parts) in expected {
        let lines = daemon.log.await_lines(method, count);
        assert_eq!(lines.len(), count, "{lines:?}");
        assert!(lines.iter().all(|line| parts.iter().all(|part| line.contains(part))), "{lines:?}");
    }
    let failed = daemon.log.await_lines("NOT_FOUND", 1);
    assert!(failed.len() == 1 && failed[0].contains("absent"), "{failed:?}");
}

#[test]
fn topology_and_contexts_need_no_secrets() {
    let daemon = Daemon::start();
    let request = wire::CreateVolumeRequest { secrets: secrets(), ..volume("one") };
    let first = daemon.client().create(&request).expect("create");
    // Other secrets are still the same request: they say who asks, not what is asked.
    let other = wire::CreateVolumeRequest { secrets: map(&[(KEY, "another")]), ..request };
    assert_eq!(daemon.client().create(&other).expect("again"), first);
    assert_eq!(MessageField::some(first), daemon.client().list_volumes(&page(0, "")).expect("list").entries[0].volume);
}

#[test]
fn a_volume_given_out_in_another_way_is_refused_without_its_flags() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    let as_with = |flag: &str| {
        let capability = mount_as("ext4", AccessModeOf::SINGLE_NODE_WRITER, &[flag]);
        wire::ControllerPublishVolumeRequest { volume_capability: Some(capability).into(), ..publish_to(&id, "node-1") }
    };
    client.controller_publish_volume(&as_with(MARKER)).expect("publish");
    let answer = client.controller_publish_volume(&as_with("noatime")).expect_err("it is published otherwise");
    assert!(answer.message.contains("1 mount flags") && !answer.message.contains(MARKER), "{}", answer.message);
    assert!(daemon.log.lines_with(MARKER).is_empty());
}
