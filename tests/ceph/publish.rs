//! RBD volumes are published and unpublished: which nodes may share one, and which clients prevent it.

use cephlet::proto::csi_v1 as wire;
use protobuf::MessageField;

use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, MIB, await_that, refused};

use AccessModeOf as Mode;

/// A volume that is published to nodes.
struct Wanted {
    corner: Corner,
    daemon: Daemon,
    client: Client,
    id: String,
}

impl Wanted {
    fn new() -> Self {
        let corner = Corner::new();
        let daemon = corner.start();
        let client = daemon.client();
        let id = client.create(&corner.volume("wanted", 8)).expect("create").volume_id;
        Self { corner, daemon, client, id }
    }

    fn publish(
        &self,
        node: &str,
        capability: wire::VolumeCapability,
    ) -> Answer<wire::ControllerPublishVolumeResponse> {
        self.client.controller_publish_volume(&request(&self.id, node, capability))
    }

    fn unpublish(&self, node: &str) {
        self.client.controller_unpublish_volume(&unpublish_from(&self.id, node)).expect("unpublish");
    }

    fn nodes(&self) -> Vec<String> {
        self.client.controller_get_volume(&get(&self.id)).expect("get").status.published_node_ids.clone()
    }
}

fn request(id: &str, node: &str, capability: wire::VolumeCapability) -> wire::ControllerPublishVolumeRequest {
    wire::ControllerPublishVolumeRequest {
        volume_capability: MessageField::some(capability),
        ..publish_to(id, node)
    }
}

#[test]
fn a_single_writer_is_alone() {
    let mut wanted = Wanted::new();
    let first = wanted.publish("node-1", mount("ext4")).expect("publish");
    for _ in 0..2 {
        assert_eq!(wanted.publish("node-1", mount("ext4")).expect("again"), first);
        let said = refused(
            wanted.publish("node-2", mount("ext4")),
            Code::FAILED_PRECONDITION,
            &["\"node-1\"", &wanted.id],
        );
        assert!(said.contains("unpublish"), "{said}");
        refused(
            wanted.publish("node-2", block_as(Mode::MULTI_NODE_READER_ONLY)),
            Code::FAILED_PRECONDITION,
            &["\"node-1\""],
        );
        refused(wanted.publish("node-1", block()), Code::ALREADY_EXISTS, &[&wanted.id]);
        let read_only = wire::ControllerPublishVolumeRequest {
            readonly: true,
            ..request(&wanted.id, "node-1", mount("ext4"))
        };
        refused(wanted.client.controller_publish_volume(&read_only), Code::ALREADY_EXISTS, &[&wanted.id]);
        assert_eq!(wanted.nodes(), ["node-1"]);
        wanted.daemon.restart();
        wanted.client = wanted.daemon.client();
    }
    wanted.unpublish("node-2");
    assert_eq!(wanted.nodes(), ["node-1"]);
    for _ in 0..2 {
        wanted.unpublish("node-1");
    }
    wanted.publish("node-2", mount("ext4")).expect("it is free");
    assert_eq!(wanted.nodes(), ["node-2"]);
}

#[test]
fn the_publish_context_has_what_the_node_needs() {
    let wanted = Wanted::new();
    let context = wanted.publish("node-1", block()).expect("publish").publish_context;
    let info = wanted.corner.info(&wanted.id);
    assert_eq!(context.get("imageId").map(String::as_str), info["id"].as_str());
    let features = context.get("imageFeatures").expect("features");
    assert!(features.contains("layering") && features.contains("exclusive-lock"), "{features}");
    assert!(context.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() < 4096, "{context:?}");
}

#[test]
fn what_many_may_have_many_have() {
    let wanted = Wanted::new();
    for mode in [Mode::MULTI_NODE_MULTI_WRITER, Mode::MULTI_NODE_READER_ONLY] {
        for node in ["node-1", "node-2", "node-3", "node-2"] {
            wanted.publish(node, block_as(mode)).unwrap_or_else(|error| panic!("{mode:?} {node}: {error:?}"));
        }
        assert_eq!(wanted.nodes(), ["node-1", "node-2", "node-3"]);
        refused(wanted.publish("node-4", block()), Code::FAILED_PRECONDITION, &["node-"]);
        wanted.unpublish("node-2");
        assert_eq!(wanted.nodes(), ["node-1", "node-3"]);
        wanted.unpublish("");
        assert!(wanted.nodes().is_empty());
    }
}

#[test]
fn one_writes_and_others_read() {
    let wanted = Wanted::new();
    let mode = Mode::MULTI_NODE_SINGLE_WRITER;
    wanted.publish("node-1", block_as(mode)).expect("the writer");
    let reader = |node: &str| {
        let request = wire::ControllerPublishVolumeRequest {
            readonly: true,
            ..request(&wanted.id, node, block_as(mode))
        };
        wanted.client.controller_publish_volume(&request)
    };
    reader("node-2").expect("a reader");
    refused(wanted.publish("node-3", block_as(mode)), Code::FAILED_PRECONDITION, &["\"node-1\""]);
    wanted.unpublish("node-1");
    wanted.publish("node-3", block_as(mode)).expect("another writer beside the reader");
    assert_eq!(wanted.nodes(), ["node-2", "node-3"]);
}

