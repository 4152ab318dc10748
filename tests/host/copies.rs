//! Snapshots and clones: content, sources, names.

use std::fs;
use std::sync::Arc;

use cephlet::proto::csi_v1 as wire;

use crate::support::machine::{checksum, images, run, text};
use crate::support::requests::*;
use crate::support::scratch::poke;
use crate::support::{Code, Daemon, MIB, Scratch, Setup, TestVolume, refused};

/// A volume whose content is not empty.
fn with_content<'a>(daemon: &'a Daemon, name: &str) -> TestVolume<'a> {
    let volume = TestVolume::create(daemon, name, 8, block());
    poke(&volume.image(), 0, b"begin");
    poke(&volume.image(), 5 << 20, &[7; 70_000]);
    volume
}

fn take(volume: &TestVolume<'_>, name: &str) -> wire::Snapshot {
    let reply = volume.client.create_snapshot(&snapshot(name, &volume.id)).expect("snapshot");
    reply.snapshot.into_option().expect("the reply has a snapshot")
}

#[test]
fn a_snapshot_is_taken_once() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    let first = take(&volume, "snap");
    assert_eq!((first.size_bytes, &first.source_volume_id, first.ready_to_use), (8 * MIB, &volume.id, true));
    assert!(first.creation_time.seconds > 1_700_000_000 && first.snapshot_id.len() <= 128);
    poke(&volume.image(), 0, b"later");
    assert_eq!(take(&volume, "snap"), first);
    let got = volume.client.get_snapshot(&get_snapshot(&first.snapshot_id)).expect("get");
    assert_eq!(got.snapshot.as_ref(), Some(&first));
    let other = TestVolume::create(&daemon, "two", 8, block());
    refused(
        other.client.create_snapshot(&snapshot("snap", &other.id)),
        Code::ALREADY_EXISTS,
        &["snap", &volume.id],
    );
}

#[test]
fn snapshots_need_a_source_and_no_parameters() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    refused(
        volume.client.create_snapshot(&snapshot("s", "local:node-1:::no:1")),
        Code::NOT_FOUND,
        &["local:node-1:::no:1"],
    );
    let request =
        wire::CreateSnapshotRequest { parameters: map(&[("pool", "x")]), ..snapshot("s", &volume.id) };
    refused(volume.client.create_snapshot(&request), Code::INVALID_ARGUMENT, &["pool"]);
    let request = wire::CreateSnapshotRequest {
        parameters: map(&[("csi.storage.k8s.io/x", "y")]),
        ..snapshot("s", &volume.id)
    };
    volume.client.create_snapshot(&request).expect("metadata of sidecars is passed over");
}

#[test]
fn snapshots_are_deleted_once_and_for_all() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    let taken = take(&volume, "snap");
    for _ in 0..2 {
        volume.client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("delete");
    }
    volume.client.delete_snapshot(&delete_snapshot("x")).expect("never was");
    refused(
        volume.client.get_snapshot(&get_snapshot(&taken.snapshot_id)),
        Code::NOT_FOUND,
        &[&taken.snapshot_id],
    );
    assert_eq!(images(&daemon.local_dir()).len(), 1);
}

#[test]
fn a_volume_from_a_snapshot_has_the_content_of_that_moment() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    let before = checksum(&volume.image());
    let taken = take(&volume, "snap");
    poke(&volume.image(), 0, b"later");
    let request = from_snapshot(volume_as("copy", 8 * MIB, block()), &taken.snapshot_id);
    let copy = TestVolume::make(&daemon, request.clone());
    assert_eq!(checksum(&copy.image()), before);
    let answer = copy.client.create(&request).expect("again");
    assert_eq!(answer.volume_id, copy.id);
    assert_eq!(answer.content_source, request.volume_content_source);
    let listed = copy.client.controller_get_volume(&get(&copy.id)).expect("get");
    assert_eq!(listed.volume.content_source, request.volume_content_source);
    // A snapshot and its source do not depend on each other.
    volume.client.delete_volume(&delete(&volume.id)).expect("the source can go first");
    let late =
        TestVolume::make(&daemon, from_snapshot(volume_as("late", 8 * MIB, block()), &taken.snapshot_id));
    volume.client.delete_snapshot(&delete_snapshot(&taken.snapshot_id)).expect("and the snapshot");
    assert_eq!(checksum(&late.image()), before);
    refused(
        late.client.create(&from_snapshot(volume_as("x", 8 * MIB, block()), &taken.snapshot_id)),
        Code::NOT_FOUND,
        &[],
    );
}

