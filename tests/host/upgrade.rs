//! Today's daemon on what cephlet 0.1.0 left on the disk: tests/fixtures/upgrade/README.md says what that is.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::{run, text};
use crate::support::requests::*;
use crate::support::{Client, Code, Daemon, MIB, Scratch, Setup, refused};

const ARCHIVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/upgrade/0.1.0.tar.xz");

/// Where volumes of the fixture were published.
const USED: &str = "/run/cephlet-upgrade-test";

/// Two runs of the tests on one machine take turns at these paths.
fn take_turn() -> fs::File {
    let file = fs::File::create(format!("{USED}.lock")).expect("the file of the lock");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).expect("lock it");
    file
}

/// A daemon that goes on where 0.1.0 was killed.
fn successor(of: &str) -> Daemon {
    let scratch = Arc::new(Scratch::new());
    let (directory, member) = (scratch.path(""), format!("0.1.0/{of}"));
    let into = ["--directory", text(&directory), "--strip-components=2"];
    run("tar", &[&["--extract", "--file", ARCHIVE][..], &into[..], &[&member[..]]].concat());
    let daemon = Setup::within(scratch).start();
    for file in ["state/node", "local/node"] {
        let name = fs::read_to_string(daemon.path(file)).expect("the name is remembered from now on");
        assert_eq!(name, "{\"v\":1,\"node\":\"node-1\",\"earlier\":[]}\n");
    }
    daemon
}

fn small(name: &str, capability: wire::VolumeCapability) -> wire::CreateVolumeRequest {
    volume_as(name, 16 * MIB, capability)
}

fn volumes(client: &Client) -> Vec<String> {
    let reply = client.list_volumes(&page(0, "")).expect("list");
    reply.entries.iter().map(|entry| entry.volume.volume_id.clone()).collect()
}

fn snapshots(client: &Client) -> Vec<String> {
    let reply = client.list_snapshots(&snapshot_page(0, "")).expect("list the snapshots");
    reply.entries.iter().map(|entry| entry.snapshot.snapshot_id.clone()).collect()
}

/// The only volume there is.
fn only(client: &Client) -> String {
    let [id] = volumes(client).try_into().expect("one volume");
    id
}

/// Removes everything through the daemon, and asserts that nothing is left.
#[track_caller]
fn assert_all_can_go(daemon: &Daemon) {
    let client = daemon.client();
    for id in snapshots(&client) {
        client.delete_snapshot(&delete_snapshot(&id)).expect("delete the snapshot");
    }
    for id in volumes(&client) {
        client.controller_unpublish_volume(&unpublish_from(&id, "")).expect("unpublish");
        client.delete_volume(&delete(&id)).expect("delete");
    }
    for directory in ["volumes", "snapshots", "pending"] {
        let left = fs::read_dir(daemon.local_dir().join(directory)).expect("list").count();
        assert_eq!(left, 0, "{directory}");
    }
    daemon.assert_node_is_clean();
    daemon.assert_well();
}

#[test]
fn volumes_snapshots_and_publications_are_known() {
    let (target, device) = (format!("{USED}/target"), format!("{USED}/device"));
    let _turn = take_turn();
    fs::create_dir_all(&target).expect("what 0.1.0 had made");
    fs::write(&device, "").expect("what 0.1.0 had made");
    let daemon = successor("used");
    let client = daemon.client();
    let made = |request| client.create(&request).expect("asked again").volume_id;
    let (plain, raw) = (made(small("plain", mount(""))), made(small("raw", block())));
    let taken = client.create_snapshot(&snapshot("of-raw", &raw)).expect("asked again");
    let taken = taken.snapshot.snapshot_id.clone();
    let copy = made(from_snapshot(small("copy", block()), &taken));
    let mut expected = vec![plain.clone(), raw.clone(), copy];
    expected.sort();
    assert_eq!((volumes(&client), snapshots(&client)), (expected, vec![taken]));

    // They were published before this boot: the paths are gone, and it is still this node's.
    assert!(!Path::new(&target).exists() && !Path::new(&device).exists());
    fs::remove_dir(USED).expect("nothing else is there");
    let published = |id: &str| client.controller_get_volume(&get(id)).expect("get").status.clone();
    assert_eq!(published(&plain).published_node_ids, ["node-1"]);
    assert_eq!(published(&raw).published_node_ids, ["node-1"]);
    let other_way = wire::ControllerPublishVolumeRequest { readonly: true, ..publish_to(&plain, "node-1") };
    refused(client.controller_publish_volume(&other_way), Code::ALREADY_EXISTS, &[&plain]);
    refused(client.delete_volume(&delete(&plain)), Code::FAILED_PRECONDITION, &["node-1"]);

    // And can be used as before.
    let (stage_path, target) = (daemon.text("stage"), daemon.text("target"));
    client.node_stage_volume(&stage(&plain, &stage_path, mount(""))).expect("stage");
    client.node_publish_volume(&publish(&plain, &stage_path, &target, mount(""))).expect("publish");
    assert_eq!(run("findmnt", &["--noheadings", "--output", "FSTYPE", &target]).trim(), "ext4");
    client.node_unpublish_volume(&unpublish(&plain, &target)).expect("unpublish");
    client.node_unstage_volume(&unstage(&plain, &stage_path)).expect("unstage");
    assert_all_can_go(&daemon);
}

/// What is whole may be a deletion that was refused.
#[test]
fn what_was_being_deleted_is_there_until_that_is_asked_for_again() {
    for (of, snapshot_count) in [("delete", 0), ("release", 0), ("delete-snapshot", 1)] {
        let daemon = successor(of);
        only(&daemon.client());
        assert_eq!(snapshots(&daemon.client()).len(), snapshot_count, "{of}");
        assert_all_can_go(&daemon);
    }
}

#[test]
fn what_was_being_made_can_be_asked_for_again() {
    let daemon = successor("create");
    let client = daemon.client();
    let made = client.create(&small("v", block())).expect("create").volume_id;
    assert_eq!(volumes(&client), [made]);
    assert_all_can_go(&daemon);

    let daemon = successor("snapshot");
    let client = daemon.client();
    let reply = client.create_snapshot(&snapshot("s", &only(&client))).expect("take it");
    assert_eq!(snapshots(&client), std::slice::from_ref(&reply.snapshot.snapshot_id));
    assert_all_can_go(&daemon);

    let daemon = successor("expand");
    let client = daemon.client();
    let reply = client.controller_expand_volume(&expand(&only(&client), 32 * MIB)).expect("expand");
    assert_eq!(reply.capacity_bytes, 32 * MIB);
    assert_all_can_go(&daemon);
}

#[test]
fn a_formatting_that_was_interrupted_begins_anew() {
    let daemon = successor("format");
    let (client, stage_path) = (daemon.client(), daemon.text("stage"));
    let id = only(&client);
    client.node_stage_volume(&stage(&id, &stage_path, mount(""))).expect("stage");
    assert_eq!(run("findmnt", &["--noheadings", "--output", "FSTYPE", &stage_path]).trim(), "ext4");
    let formatted = daemon.log.lines_with("mkfs");
    assert!(!formatted.is_empty(), "{}", daemon.log.text());
    client.node_unstage_volume(&unstage(&id, &stage_path)).expect("unstage");
    assert_all_can_go(&daemon);
}
