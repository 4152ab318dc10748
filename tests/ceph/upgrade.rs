//! Today's daemon in a cluster as cephlet 0.1.0 left it. What that wrote stands here word for word: names,
//! metadata, and what its locks say. None of it may be derived from the code of today.

use cephlet::proto::csi_v1 as wire;
use sha2::{Digest, Sha256};

use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, MIB, await_that, refused};

/// The names that 0.1.0 gave to volumes of these names.
const PLAIN: &str = "csi-vol-6242995398abcdb85c2bcfb0aef409e4";
const COPY: &str = "csi-vol-5687faa2bdd67a2e2af53105c973c0c3";
const KEPT: &str = "csi-vol-cdefeafec86ccbbf562e6b8e32be9ee6";
const MANY: &str = "csi-vol-e2be1f6199ee318228e12e69de77910b";
const READERS: &str = "csi-vol-b54e8fd94cc154f02b1181297a09034c";
const WRITER: &str = "csi-vol-0a89da8a21dbb948029daf0faac0f8ad";
/// And to the snapshots `of-plain` and `of-kept`.
const OF_PLAIN: &str = "19f6b35419d27fe8";
const OF_KEPT: &str = "ad3b503fc257731e";

/// A cluster, written to as 0.1.0 did.
struct Past {
    corner: Corner,
    /// What 0.1.0 called the controller of `node-1` with the state directory of the daemon to come.
    tag: String,
}

impl Past {
    fn place(&self) -> String {
        format!("rbd:main:rbd:{}", self.corner.namespace)
    }

    fn id_of(&self, image: &str) -> String {
        self.corner.info(image)["id"].as_str().expect("an id").to_string()
    }

    /// The ID of a volume.
    fn volume(&self, image: &str) -> String {
        format!("{}:{image}:{}", self.place(), self.id_of(image))
    }

