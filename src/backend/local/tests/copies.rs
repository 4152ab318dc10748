//! Snapshots and copies, with and without reflink.

use std::os::unix::fs::{FileExt, MetadataExt};

use super::*;
use crate::backend::{Deleted, NodeContext};
use crate::ids::SnapshotId;

fn write(it: &Fixture, volume: &Volume, at: u64, text: &str) {
    File::options().write(true).open(it.image(volume)).unwrap().write_all_at(text.as_bytes(), at).unwrap();
}

fn read(it: &Fixture, volume: &Volume, at: u64, length: usize) -> String {
    let mut bytes = vec![0; length];
    File::open(it.image(volume)).unwrap().read_exact_at(&mut bytes, at).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn attach(it: &Fixture, volume: &Volume) {
    let (empty, context) = (Map::new(), Secrets::default());
    it.local
        .attach(
            &it.call,
            &volume.id,
            None,
            &NodeContext {
                volume: &empty,
                publish: &empty,
                secrets: &context,
                capability: &block(),
                read_only: false,
            },
            &|_| Ok(()),
        )
        .unwrap();
}

fn on_xfs() -> (Mounted, Fixture) {
    let mounted = Mounted::xfs();
    let it = Fixture::at(mounted.path.join("local"));
    assert!(it.local.reflink);
    (mounted, it)
}

fn copies_are_independent(it: &Fixture) {
    let volume = it.volume("a", 8 * MIB);
    write(it, &volume, 5 * MIB, "first");
    let snapshot = it.snapshot("s", &volume).unwrap();
    write(it, &volume, 5 * MIB, "later");
    let restored = it.create(&it.restored("b", &snapshot)).unwrap();
    let copy = it.create(&it.copy_of("c", &volume)).unwrap();
    let larger = NewVolume { size: SizeRange { required: 9 * MIB, limit: 0 }, ..it.restored("d", &snapshot) };
    let larger = it.create(&larger).unwrap();
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone, "snapshots do not hold it");
    assert_eq!(it.local.snapshots().delete(&it.call, &snapshot.id, &it.none).unwrap(), Deleted::Gone);
    assert_eq!(it.local.snapshots().delete(&it.call, &snapshot.id, &it.none).unwrap(), Deleted::Absent);
    assert_eq!((restored.size, copy.size, larger.size, snapshot.size), (8 * MIB, 8 * MIB, 9 * MIB, 8 * MIB));
    assert_eq!(read(it, &restored, 5 * MIB, 5), "first");
    assert_eq!(read(it, &larger, 5 * MIB, 5), "first");
    assert_eq!(read(it, &copy, 5 * MIB, 5), "later");
    assert!(std::fs::metadata(it.image(&copy)).unwrap().blocks() * 512 < MIB, "holes stay holes");
    assert_eq!(it.find(&restored).unwrap().source, Some(Source::Snapshot(snapshot.id.to_string())));
    assert!(it.names("pending").is_empty() && it.names("snapshots").is_empty());
}

#[test]
fn copies_are_independent_without_reflink() {
    let it = fixture();
    assert!(!it.local.reflink, "these tests need a scratch directory on a file system without reflink");
    copies_are_independent(&it);
}

#[test]
fn copies_are_independent_with_reflink() {
    copies_are_independent(&on_xfs().1);
}

#[test]
fn the_same_request_gives_the_same_snapshot() {
    let it = fixture();
    let (a, b) = (it.volume("a", MIB), it.volume("b", MIB));
    let first = it.snapshot("s", &a).unwrap();
    let second = it.snapshot("s", &a).unwrap();
    assert_eq!((&first.id, first.created), (&second.id, second.created));
    assert_eq!(first.source, a.id);
    refused(it.snapshot("s", &b), Kind::AlreadyExists, &["\"s\"", &a.id.to_string(), &b.id.to_string()]);
    it.delete(&a.id).unwrap();
    assert_eq!(it.snapshot("s", &a).unwrap().id, first.id, "even when its source is gone");
    let new = NewSnapshot {
        source: a.id.clone(),
        key: first.id.name_key().to_string(),
        name: "t".into(),
        secrets: it.none.clone(),
        requisite: Vec::new(),
    };
    refused(it.local.snapshots().create(&it.call, &new), Kind::AlreadyExists, &["\"s\"", "\"t\""]);
}

#[test]
fn a_snapshot_is_found_by_its_own_id_only() {
    let it = fixture();
    let snapshot = it.snapshot("s", &it.volume("a", MIB)).unwrap();
    let find = |id: &SnapshotId| it.local.snapshots().find(&it.call, id, &it.none).unwrap();
    assert_eq!(find(&snapshot.id).unwrap().size, MIB);
    let of_another = SnapshotId { source: "0123456789abcdef".into(), ..snapshot.id.clone() };
    assert!(find(&of_another).is_none());
    assert_eq!(it.local.snapshots().delete(&it.call, &of_another, &it.none).unwrap(), Deleted::Absent);
    assert!(find(&snapshot.id).is_some());
}

