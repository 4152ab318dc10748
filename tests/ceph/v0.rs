//! CSI 0.1 on RBD: the common tests of its controller, and what a cluster with several nodes adds.

use std::collections::HashMap;
use std::sync::Arc;

use cephlet::proto::csi as wire;
use cephlet::{Change, Journal, RealDisk, Table};
use serde_json::json;

use crate::support::client::Answer;
use crate::support::requests::{self, map};
use crate::support::v0::*;
use crate::support::v0_controller::Subject;
use crate::support::{Code, Corner, refused};

crate::controller_tests!(Subject::rbd);

/// "DeleteVolume": the storage is released, so not while snapshots need it, which in v1 outlive their volume.
#[test]
fn a_volume_with_snapshots_is_not_deleted() {
    let it = Subject::rbd();
    let id = it.create("one").id;
    let v1 = it.daemon.client();
    let taken =
        v1.create_snapshot(&requests::snapshot("s", &id)).expect("snapshot").snapshot.snapshot_id.clone();
    for _ in 0..2 {
        refused(it.client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["csi-snap-", &id]);
    }
    assert_eq!(it.client.list().len(), 1, "it is still a volume");
    v1.delete_snapshot(&requests::delete_snapshot(&taken)).expect("delete the snapshot");
    it.client.delete_volume(&delete(&id)).expect("delete");
    let id = it.create("two").id;
    v1.create_snapshot(&requests::snapshot("t", &id)).expect("snapshot");
    v1.delete_volume(&requests::delete(&id)).expect("v1 deletes it");
    it.client.delete_volume(&delete(&id)).expect("and then it is gone here, too");
}

/// A deletion that a crash interrupted before it changed anything is not carried out: others may have been
/// told since that the volume is there.
#[test]
fn an_interrupted_deletion_is_to_be_asked_for_again() {
    let mut it = Subject::rbd();
    for snapshots_may_outlive in [false, true] {
        let id = it.create("one").id;
        assert!(it.daemon.terminate().success());
        let disk = RealDisk::open(&it.daemon.path("state")).expect("open the state directory");
        let journal = Journal::open(Arc::new(disk), |error| panic!("{error}")).expect("open the journal");
        let begun = json!({"began": 1_763_777_600, "snapshots_may_outlive": snapshots_may_outlive});
        let entry = Change::put(Table::Deletions, format!("volume {id}"), begun);
        journal.write(&[entry]).expect("write the entry");
        drop(journal);
        it.daemon.restart();
        it.client = Client::of(&it.daemon);
        it.daemon.log.await_lines(
            &format!("the deletion of volume {id} was interrupted, it was begun at 2025-11-22T02:13:20Z"),
            1,
        );
        let listed = it.client.list().iter().any(|volume| volume.id == id);
        assert!(listed, "UNSAFE: volume {id} was deleted, and nobody had asked again");
        it.client.delete_volume(&delete(&id)).expect("delete");
    }
    it.corner.expect("a corner").await_empty();
}

/// "ControllerProbe Errors", "NodeProbe Errors": each asks for what its own service needs.
#[test]
fn probes_report_what_is_missing() {
    let corner = Corner::new();
    let on_node = wire::NodeProbeRequest { version: version(), ..Default::default() };
    let on_controller = wire::ControllerProbeRequest { version: version(), ..Default::default() };
    let bare = corner.setup();
    let no_tools = bare.scratch.dir("no-tools").display().to_string();
    let bare = bare.with_tools(no_tools).start();
    refused(
        Client::of(&bare).controller_probe(&on_controller),
        Code::FAILED_PRECONDITION,
        &["rbd was not found"],
    );
    assert!(bare.client().is_ready(), "as v1 has it, the plugin can work");
    let weak = corner.setup().under(&["/usr/bin/setpriv", "--bounding-set=-sys_admin"]).start();
    refused(Client::of(&weak).node_probe(&on_node), Code::FAILED_PRECONDITION, &["CAP_SYS_ADMIN"]);
    Client::of(&weak).controller_probe(&on_controller).expect("the controller can still make volumes");
}

/// "ControllerPublishVolume Errors": 9 with the node that has it, where one node only may.
#[test]
fn a_volume_of_one_node_is_not_published_to_another() {
    let it = Subject::rbd();
    let id = it.create("one").id;
    let publish = |node: &str, mode| {
        it.client.controller_publish_volume(&publish_to(&id, node, block_as(mode))).map(drop)
    };
    publish("node-1", Mode::SINGLE_NODE_WRITER).expect("publish");
    for mode in [Mode::SINGLE_NODE_WRITER, Mode::MULTI_NODE_READER_ONLY] {
        refused(publish("node-2", mode), Code::FAILED_PRECONDITION, &["\"node-1\""]);
    }
    it.client.controller_unpublish_volume(&unpublish_from(&id, "node-2")).expect("it does not have it");
    it.client.controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back");
    publish("node-2", Mode::MULTI_NODE_MULTI_WRITER).expect("publish");
    publish("node-3", Mode::MULTI_NODE_MULTI_WRITER).expect("publish to several");
    let nodes = || {
        it.daemon
            .client()
            .controller_get_volume(&requests::get(&id))
            .expect("get")
            .status
            .published_node_ids
            .clone()
    };
    assert_eq!(nodes(), ["node-2", "node-3"]);
    it.client.controller_unpublish_volume(&unpublish_from(&id, "node-2")).expect("take back from one");
    assert_eq!(nodes(), ["node-3"]);
    publish("node-2", Mode::MULTI_NODE_MULTI_WRITER).expect("publish");
    it.client.controller_unpublish_volume(&unpublish_from(&id, "")).expect("take back from all");
    assert!(nodes().is_empty());
}