#[test]
fn a_client_without_a_publication_is_in_the_way() {
    let wanted = Wanted::new();
    let open = wanted.corner.hold_open(&wanted.id);
    refused(wanted.publish("node-1", block()), Code::FAILED_PRECONDITION, &[open.address(), &wanted.id]);
    assert!(wanted.nodes().is_empty());
    refused(
        wanted.client.delete_volume(&delete(&wanted.id)),
        Code::FAILED_PRECONDITION,
        &[open.address(), &wanted.id],
    );
    // An open client does not prevent a mode that shares the volume.
    wanted.publish("node-1", block_as(Mode::MULTI_NODE_MULTI_WRITER)).expect("publish");
    wanted.unpublish("node-1");
    drop(open);
    await_that("the dead client is forgotten", || match wanted.publish("node-1", block()) {
        Ok(_) => Ok(()),
        Err(error) => match error.code {
            Code::FAILED_PRECONDITION | Code::UNAVAILABLE => Err(error.message),
            _ => panic!("{error:?}"),
        },
    });
}

#[test]
fn a_client_in_the_way_of_a_volume_with_snapshots_and_of_a_large_one() {
    let wanted = Wanted::new();
    let client = &wanted.client;
    client.create_snapshot(&snapshot("in-the-way", &wanted.id)).expect("snapshot");
    let large = client.create(&wanted.corner.volume("large", 8 << 10)).expect("create").volume_id;
    for id in [&wanted.id, &large] {
        let open = wanted.corner.hold_open(id);
        refused(client.delete_volume(&delete(id)), Code::FAILED_PRECONDITION, &[open.address(), id]);
        client.controller_get_volume(&get(id)).expect("it is there");
        assert!(wanted.corner.images().iter().any(|it| it == crate::support::object_of(id)));
    }
}

#[test]
fn a_published_volume_is_not_deleted() {
    let wanted = Wanted::new();
    wanted.publish("node-1", block()).expect("publish");
    for _ in 0..2 {
        let said = refused(
            wanted.client.delete_volume(&delete(&wanted.id)),
            Code::FAILED_PRECONDITION,
            &["\"node-1\""],
        );
        assert!(said.contains(&wanted.id), "{said}");
    }
    wanted.unpublish("node-1");
    wanted.client.delete_volume(&delete(&wanted.id)).expect("delete");
    wanted.unpublish("node-1");
    wanted.unpublish("");
    refused(wanted.publish("node-1", block()), Code::NOT_FOUND, &[&wanted.id]);
    wanted.corner.await_empty();
}

#[test]
fn what_is_used_may_grow_and_be_copied() {
    let wanted = Wanted::new();
    wanted.publish("node-1", block()).expect("publish");
    let client = &wanted.client;
    client.controller_expand_volume(&expand(&wanted.id, 16 * MIB)).expect("expand");
    client.controller_modify_volume(&modify(&wanted.id, &[("iops", "100")])).expect("modify");
    let taken =
        client.create_snapshot(&snapshot("used", &wanted.id)).expect("snapshot").snapshot.snapshot_id.clone();
    client.create(&from_snapshot(wanted.corner.volume("copy", 16), &taken)).expect("copy");
    client.create(&from_volume(wanted.corner.volume("clone", 16), &wanted.id)).expect("clone");
    assert_eq!(wanted.nodes(), ["node-1"]);
}

#[test]
fn nodes_that_never_were_are_not_found() {
    let wanted = Wanted::new();
    for node in ["a\nb", &"x".repeat(200)] {
        refused(wanted.publish(node, block()), Code::NOT_FOUND, &[]);
    }
    let absent = format!("rbd:main:rbd:{}:none:10ab", wanted.corner.namespace);
    refused(
        wanted.client.controller_publish_volume(&request(&absent, "node-1", block())),
        Code::NOT_FOUND,
        &[&absent],
    );
    refused(
        wanted.client.controller_publish_volume(&request("x", "node-1", block())),
        Code::NOT_FOUND,
        &["x"],
    );
    assert!(wanted.corner.objects().iter().all(|name| !name.contains("10ab")), "a lock on nothing is left");
}

#[test]
fn a_lock_of_rbd_itself_is_none_of_ours() {
    // As `rbd bench` takes it while it writes: librbd's exclusive lock lies on the same object under another
    // name.
    let corner = Corner::new();
    let daemon = corner.start();
    let (client, image) = (daemon.client(), corner.spec("locked"));
    corner.cluster.rbd(&["create", "--size", "8M", &image]);
    corner.cluster.rbd(&["lock", "add", &image, "somebody"]);
    let id = format!("rbd:main:rbd:{}:locked", corner.namespace);
    client.controller_publish_volume(&request(&id, "node-1", block())).expect("publish");
    client.controller_unpublish_volume(&unpublish_from(&id, "node-1")).expect("unpublish");
    assert!(corner.cluster.rbd(&["lock", "ls", &image]).contains("somebody"));
}
