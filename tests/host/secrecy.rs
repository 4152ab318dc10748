//! One line an rpc in the log, and no secret anywhere.

use std::collections::HashMap;

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::machine::run;
use crate::support::requests::*;
use crate::support::{Client, Daemon, MIB};

const KEY: &str = "userKey";
const MARKER: &str = "AQmarkerOfASecretThatNobodyMaySee==";

fn secrets() -> HashMap<String, String> {
    map(&[(KEY, MARKER), ("userID", MARKER)])
}

/// Sends a request with secrets in it; tells whether it failed.
macro_rules! fails {
    ($client:ident.$rpc:ident($request:expr)) => {{
        let mut request = $request;
        request.secrets = secrets();
        $client.$rpc(&request).is_err()
    }};
}

/// Sends every rpc that takes secrets, with secrets: once for a volume that exists, once for one that does
/// not. Returns how many failed.
fn tell_secrets(daemon: &Daemon) -> usize {
    let client = daemon.client();
    let made = client
        .create(&wire::CreateVolumeRequest { secrets: secrets(), ..volume("one") })
        .expect("create")
        .volume_id;
    let taken =
        client.create_snapshot(&wire::CreateSnapshotRequest { secrets: secrets(), ..snapshot("s", &made) });
    let taken = taken.expect("snapshot").snapshot.snapshot_id.clone();
    let volumes = [
        ("local:node-1:::csi-vol-00:11", "local:node-1:::11@abcdefghij234-zyxw7654"),
        (made.as_str(), taken.as_str()),
    ];
    let tell = |(id, snapshot_id)| {
        [
            ask_the_controller(&client, id, snapshot_id),
            ask_the_node(daemon, &client, id),
            take_away(&client, id, snapshot_id),
        ]
    };
    volumes.into_iter().flat_map(tell).flatten().filter(|failed| *failed).count()
}

fn ask_the_controller(client: &Client, id: &str, snapshot_id: &str) -> Vec<bool> {
    let list = wire::ListSnapshotsRequest { snapshot_id: snapshot_id.into(), ..Default::default() };
    vec![
        fails!(client.controller_publish_volume(publish_to(id, "node-1"))),
        fails!(client.validate_volume_capabilities(validate(id, block()))),
        fails!(client.list_snapshots(list)),
        fails!(client.get_snapshot(get_snapshot(snapshot_id))),
        fails!(client.controller_expand_volume(expand(id, 40 * MIB))),
        fails!(client.controller_modify_volume(modify(id, &[("a", "b")]))),
    ]
}

fn ask_the_node(daemon: &Daemon, client: &Client, id: &str) -> Vec<bool> {
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    vec![
        fails!(client.node_stage_volume(stage(id, &staging, mount("ext4")))),
        fails!(client.node_publish_volume(publish(id, &staging, &target, mount("ext4")))),
        fails!(client.node_expand_volume(node_expand(id, &target))),
        client.node_unpublish_volume(&unpublish(id, &target)).is_err(),
        client.node_unstage_volume(&unstage(id, &staging)).is_err(),
    ]
}

fn take_away(client: &Client, id: &str, snapshot_id: &str) -> Vec<bool> {
    vec![
        fails!(client.delete_volume(delete(id))),
        fails!(client.controller_unpublish_volume(unpublish_from(id, "node-1"))),
        fails!(client.delete_snapshot(delete_snapshot(snapshot_id))),
        fails!(client.delete_volume(delete(id))),
    ]
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
    let answer =
        client.node_stage_volume(&stage(&id, &daemon.text("stage"), flags)).expect_err("an unknown option");
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
    // A request with other secrets is still the same: secrets say who asks, not what is asked.
    let other = wire::CreateVolumeRequest { secrets: map(&[(KEY, "another")]), ..request };
    assert_eq!(daemon.client().create(&other).expect("again"), first);
    assert_eq!(
        MessageField::some(first),
        daemon.client().list_volumes(&page(0, "")).expect("list").entries[0].volume
    );
}

#[test]
fn a_volume_published_in_another_way_is_refused_without_its_flags() {
    let daemon = Daemon::start();
    let client = daemon.client();
    let id = client.create(&volume("one")).expect("create").volume_id;
    let as_with = |flag: &str| {
        let capability = mount_as("ext4", AccessModeOf::SINGLE_NODE_WRITER, &[flag]);
        wire::ControllerPublishVolumeRequest {
            volume_capability: Some(capability).into(),
            ..publish_to(&id, "node-1")
        }
    };
    client.controller_publish_volume(&as_with(MARKER)).expect("publish");
    let answer =
        client.controller_publish_volume(&as_with("noatime")).expect_err("it is published otherwise");
    assert!(
        answer.message.contains("1 mount flags") && !answer.message.contains(MARKER),
        "{}",
        answer.message
    );
    assert!(daemon.log.lines_with(MARKER).is_empty());
}
