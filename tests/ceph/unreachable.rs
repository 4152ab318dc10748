//! Monitors that do not answer: every call that needs the cluster says so, and names them.

use std::fs;
use std::sync::Arc;
use std::thread;

use cephlet::proto::csi_v1 as wire;

use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Client, Code, Daemon, MIB, Scratch, Setup, refused};

/// No monitor listens there.
const NOBODY: &str = "127.0.0.1:1";

/// A daemon whose cluster is not there. Each call waits for the tool, so all tools run at once.
fn daemon() -> Daemon {
    let scratch = Arc::new(Scratch::new());
    let (clusters, key) = (scratch.path("clusters.toml"), scratch.path("key"));
    fs::write(&key, "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==").expect("write the key");
    let entry = format!("[cluster.main]\nmonitors = [{NOBODY:?}]\nuser = \"web\"\nkey_file = {key:?}\n");
    fs::write(&clusters, entry).expect("write the clusters file");
    let setup = Setup::within(scratch).set("CEPHLET_CLUSTERS", clusters.display());
    setup.set("CEPHLET_BACKENDS", "rbd").set("CEPHLET_TOOLS", 32).set("CEPHLET_WORKERS", 32).start()
}

type Ask = fn(&Client) -> Answer<()>;

/// Every rpc of the controller that asks the cluster. Volumes and snapshots differ, as calls for one wait for
/// each other.
const CALLS: [(&str, Ask); 16] = [
    ("CreateVolume", |it| it.create(&volume_as("new", 8 * MIB, block())).map(drop)),
    ("CreateVolume of a snapshot", |it| {
        it.create(&from_snapshot(volume_as("copy", 8 * MIB, block()), &snapshot_number(1))).map(drop)
    }),
    ("CreateVolume of a volume", |it| {
        it.create(&from_volume(volume_as("clone", 8 * MIB, block()), &volume_number(1))).map(drop)
    }),
    ("DeleteVolume", |it| it.delete_volume(&delete(&volume_number(2))).map(drop)),
    ("ControllerPublishVolume", |it| {
        it.controller_publish_volume(&publish_to(&volume_number(3), "node-1")).map(drop)
    }),
    ("ControllerUnpublishVolume", |it| {
        it.controller_unpublish_volume(&unpublish_from(&volume_number(4), "node-1")).map(drop)
    }),
    ("ValidateVolumeCapabilities", |it| {
        it.validate_volume_capabilities(&validate(&volume_number(5), block())).map(drop)
    }),
    ("ListVolumes", |it| it.list_volumes(&page(0, "")).map(drop)),
    ("GetCapacity", |it| it.get_capacity(&wire::GetCapacityRequest::default()).map(drop)),
    ("CreateSnapshot", |it| it.create_snapshot(&snapshot("new", &volume_number(6))).map(drop)),
    ("DeleteSnapshot", |it| it.delete_snapshot(&delete_snapshot(&snapshot_number(2))).map(drop)),
    ("ListSnapshots", |it| it.list_snapshots(&snapshot_page(0, "")).map(drop)),
    ("GetSnapshot", |it| it.get_snapshot(&get_snapshot(&snapshot_number(3))).map(drop)),
    ("ControllerExpandVolume", |it| {
        it.controller_expand_volume(&expand(&volume_number(7), 64 * MIB)).map(drop)
    }),
    ("ControllerModifyVolume", |it| {
        it.controller_modify_volume(&modify(&volume_number(9), &[("iops", "500")])).map(drop)
    }),
    ("ControllerGetVolume", |it| it.controller_get_volume(&get(&volume_number(8))).map(drop)),
];

/// The last of the digits of a key, which are those of base32.
fn digit(number: usize) -> char {
    char::from(b"abcdefghij"[number])
}

fn volume_number(number: usize) -> String {
    format!("rbd:main:rbd::csi-vol-web-abcdefghij23{}:10ab", digit(number))
}

fn snapshot_number(number: usize) -> String {
    format!("{}@abcdefghij234-zyxw765{}", volume_number(0), digit(number))
}

#[test]
fn every_call_says_that_the_monitors_do_not_answer() {
    let daemon = daemon();
    thread::scope(|scope| {
        let ask = |(what, call): (&'static str, Ask)| (what, call(&daemon.client()));
        let asked: Vec<_> = CALLS.into_iter().map(|call| scope.spawn(move || ask(call))).collect();
        for one in asked {
            let (what, answer) = one.join().expect("asked");
            let failure = answer.expect_err(what);
            // Ceph's tools give up after 20 s. On a slow machine the daemon gives up before that.
            let (code, last) = match failure.code {
                Code::DEADLINE_EXCEEDED => (Code::DEADLINE_EXCEEDED, ""),
                _ => (Code::UNAVAILABLE, "check that they run"),
            };
            refused::<()>(Err(failure), code, &["\"main\"", NOBODY, last]);
        }
    });
    daemon.assert_well();
}