#[test]
fn a_later_snapshot_of_the_same_name_is_another() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let earlier = it.snapshot("s", &volume).unwrap();
    let delete = |id: &SnapshotId| it.local.snapshots().delete(&it.call, id, &it.none).unwrap();
    assert_eq!(delete(&earlier.id), Deleted::Gone);
    let later = it.snapshot("s", &volume).unwrap();
    assert_eq!(delete(&earlier.id), Deleted::Absent);
    refused(it.create(&it.restored("b", &earlier)), Kind::NotFound, &[&earlier.id.to_string()]);
    let find = |id: &SnapshotId| it.local.snapshots().find(&it.call, id, &it.none).unwrap();
    assert_eq!(find(&later.id).unwrap().id, later.id, "UNSAFE: a late deletion hit a later snapshot");
}

#[test]
fn a_missing_source_is_not_found() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let snapshot = it.snapshot("s", &volume).unwrap();
    it.delete(&volume.id).unwrap();
    it.local.snapshots().delete(&it.call, &snapshot.id, &it.none).unwrap();
    refused(it.create(&it.copy_of("b", &volume)), Kind::NotFound, &[&volume.id.to_string()]);
    refused(it.create(&it.restored("b", &snapshot)), Kind::NotFound, &[&snapshot.id.to_string()]);
    refused(it.snapshot("t", &volume), Kind::NotFound, &[&volume.id.to_string()]);
}

#[test]
fn a_repeat_needs_its_source_no_more() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let new = it.copy_of("b", &volume);
    let copy = it.create(&new).unwrap();
    it.delete(&volume.id).unwrap();
    assert_eq!(it.create(&new).unwrap().id, copy.id);
}

#[test]
fn a_copy_cannot_be_smaller_than_its_source() {
    let it = fixture();
    let volume = it.volume("a", 4 * MIB);
    let small = NewVolume { size: SizeRange { required: MIB, limit: 2 * MIB }, ..it.copy_of("b", &volume) };
    refused(it.create(&small), Kind::OutOfRange, &["\"b\"", "source"]);
}

#[test]
fn without_reflink_a_volume_in_use_is_not_copied() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    attach(&it, &volume);
    for result in [it.snapshot("s", &volume).map(|_| ()), it.create(&it.copy_of("b", &volume)).map(|_| ())] {
        refused(result, Kind::Precondition, &[&volume.id.to_string(), "/dev/loop700", "no reflink", "xfs"]);
    }
    assert!(it.names("pending").is_empty());
}

#[test]
fn with_reflink_a_mounted_volume_is_frozen_for_the_copy() {
    let (_mounted, it) = on_xfs();
    let volume = it.volume("a", 2 * MIB);
    write(&it, &volume, 0, "data");
    attach(&it, &volume);
    it.snapshot("as a block device", &volume).unwrap();
    assert!(it.loops.done.lock().is_empty(), "nothing to freeze");
    it.loops.mounted_at(&it.image(&volume), &["/a", "/b"]);
    let copy = it.create(&it.copy_of("b", &volume)).unwrap();
    assert_eq!(read(&it, &copy, 0, 4), "data");
    assert_eq!(*it.loops.done.lock(), ["clone frozen [\"/a\", \"/b\"]"]);
    assert!(it.names("pending").is_empty(), "the note of the freeze is gone");
}

#[test]
fn while_data_is_copied_nobody_attaches_or_deletes_the_source() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let copying = it.local.open_source(&it.local.volumes, &volume.id.object, "volume a".into()).unwrap();
    let (empty, secrets) = (Map::new(), Secrets::default());
    let attached = it.local.attach(
        &it.call,
        &volume.id,
        None,
        &NodeContext {
            volume: &empty,
            publish: &empty,
            secrets: &secrets,
            capability: &block(),
            read_only: false,
        },
        &|_| Ok(()),
    );
    refused(attached, Kind::Unavailable, &[&volume.id.to_string(), "try again"]);
    refused(it.delete(&volume.id), Kind::Precondition, &["being copied"]);
    refused(it.snapshot("s", &volume), Kind::Unavailable, &["another operation"]);
    drop(copying);
    attach(&it, &volume);
}

#[test]
fn a_snapshot_that_is_being_copied_is_not_deleted() {
    let it = fixture();
    let snapshot = it.snapshot("s", &it.volume("a", MIB)).unwrap();
    let object = super::super::find::snapshot_object(&snapshot.id.snapshot);
    let copying = it.local.open_source(&it.local.snapshots, &object, "snapshot s".into()).unwrap();
    it.create(&it.restored("b", &snapshot)).unwrap();
    refused(
        it.local.snapshots().delete(&it.call, &snapshot.id, &it.none),
        Kind::Precondition,
        &["being copied"],
    );
    drop(copying);
    assert_eq!(it.local.snapshots().delete(&it.call, &snapshot.id, &it.none).unwrap(), Deleted::Gone);
}
