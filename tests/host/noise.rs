//! Random bytes as messages to every method: a clear code, no panic, nothing changed. Seeded, so that a
//! failure comes again.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use protobuf::Message;

use crate::support::machine::picture;
use crate::support::requests::*;
use crate::support::{Code, Daemon, TestVolume, raw, v0};

/// Random numbers that are the same in every run: hashes of a counter.
struct Noise {
    seed: u64,
    count: u64,
}

impl Noise {
    fn number(&mut self, below: usize) -> usize {
        self.count += 1;
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((self.seed, self.count));
        (hash % below as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.number(256) as u8).collect()
    }

    /// The message with a few bytes changed, or cut short.
    fn damage(&mut self, message: &[u8]) -> Vec<u8> {
        let mut bytes = message.to_vec();
        for _ in 0..=self.number(3) {
            let at = self.number(bytes.len());
            bytes[at] = self.number(256) as u8;
        }
        let length = if self.number(2) == 0 { bytes.len() } else { self.number(bytes.len()) };
        bytes.truncate(length);
        bytes
    }
}

/// The codes that a caller can act on. UNKNOWN and INTERNAL are not among them.
const CLEAR: [Code; 7] = [
    Code::INVALID_ARGUMENT,
    Code::NOT_FOUND,
    Code::OUT_OF_RANGE,
    Code::ALREADY_EXISTS,
    Code::FAILED_PRECONDITION,
    Code::ABORTED,
    Code::RESOURCE_EXHAUSTED,
];

#[track_caller]
fn is_clear(daemon: &Daemon, channel: &grpcio::Channel, method: &'static str, message: Vec<u8>, what: &str) {
    if let Err(error) = raw::call(channel, method, message) {
        // A damaged ID may name another node.
        let elsewhere = error.code == Code::UNAVAILABLE && error.message.starts_with("Unknown node");
        assert!(
            elsewhere || CLEAR.contains(&error.code),
            "{method}, {what}: {error:?}\n{}",
            daemon.log.text()
        );
        assert!(!error.message.is_empty(), "{method}, {what}");
    }
}

#[test]
fn random_bytes_are_refused_in_order() {
    let daemon = Daemon::start();
    let kept = TestVolume::create(&daemon, "kept", 32, mount("ext4"));
    let before = picture(&daemon.local_dir());
    let channel = daemon.client().channel;
    for (index, method) in raw::METHODS.into_iter().enumerate() {
        for seed in 0..100 {
            let mut noise = Noise { seed: index as u64 * 1000 + seed, count: 0 };
            let length = noise.number(200);
            let message = noise.bytes(length);
            is_clear(&daemon, &channel, method, message, &format!("seed {seed}"));
        }
    }
    assert_eq!(picture(&daemon.local_dir()), before);
    kept.client.controller_get_volume(&get(&kept.id)).expect("it is still there");
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

#[test]
fn damaged_requests_are_refused_in_order() {
    let daemon = Daemon::start();
    let (channel, at) = (daemon.client().channel, daemon.text("stage"));
    // This volume does not exist, so a damaged path must not be made.
    let id = "local:node-1:::csi-vol-00112233445566778899aabbccddeeff:0011223344556677";
    let range = node_expand(id, &at);
    let requests: [(&'static str, Vec<u8>); 14] = [
        ("/csi.v1.Controller/DeleteVolume", delete(id).write_to_bytes().expect("encodes")),
        (
            "/csi.v1.Controller/ControllerPublishVolume",
            publish_to(id, "node-1").write_to_bytes().expect("encodes"),
        ),
        (
            "/csi.v1.Controller/ValidateVolumeCapabilities",
            validate(id, mount("xfs")).write_to_bytes().expect("encodes"),
        ),
        ("/csi.v1.Controller/CreateSnapshot", snapshot("snap", id).write_to_bytes().expect("encodes")),
        ("/csi.v1.Controller/ControllerExpandVolume", expand(id, 1 << 40).write_to_bytes().expect("encodes")),
        ("/csi.v1.Controller/ListVolumes", page(3, "local/csi-vol-00").write_to_bytes().expect("encodes")),
        ("/csi.v1.Node/NodeStageVolume", stage(id, &at, mount("xfs")).write_to_bytes().expect("encodes")),
        ("/csi.v1.Node/NodePublishVolume", publish(id, &at, &at, block()).write_to_bytes().expect("encodes")),
        ("/csi.v1.Node/NodeExpandVolume", range.write_to_bytes().expect("encodes")),
        ("/csi.Controller/DeleteVolume", v0::delete(id).write_to_bytes().expect("encodes")),
        (
            "/csi.Controller/ControllerUnpublishVolume",
            v0::unpublish_from(id, "node-1").write_to_bytes().expect("encodes"),
        ),
        ("/csi.Controller/ListVolumes", v0::page(3, "local/csi-vol-00").write_to_bytes().expect("encodes")),
        (
            "/csi.Node/NodePublishVolume",
            v0::publish(id, &at, v0::mount("xfs")).write_to_bytes().expect("encodes"),
        ),
        ("/csi.Node/NodeUnpublishVolume", v0::unpublish(id, &at).write_to_bytes().expect("encodes")),
    ];
    for (index, (method, message)) in requests.iter().enumerate() {
        for seed in 0..300 {
            let mut noise = Noise { seed: index as u64 * 1000 + seed, count: 0 };
            is_clear(&daemon, &channel, method, noise.damage(message), &format!("seed {seed}"));
        }
    }
    assert!(crate::support::machine::images(&daemon.local_dir()).is_empty());
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

#[test]
fn damaged_creations_make_nothing_but_what_they_say() {
    let daemon = Daemon::start();
    let channel = daemon.client().channel;
    let message =
        from_volume(volume("one"), "local:node-1:::csi-vol-no:1").write_to_bytes().expect("encodes");
    for seed in 0..500 {
        let mut noise = Noise { seed, count: 0 };
        is_clear(
            &daemon,
            &channel,
            "/csi.v1.Controller/CreateVolume",
            noise.damage(&message),
            &format!("seed {seed}"),
        );
    }
    let listed = daemon.client().list_volumes(&page(0, "")).expect("list").entries.len();
    assert_eq!(crate::support::machine::images(&daemon.local_dir()).len(), listed, "something half made");
    daemon.assert_well();
}

#[test]
fn a_message_that_is_too_large_is_refused() {
    let daemon = Daemon::start();
    let channel = daemon.client().channel;
    for (bytes, code) in [(16 << 20, Code::RESOURCE_EXHAUSTED), (257 << 10, Code::RESOURCE_EXHAUSTED), {
        (250 << 10, Code::INVALID_ARGUMENT)
    }] {
        let large = volume(&"x".repeat(bytes)).write_to_bytes().expect("encodes");
        let answer = raw::call(&channel, "/csi.v1.Controller/CreateVolume", large);
        assert_eq!(answer.expect_err("it is too large").code, code, "{bytes} bytes");
    }
    daemon.assert_well();
}