    /// An image of 16 MiB for a request of this name, with this mode and access.
    fn record(&self, image: &str, name: &str, capability: &str, source: &str) {
        let place = format!(r#"{{"namespace":"{}","pool":"rbd"}}"#, self.corner.namespace);
        let asked = format!(
            r#"{{"name":"{name}","required":16777216,"limit":0,"capabilities":[{capability}],"parameters":{place},"mutable_parameters":{{}},"source":{source},"fs_type":null}}"#
        );
        let value = format!(r#"{{"version":1,"asked":{asked}}}"#);
        self.corner.cluster.rbd(&["image-meta", "set", &self.corner.spec(image), "cephlet.request", &value]);
    }

    fn make(&self, image: &str, name: &str, capability: &str) {
        self.corner.cluster.rbd(&["create", "--size", "16M", &self.corner.spec(image)]);
        self.record(image, name, capability, "null");
    }

    fn clone_of(&self, source: &str, snapshot: &str, image: &str) {
        let from = format!("{}@{snapshot}", self.corner.spec(source));
        let format = "--rbd-default-clone-format=2";
        self.corner.cluster.rbd(&["clone", format, &from, &self.corner.spec(image)]);
    }

    fn snap(&self, image: &str, snapshot: &str) {
        let spec = format!("{}@{snapshot}", self.corner.spec(image));
        self.corner.cluster.rbd(&["snap", "create", "--no-progress", &spec]);
    }

    /// A snapshot that was asked for, and the lock that is the claim on its name.
    fn take(&self, image: &str, digits: &str, name: &str) {
        self.snap(image, &format!("csi-snap-{digits}"));
        let says = format!("{} {image} {name}", self.tag);
        self.lock(&format!("cephlet.snap.{digits}"), &self.id_of(image), &says, None);
    }

    fn publish(&self, image: &str, node: &str, tag: &str, says: &str) {
        self.lock(&format!("rbd_header.{}", self.id_of(image)), node, says, Some(tag));
    }

    /// A lock; a shared one if it has a tag.
    fn lock(&self, object: &str, cookie: &str, description: &str, tag: Option<&str>) {
        let words = ["--pool=rbd", "lock", "get", object, "cephlet"].map(String::from);
        let options = [
            format!("--namespace={}", self.corner.namespace),
            format!("--lock-cookie={cookie}"),
            format!("--lock-description={description}"),
        ];
        let shared = tag.map(|tag| ["--lock-type=shared".to_string(), format!("--lock-tag={tag}")]);
        let all: Vec<String> = words.into_iter().chain(options).chain(shared.into_iter().flatten()).collect();
        self.corner.cluster.rados(&all.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

const MOUNT: &str = r#"{"mount":{"fs_type":"","flags":[]},"mode":"single_node_writer"}"#;
const BLOCK: &str = r#"{"mount":null,"mode":"single_node_writer"}"#;

/// Everything that 0.1.0 leaves in a cluster, and a daemon of today that begins to serve it.
fn successor() -> (Past, Daemon) {
    let corner = Corner::new();
    let setup = corner.setup();
    let state = setup.scratch.path("state");
    let digest = Sha256::digest(format!("node-1\0{}", state.display()));
    let tag = digest[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let past = Past { corner, tag };
    past.write_volumes();
    past.write_publications();
    past.write_leftovers();
    let daemon = setup.start();
    (past, daemon)
}

impl Past {
    fn write_volumes(&self) {
        self.make(PLAIN, "plain", MOUNT);
        self.take(PLAIN, OF_PLAIN, "of-plain");
        self.clone_of(PLAIN, &format!("csi-snap-{OF_PLAIN}"), COPY);
        let of_plain = format!("{}:{}@{OF_PLAIN}", self.place(), self.id_of(PLAIN));
        self.record(COPY, "copy", MOUNT, &format!(r#"{{"snapshot":"{of_plain}"}}"#));
        // Deleted while it had a snapshot.
        self.make(KEPT, "kept", BLOCK);
        self.take(KEPT, OF_KEPT, "of-kept");
        let cluster = self.corner.cluster;
        cluster.rbd(&["image-meta", "set", &self.corner.spec(KEPT), "cephlet.object", KEPT]);
        let held = format!("csi-held-{}", self.id_of(KEPT));
        cluster.rbd(&["rename", &self.corner.spec(KEPT), &self.corner.spec(&held)]);
        let modes = [
            (MANY, "many", "multi_node_multi_writer"),
            (READERS, "readers", "multi_node_reader_only"),
            (WRITER, "writer", "multi_node_single_writer"),
        ];
        for (image, name, mode) in modes {
            self.make(image, name, &format!(r#"{{"mount":null,"mode":"{mode}"}}"#));
        }
    }

    fn write_publications(&self) {
        let tag = "node-1 SingleNodeWriter rw mount:ext4";
        self.publish(PLAIN, "node-1", tag, "given SingleNodeWriter rw mount:ext4 by controller");
        let tag = "node-2 SingleNodeSingleWriter rw block";
        self.publish(COPY, "node-2", tag, "given SingleNodeSingleWriter rw block by node");
        for node in ["node-1", "node-2"] {
            let says = "given MultiNodeMultiWriter rw block by controller";
            self.publish(MANY, node, "MultiNodeMultiWriter", says);
            let says = "given MultiNodeReaderOnly ro block by controller";
            self.publish(READERS, node, "MultiNodeReaderOnly", says);
        }
        let tag = "MultiNodeSingleWriter";
        self.publish(WRITER, "node-1", tag, "given MultiNodeSingleWriter rw block by controller");
        self.publish(WRITER, "node-2", tag, "given MultiNodeSingleWriter ro block by controller");
    }

    /// What a kill left: a copy half made, with the snapshot it was made from.
    fn write_leftovers(&self) {
        let digits = "00000000000000000000000000000001";
        let snapshot = format!("csi-copy-{digits}-{}", self.tag);
        self.snap(MANY, &snapshot);
        self.clone_of(MANY, &snapshot, &format!("csi-tmp-{digits}-{}", self.tag));
    }

    fn named(&self, name: &str, capability: wire::VolumeCapability) -> wire::CreateVolumeRequest {
        let asked = self.corner.volume(name, 16);
        wire::CreateVolumeRequest { volume_capabilities: vec![capability], ..asked }
    }

    /// A request to publish a block device.
    fn publish_as(
        &self,
        image: &str,
        node: &str,
        mode: AccessModeOf,
    ) -> wire::ControllerPublishVolumeRequest {
        wire::ControllerPublishVolumeRequest {
            volume_capability: Some(block_as(mode)).into(),
            ..publish_to(&self.volume(image), node)
        }
    }
}

#[test]
fn volumes_and_snapshots_are_listed_and_repeats_are_answered_alike() {
    let (past, daemon) = successor();
    let client = daemon.client();
    let reply = client.list_volumes(&page(0, "")).expect("list");
    let listed: Vec<&str> = reply.entries.iter().map(|it| it.volume.volume_id.as_str()).collect();
    let expected = [WRITER, COPY, PLAIN, READERS, MANY].map(|image| past.volume(image));
    assert_eq!(listed, expected);
    let reply = client.list_snapshots(&snapshot_page(0, "")).expect("list the snapshots");
    let mut sources: Vec<String> =
        reply.entries.iter().map(|it| it.snapshot.source_volume_id.clone()).collect();
    sources.sort();
    let held =
        past.corner.images().into_iter().find(|name| name.starts_with("csi-held-")).expect("it is kept");
    let kept = format!("{}:{KEPT}:{}", past.place(), past.id_of(&held));
    assert_eq!(sources, [past.volume(PLAIN), kept]);

    let plain = client.create(&past.named("plain", mount(""))).expect("asked again");
    assert_eq!(plain.volume_id, past.volume(PLAIN));
    let taken = client.create_snapshot(&snapshot("of-plain", &plain.volume_id)).expect("asked again");
    let copy = from_snapshot(past.named("copy", mount("")), &taken.snapshot.snapshot_id);
    assert_eq!(client.create(&copy).expect("asked again").volume_id, past.volume(COPY));
    let larger = volume_as("plain", 32 * MIB, mount(""));
    let larger =
        wire::CreateVolumeRequest { parameters: past.named("plain", mount("")).parameters, ..larger };
    refused(client.create(&larger), Code::ALREADY_EXISTS, &["plain"]);
}

#[test]
fn publications_are_recognised() {
    use AccessModeOf::*;
    let (past, daemon) = successor();
    let client = daemon.client();
    let publish = |request: &wire::ControllerPublishVolumeRequest| client.controller_publish_volume(request);
    let plain = past.volume(PLAIN);
    publish(&publish_to(&plain, "node-1")).expect("asked again");
    refused(publish(&publish_to(&plain, "node-2")), Code::FAILED_PRECONDITION, &["node-1"]);
    let other_mode = past.publish_as(PLAIN, "node-1", SINGLE_NODE_WRITER);
    refused(publish(&other_mode), Code::ALREADY_EXISTS, &["mount:ext4"]);
    // Made by a node.
    refused(
        publish(&past.publish_as(COPY, "node-1", SINGLE_NODE_SINGLE_WRITER)),
        Code::FAILED_PRECONDITION,
        &["node-2"],
    );
    publish(&past.publish_as(COPY, "node-2", SINGLE_NODE_SINGLE_WRITER)).expect("it has it");
    publish(&past.publish_as(MANY, "node-3", MULTI_NODE_MULTI_WRITER)).expect("a third");
    publish(&past.publish_as(READERS, "node-3", MULTI_NODE_READER_ONLY)).expect("a third");
    let second_writer = past.publish_as(WRITER, "node-3", MULTI_NODE_SINGLE_WRITER);
    refused(publish(&second_writer), Code::FAILED_PRECONDITION, &["node-1"]);
    publish(&wire::ControllerPublishVolumeRequest { readonly: true, ..second_writer }).expect("a reader");

    for image in [PLAIN, COPY, MANY, READERS, WRITER] {
        let id = past.volume(image);
        refused(client.delete_volume(&delete(&id)), Code::FAILED_PRECONDITION, &["node-"]);
        for node in ["node-1", "node-2", "node-3"] {
            client.controller_unpublish_volume(&unpublish_from(&id, node)).expect("unpublish");
        }
    }
    publish(&publish_to(&plain, "node-2")).expect("it is free");
    client.controller_unpublish_volume(&unpublish_from(&plain, "")).expect("unpublish");
    assert_all_can_go(&past, &client);
}

#[test]
fn leftovers_are_cleared_and_what_is_kept_for_snapshots_goes_with_the_last() {
    let (past, daemon) = successor();
    let client = daemon.client();
    await_that("what kills left is gone", || {
        let images = past.corner.images();
        let copies: Vec<&String> = images.iter().filter(|name| name.starts_with("csi-tmp-")).collect();
        let snapshots = past.corner.json(&["snap", "ls", "--all", &past.corner.spec(MANY)]);
        match (copies.is_empty(), snapshots.as_array().is_some_and(Vec::is_empty)) {
            (true, true) => Ok(()),
            _ => Err(format!("{images:?} {snapshots}")),
        }
    });
    let held =
        past.corner.images().into_iter().find(|name| name.starts_with("csi-held-")).expect("it is kept");
    let id = format!("{}:{}@{OF_KEPT}", past.place(), held.trim_start_matches("csi-held-"));
    let copy =
        client.create(&from_snapshot(past.named("again", block()), &id)).expect("a copy of the snapshot");
    client.delete_volume(&delete(&copy.volume_id)).expect("delete the copy");
    client.delete_snapshot(&delete_snapshot(&id)).expect("delete the last snapshot");
    await_that("the volume is gone with its last snapshot", || match past.corner.images() {
        images if images.contains(&held) => Err(format!("{images:?}")),
        _ => Ok(()),
    });
}

/// Removes everything through the daemon, and asserts that nothing is left.
#[track_caller]
fn assert_all_can_go(past: &Past, client: &Client) {
    for entry in client.list_snapshots(&snapshot_page(0, "")).expect("list the snapshots").entries {
        client.delete_snapshot(&delete_snapshot(&entry.snapshot.snapshot_id)).expect("delete the snapshot");
    }
    for entry in client.list_volumes(&page(0, "")).expect("list").entries {
        client.delete_volume(&delete(&entry.volume.volume_id)).expect("delete");
    }
    past.corner.await_empty();
}