#[test]
fn a_clone_is_a_copy_of_its_own() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    let before = checksum(&volume.image());
    let request = from_volume(volume_as("copy", 8 * MIB, block()), &volume.id);
    let copy = TestVolume::make(&daemon, request.clone());
    poke(&volume.image(), 0, b"later");
    assert_eq!(checksum(&copy.image()), before);
    let again = copy.client.create(&request).expect("again");
    assert_eq!((again.volume_id, again.content_source), (copy.id.clone(), request.volume_content_source));
    assert_eq!(checksum(&copy.image()), before);
}

#[test]
fn a_copy_is_never_smaller_than_its_source() {
    let daemon = Daemon::start();
    let volume = with_content(&daemon, "one");
    let taken = take(&volume, "snap");
    let sized = |name: &str, required, limit| wire::CreateVolumeRequest {
        capacity_range: range(required, limit),
        ..volume_as(name, 0, block())
    };
    for (name, source) in [("v", from_volume as fn(_, &str) -> _), ("s", from_snapshot)] {
        let id = if name == "v" { &volume.id } else { &taken.snapshot_id };
        let create = |size| volume.client.create(&source(size, id));
        refused(create(sized("small", 0, 4 * MIB)), Code::OUT_OF_RANGE, &["source"]);
        assert_eq!(
            create(sized(&format!("{name}1"), 4 * MIB, 0)).expect("at least the source").capacity_bytes,
            8 * MIB
        );
        assert_eq!(create(sized(&format!("{name}2"), 12 * MIB, 0)).expect("larger").capacity_bytes, 12 * MIB);
        refused(create(sized(&format!("{name}2"), 16 * MIB, 0)), Code::ALREADY_EXISTS, &[]);
    }
}

#[test]
fn a_source_that_is_none_is_not_found() {
    let daemon = Daemon::start();
    let client = daemon.client();
    for id in ["x", "local:node-1:::no:1"] {
        refused(client.create(&from_volume(volume("c"), id)), Code::NOT_FOUND, &["source"]);
        refused(client.create(&from_snapshot(volume("c"), id)), Code::NOT_FOUND, &["source"]);
    }
    assert!(images(&daemon.local_dir()).is_empty());
}

#[test]
fn a_volume_in_use_is_copied_in_one_moment_where_blocks_can_be_shared() {
    let scratch = Arc::new(Scratch::new());
    scratch.reflink_xfs("local");
    let daemon = Setup::within(scratch).start();
    let volume = TestVolume::in_use(&daemon, "one");
    let file = volume.path("target/file");
    fs::write(&file, "before").expect("write");
    let taken = take(&volume, "snap");
    fs::write(&file, "after!").expect("the file system goes on");
    assert_eq!(fs::read_to_string(&file).expect("read"), "after!");
    let request = from_snapshot(volume_as("copy", 32 * MIB, mount("ext4")), &taken.snapshot_id);
    let copy = TestVolume::make(&daemon, request);
    copy.stage("stage-2").expect("stage the copy beside its source");
    copy.publish("stage-2", "target-2").expect("publish it");
    assert_eq!(fs::read_to_string(copy.path("target-2/file")).expect("read"), "before");
    copy.retire(&["target-2"], &["stage-2"]);
    let request = from_snapshot(volume_as("own", 32 * MIB, mount("ext4")), &taken.snapshot_id);
    let request = wire::CreateVolumeRequest { parameters: map(&[("preallocate", "true")]), ..request };
    let own = TestVolume::make(&daemon, request);
    let extents = run("filefrag", &["-v", text(&own.image())]);
    assert!(!extents.contains("shared"), "a write to a shared block needs another: {extents}");
    own.retire(&[], &[]);
    volume.retire(&["target"], &["stage"]);
    daemon.assert_node_is_clean();
}

#[test]
fn a_volume_in_use_is_not_copied_where_blocks_cannot_be_shared() {
    let daemon = Daemon::start();
    let volume = TestVolume::in_use(&daemon, "one");
    refused(
        volume.client.create_snapshot(&snapshot("snap", &volume.id)),
        Code::FAILED_PRECONDITION,
        &[&volume.id],
    );
    let clone = from_volume(volume_as("copy", 32 * MIB, mount("ext4")), &volume.id);
    refused(volume.client.create(&clone), Code::FAILED_PRECONDITION, &[&volume.id]);
    assert_eq!(images(&daemon.local_dir()).len(), 1);
    volume.unpublish("target").expect("unpublish");
    volume.unstage("stage").expect("unstage");
    take(&volume, "snap");
}
