//! A node gets another name: its volumes are known by both names, and none of them counts as absent.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;
use cephlet::{Change, Journal, RealDisk, Table};

use crate::support::machine::{exists, is_mounted};
use crate::support::requests::*;
use crate::support::{Client, Code, Daemon, MIB, Scratch, Setup, refused};

fn named(scratch: &Arc<Scratch>, name: &str) -> Setup {
    Setup::within(Arc::clone(scratch)).set("CEPHLET_NODE_ID", name)
}

/// `cephlet node rename NEW`, with the settings of a daemon.
fn rename(setup: &Setup, new: &str) -> Output {
    setup.command().args(["node", "rename", new]).stdout(Stdio::piped()).output().expect("run cephlet")
}

#[track_caller]
fn renamed(setup: &Setup, new: &str) -> String {
    let output = rename(setup, new);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn not_renamed(setup: &Setup, new: &str, code: i32) -> String {
    let output = rename(setup, new);
    assert_eq!(output.status.code(), Some(code));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Ends the daemon in order; returns the directory with which a successor goes on.
fn end(mut daemon: Daemon) -> Arc<Scratch> {
    assert!(daemon.terminate().success(), "{}", daemon.log.text());
    Arc::clone(&daemon.setup.scratch)
}

/// The refusal to start names both ways out.
#[track_caller]
fn refuses_to_start(setup: &Setup, old: &str, new: &str) {
    let (_, said) = setup.fail();
    for way in [format!("CEPHLET_NODE_ID={old}"), format!("cephlet node rename {new:?}")] {
        assert!(said.contains(&way), "{way} is missing: {said}");
    }
}

fn files(scratch: &Scratch) -> [PathBuf; 2] {
    [scratch.path("state/node"), scratch.path("local/node")]
}

fn small(name: &str) -> wire::CreateVolumeRequest {
    volume_as(name, 8 * MIB, block())
}

/// The same ID under the other name.
fn now(id: &str) -> String {
    id.replace("local:node-1:", "local:node-2:")
}

fn listed(client: &Client) -> Vec<(String, Vec<String>)> {
    let reply = client.list_volumes(&page(0, "")).expect("list");
    let entry = |entry: wire::list_volumes_response::Entry| {
        (entry.volume.volume_id.clone(), entry.status.published_node_ids.clone())
    };
    reply.entries.into_iter().map(entry).collect()
}

/// A daemon of node-1 with a volume that is mounted, and one that has a snapshot and a copy.
struct Scene {
    scratch: Arc<Scratch>,
    used: String,
    idle: String,
    snapshot: String,
    copy: String,
}

impl Scene {
    fn end_of_node_1() -> Self {
        let daemon = Daemon::start();
        let client = daemon.client();
        let used = client.create(&volume_as("used", 16 * MIB, mount("ext4"))).expect("create").volume_id;
        let (staging, target) = (daemon.text("stage"), daemon.text("target"));
        client.controller_publish_volume(&publish_to(&used, "node-1")).expect("publish to the node");
        client.node_stage_volume(&stage(&used, &staging, mount("ext4"))).expect("stage");
        client.node_publish_volume(&publish(&used, &staging, &target, mount("ext4"))).expect("publish");
        fs::write(daemon.path("target/file"), "data").expect("write");
        let idle = client.create(&small("idle")).expect("create").volume_id;
        let reply = client.create_snapshot(&snapshot("s", &idle)).expect("take a snapshot");
        let snapshot = reply.snapshot.snapshot_id.clone();
        let copy = client.create(&from_snapshot(small("copy"), &snapshot)).expect("copy").volume_id;
        Self { scratch: end(daemon), used, idle, snapshot, copy }
    }
}

#[test]
fn a_start_under_another_name_is_refused_and_changes_nothing() {
    let Scene { scratch, used, .. } = Scene::end_of_node_1();
    let before = files(&scratch).map(|path| fs::read_to_string(path).expect("the name"));
    assert_eq!(before, ["{\"version\":1,\"node\":\"node-1\",\"earlier\":[]}\n"; 2]);
    refuses_to_start(&named(&scratch, "node-2"), "node-1", "node-2");
    refuses_to_start(&named(&scratch, "node-2").set("CEPHLET_SERVICES", "node"), "node-1", "node-2");
    refuses_to_start(&named(&scratch, "node-2").set("CEPHLET_SERVICES", "controller"), "node-1", "node-2");
    assert_eq!(files(&scratch).map(|path| fs::read_to_string(path).expect("the name")), before);
    let daemon = named(&scratch, "node-1").start();
    let client = daemon.client();
    client.node_unpublish_volume(&unpublish(&used, &daemon.text("target"))).expect("unpublish");
    client.node_unstage_volume(&unstage(&used, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn what_is_mounted_is_taken_back_by_the_id_of_the_earlier_name() {
    let Scene { scratch, used, .. } = Scene::end_of_node_1();
    assert!(renamed(&named(&scratch, "node-1"), "node-2").contains("CEPHLET_NODE_ID=node-2"));
    refuses_to_start(&named(&scratch, "node-1"), "node-2", "node-1");
    let daemon = named(&scratch, "node-2").start();
    let client = daemon.client();
    let (staging, target) = (daemon.text("stage"), daemon.text("target"));
    for id in [&used, &now(&used)] {
        refused(client.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &[id]);
        client.controller_publish_volume(&publish_to(id, "node-2")).expect("published to it as before");
        client.node_stage_volume(&stage(id, &staging, mount("ext4"))).expect("stage again");
        client.node_publish_volume(&publish(id, &staging, &target, mount("ext4"))).expect("publish again");
    }
    assert!(listed(&client).contains(&(now(&used), vec!["node-2".to_string()])), "{:?}", listed(&client));
    assert_eq!(fs::read_to_string(daemon.path("target/file")).expect("read"), "data");
    client.node_unpublish_volume(&unpublish(&used, &target)).expect("unpublish");
    assert!(!is_mounted(&daemon.path("target")), "UNSAFE: unpublished, and still mounted");
    client.node_unstage_volume(&unstage(&used, &staging)).expect("unstage");
    daemon.assert_node_is_clean();
    client.controller_unpublish_volume(&unpublish_from(&used, "node-1")).expect("unpublish from the node");
    client.delete_volume(&delete(&used)).expect("delete");
    assert!(!listed(&client).iter().any(|(id, _)| *id == now(&used)));
}

#[test]
fn an_id_of_an_earlier_name_means_the_same_volume_and_snapshot() {
    let Scene { scratch, used, idle, snapshot: taken, copy } = Scene::end_of_node_1();
    renamed(&named(&scratch, "node-1"), "node-2");
    let daemon = named(&scratch, "node-2").start();
    let client = daemon.client();
    let mut ids: Vec<String> = listed(&client).into_iter().map(|(id, _)| id).collect();
    let mut expected = [now(&used), now(&idle), now(&copy)];
    ids.sort();
    expected.sort();
    assert_eq!(ids, expected);

    for (source, snapshot_id) in [(&idle, &taken), (&now(&idle), &now(&taken))] {
        client.validate_volume_capabilities(&validate(source, block())).expect("validate");
        assert_eq!(
            client.create(&from_snapshot(small("copy"), snapshot_id)).expect("again").volume_id,
            now(&copy)
        );
        let again = client.create_snapshot(&snapshot("s", source)).expect("the same snapshot").snapshot;
        assert_eq!((&again.snapshot_id, &again.source_volume_id), (&now(&taken), &now(&idle)));
        let by_source = wire::ListSnapshotsRequest { source_volume_id: source.clone(), ..Default::default() };
        let by_id = wire::ListSnapshotsRequest { snapshot_id: snapshot_id.clone(), ..by_source.clone() };
        for request in [by_source, by_id] {
            let entries = client.list_snapshots(&request).expect("list the snapshots").entries;
            let found: Vec<&str> = entries.iter().map(|entry| &*entry.snapshot.snapshot_id).collect();
            assert_eq!(found, [&now(&taken)]);
        }
    }
    client.controller_expand_volume(&expand(&idle, 16 * MIB)).expect("expand");
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete the snapshot");
    for id in [&idle, &now(&copy)] {
        client.delete_volume(&delete(id)).expect("delete");
    }
    assert_eq!(listed(&client).len(), 1, "{:?}", listed(&client));
    client.node_unpublish_volume(&unpublish(&now(&used), &daemon.text("target"))).expect("unpublish");
    client.node_unstage_volume(&unstage(&now(&used), &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
}

#[test]
fn a_name_can_be_taken_back() {
    let Scene { scratch, used, .. } = Scene::end_of_node_1();
    renamed(&named(&scratch, "node-1"), "node-2");
    let daemon = named(&scratch, "node-2").start();
    let new = daemon.client().create(&small("new")).expect("create").volume_id;
    let scratch = end(daemon);
    renamed(&named(&scratch, "node-2"), "node-1");
    let daemon = named(&scratch, "node-1").start();
    let client = daemon.client();
    client.node_unpublish_volume(&unpublish(&used, &daemon.text("target"))).expect("unpublish");
    client.node_unstage_volume(&unstage(&used, &daemon.text("stage"))).expect("unstage");
    daemon.assert_node_is_clean();
    client.delete_volume(&delete(&new)).expect("delete");
    assert!(!listed(&client).iter().any(|(id, _)| now(id) == new));
}

#[test]
fn a_rename_is_refused_while_a_daemon_runs_and_with_a_wrong_name() {
    let mut daemon = Daemon::start();
    let said = not_renamed(&daemon.setup, "node-2", 5);
    assert!(said.contains(&daemon.text("state")) && said.contains("stop it"), "{said}");
    // Another daemon's state, the same local volumes.
    let other = named(&daemon.setup.scratch, "node-1").set("CEPHLET_STATE_DIR", daemon.text("state-2"));
    let said = not_renamed(&other, "node-2", 5);
    assert!(said.contains(&daemon.text("local")) && said.contains("stop it"), "{said}");
    assert!(daemon.terminate().success());
    for wrong in ["", "delete", &"n".repeat(cephlet::MAX_NODE + 1)] {
        not_renamed(&daemon.setup, wrong, 2);
    }
    let said = not_renamed(&Setup::new(), "node-2", 5);
    assert!(said.contains("CEPHLET_NODE_ID=node-2"), "{said}");
    daemon.restart();
}

/// The directory of local volumes on another host, which has a name of its own.
#[test]
fn local_volumes_move_to_another_host() {
    let daemon = Daemon::start();
    let id = daemon.client().create(&small("one")).expect("create").volume_id;
    let scratch = end(daemon);
    fs::rename(scratch.path("state"), scratch.path("state-of-node-1")).expect("leave the state behind");
    refuses_to_start(&named(&scratch, "node-2"), "node-1", "node-2");
    let scratch = end(named(&scratch, "node-1").start());
    fs::remove_dir_all(scratch.path("state")).expect("the next host has none");
    renamed(&named(&scratch, "node-2"), "node-2");
    let daemon = named(&scratch, "node-2").start();
    assert_eq!(listed(&daemon.client()), [(now(&id), vec![])]);
    daemon.client().delete_volume(&delete(&id)).expect("delete");
    assert!(listed(&daemon.client()).is_empty());
}

/// A controller of RBD alone keeps nothing on its machine, and containers change names.
#[test]
fn a_controller_of_rbd_alone_starts_under_any_name() {
    let rbd = |setup: Setup| {
        let setup = setup.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_CEPH_CONF", "/nonexistent/ceph.conf");
        setup.set("CEPHLET_SERVICES", "controller")
    };
    let scratch = end(rbd(Setup::new()).start());
    let scratch = end(rbd(named(&scratch, "node-2")).start());
    assert!(!exists(&files(&scratch)[0]));
}

/// The node gives back a volume of a cluster under the name under which it published it to itself.
#[test]
fn a_rename_is_refused_while_volumes_of_a_cluster_are_in_use() {
    let scratch = end(Daemon::start());
    let disk = RealDisk::open(&scratch.path("state")).expect("open the state directory");
    let journal = Journal::open(Arc::new(disk), |error| panic!("{error}")).expect("open the journal");
    journal
        .write(&[Change::put(Table::Volumes, "rbd:main:vms::web", serde_json::json!({}))])
        .expect("write a record");
    drop(journal);
    let said = not_renamed(&named(&scratch, "node-1"), "node-2", 5);
    assert!(said.contains("rbd:main:vms::web") && said.contains("unpublish"), "{said}");
    let names = files(&scratch).map(|path| fs::read_to_string(path).expect("the name"));
    assert!(names.iter().all(|name| name.contains("node-1") && !name.contains("node-2")), "{names:?}");
}

#[test]
fn the_command_line_unpublishes_by_either_id() {
    let mut daemon = Daemon::start();
    let line = |daemon: &Daemon, line: &str| daemon.type_in(&format!("cephlet {line}"), &[]).expect(line);
    let mut published = Vec::new();
    for name in ["one", "two"] {
        let id = line(&daemon, &format!("volume create {name} --size 16M")).trim_end().to_string();
        line(&daemon, &format!("volume publish {id} {}", daemon.text(name)));
        published.push((id, daemon.text(name)));
    }
    let scratch = end(daemon);
    renamed(&named(&scratch, "node-1"), "node-2");
    daemon = named(&scratch, "node-2").start();
    published[1].0 = now(&published[1].0);
    for (id, target) in &published {
        line(&daemon, &format!("volume unpublish {id} {target}"));
        line(&daemon, &format!("volume delete {id}"));
    }
    daemon.assert_node_is_clean();
    assert!(listed(&daemon.client()).is_empty());
}