/// The requests that have "user_credentials", each with these, in the order of a volume's life; but for
/// NodeUnpublishVolume.
fn with_credentials(
    it: &Subject,
    id: &str,
    credentials: &HashMap<String, String>,
) -> Vec<(&'static str, Answer<()>)> {
    macro_rules! ask {
        ($($rpc:ident: $request:expr,)*) => {
            vec![$((stringify!($rpc), {
                let mut request = $request;
                request.user_credentials = credentials.clone();
                it.client.$rpc(&request).map(drop)
            }),)*]
        };
    }
    ask! {
        create_volume: it.volume("one"),
        controller_publish_volume: publish_to(id, "node-1", block()),
        controller_unpublish_volume: unpublish_from(id, ""),
        node_publish_volume: publish(id, &it.daemon.text("device"), block()),
        delete_volume: delete(id),
    }
}

/// "user_credentials": in every message that has them the daemon uses them for the cluster, even if it has a
/// key of its own; without any, a cluster without a key is not asked at all.
#[test]
fn credentials_reach_the_cluster_in_every_message() {
    let keyed = Subject::rbd();
    let mut it = Subject::rbd_without_key();
    let key = |user: &str, of: &str| {
        map(&[("userID", user), ("userKey", &it.corner.as_ref().expect("a corner").cluster.key(of))])
    };
    let (good, wrong) = (key("cephlet", "cephlet"), key("cephlet", "admin"));
    let id = it
        .client
        .create(&wire::CreateVolumeRequest { user_credentials: good.clone(), ..it.volume("one") })
        .expect("create")
        .id;
    for (subject, credentials, says) in
        [(&it, &HashMap::new(), "userKey"), (&it, &wrong, "cephlet"), (&keyed, &wrong, "cephlet")]
    {
        let id = if std::ptr::eq(subject, &it) { id.clone() } else { keyed.create("one").id };
        for (rpc, answer) in with_credentials(subject, &id, credentials) {
            let refusal = answer.expect_err(rpc);
            assert!(
                refusal.code == Code::UNAUTHENTICATED && refusal.message.contains(says),
                "{rpc}: {refusal:?}"
            );
        }
    }
    for half in [
        map(&[("userID", "cephlet")]),
        map(&[("userKey", &good["userKey"])]),
        map(&[("userID", "a b"), ("userKey", "?")]),
    ] {
        for (rpc, answer) in with_credentials(&it, &id, &half) {
            let refusal = answer.expect_err(rpc);
            assert!(
                refusal.code == Code::INVALID_ARGUMENT && refusal.message.contains("user"),
                "{rpc}: {refusal:?}"
            );
        }
    }
    for (rpc, answer) in with_credentials(&it, &id, &good) {
        // The node may lack the driver. It has then given back what it took for itself, or the deletion would
        // be refused.
        assert!(answer.is_ok() || rpc == "node_publish_volume", "{rpc}: {answer:?}");
    }
    let gone = |user_credentials| wire::NodeUnpublishVolumeRequest {
        user_credentials,
        ..unpublish(&id, &it.daemon.text("device"))
    };
    refused(it.client.node_unpublish_volume(&gone(good)), Code::NOT_FOUND, &[&id]);
    it.client.node_unpublish_volume(&gone(HashMap::new())).expect("nobody knows, and here it is not");
    it.corner.take().expect("a corner").await_empty();
}

/// The programs that the creation ran, each with its first argument only.
fn programs(it: &Subject, method: &str) -> Vec<String> {
    let line = it.daemon.log.await_lines(&format!("{method} "), 1).remove(0);
    let number = line.split_whitespace().nth(2).expect("the call's number").to_string();
    let ended = it.daemon.log.lines_with(&format!("call {number}: `"));
    let programs =
        ended.iter().filter(|line| line.contains("` took ")).filter_map(|line| line.split('`').nth(1));
    programs.map(|command| command.split(' ').next().unwrap_or_default().to_string()).collect()
}

#[test]
fn a_creation_starts_as_many_programs_as_through_v1() {
    let it = Subject::rbd();
    let v1 = crate::support::Daemon::client(&it.daemon);
    // The first creation learns of the pool.
    it.create("zero");
    let corner = it.corner.as_ref().expect("a corner");
    v1.create(&corner.volume("one", 8)).expect("create");
    let through_v1 = programs(&it, "/csi.v1.Controller/CreateVolume");
    let other = Subject::rbd();
    other
        .daemon
        .client()
        .create(&other.corner.as_ref().expect("a corner").volume("zero", 8))
        .expect("create");
    other.create("one");
    assert!(!through_v1.is_empty());
    assert_eq!(programs(&other, "/csi.Controller/CreateVolume"), through_v1);
}
