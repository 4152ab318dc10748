//! The state that a start finds after a crash at any step, made by hand.

use super::super::store::Draft;
use super::*;
use crate::backend::Deleted;

fn restarted(it: Fixture) -> Fixture {
    let root = it.root.clone();
    let Fixture { local, _dir, .. } = it;
    drop(local);
    Fixture { _dir, ..Fixture::at(root) }
}

#[test]
fn a_start_removes_what_is_pending() {
    let it = fixture();
    let pending = it.root.join("pending");
    std::fs::create_dir(pending.join("empty")).unwrap();
    for (draft, files) in [
        ("begun", vec!["image"]),
        ("whole", vec!["image", "record"]),
        ("deleted", vec!["image", "record", "published"]),
    ] {
        std::fs::create_dir(pending.join(draft)).unwrap();
        for file in files {
            std::fs::write(pending.join(draft).join(file), "x").unwrap();
        }
    }
    std::fs::write(pending.join("file"), "").unwrap();
    let it = restarted(it);
    assert!(it.names("pending").is_empty());
    assert!(it.names("volumes").is_empty());
}

#[test]
fn a_draft_that_was_not_renamed_does_not_hinder_the_repeat() {
    let it = fixture();
    let draft = Draft::begin(&it.local.pending).unwrap();
    draft.seal(&draft.make_image().unwrap(), b"{}").unwrap();
    std::mem::forget(draft);
    let it = restarted(it);
    it.volume("a", MIB);
    assert!(it.names("pending").is_empty());
}

#[test]
fn a_deletion_that_got_as_far_as_the_rename_is_finished() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    std::fs::rename(
        it.root.join("volumes").join(&volume.id.object),
        it.root.join("pending/0000000000000000"),
    )
    .unwrap();
    let it = restarted(it);
    assert!(it.names("pending").is_empty());
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Absent);
    assert_ne!(it.volume("a", MIB).id, volume.id);
}

#[test]
fn an_expansion_that_only_reached_the_image_is_seen_and_finished() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    File::options().write(true).open(it.image(&volume)).unwrap().set_len(3 * MIB).unwrap();
    let it = restarted(it);
    let found = it.find(&volume).unwrap();
    assert_eq!((found.size, found.condition), (3 * MIB, Some(None)), "the length of the image is the truth");
    let range = SizeRange { required: 3 * MIB, limit: 0 };
    assert_eq!(it.local.expand(&it.call, &volume.id, &range, &it.none).unwrap(), 3 * MIB);
    let record = std::fs::read_to_string(it.path(&volume, "record")).unwrap();
    assert!(record.contains("\"size\":3145728"), "{record}");
}

#[test]
fn a_half_written_publication_is_none() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    std::fs::write(it.path(&volume, "published.new"), "{\"ver").unwrap();
    let it = restarted(it);
    assert!(it.find(&volume).unwrap().published.is_empty());
    let publication =
        crate::backend::Publication { node: NODE.into(), capability: block(), read_only: false };
    it.local.publish(&it.call, &volume.id, &publication, &it.none).unwrap();
    it.local.unpublish(&it.call, &volume.id, None, &it.none).unwrap();
    std::fs::write(it.path(&volume, "published.new"), "{\"ver").unwrap();
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
    assert!(it.names("pending").is_empty());
}

#[test]
fn what_a_copy_left_frozen_is_thawed_and_only_that() {
    let it = fixture();
    assert!(it.loops.done.lock().is_empty());
    std::fs::write(it.root.join("pending/freeze-0123456789abcdef"), "/mnt/frozen one").unwrap();
    let it = restarted(it);
    assert_eq!(*it.loops.done.lock(), ["thaw /mnt/frozen one"]);
    assert!(restarted(it).loops.done.lock().is_empty(), "once");
}

#[test]
fn a_second_controller_on_the_same_directory_is_refused() {
    let it = fixture();
    let second = open(&it.root, Arc::new(FakeLoops::default()));
    refused(
        second.recover(),
        Kind::Precondition,
        &["another daemon", "CEPHLET_LOCAL_DIR", it.root.to_str().unwrap()],
    );
    refused(second.health(Service::Any), Kind::Precondition, &["lock"]);
    it.local.health(Service::Any).unwrap();
    let node_only =
        Local::open(it.root.clone(), &NodeName::new(NODE), "org.test", Arc::new(FakeLoops::default()), None);
    node_only.unwrap().health(Service::Any).unwrap();
}

/// As after a boot if the disk is not mounted, or another disk is.
#[test]
fn another_directory_in_the_place_of_the_one_with_volumes_is_refused() {
    let it = fixture();
    let made = it.local.create(&it.call, &it.new_volume("a", MIB)).unwrap();
    let (root, away) = (it.root.clone(), it.root.with_extension("away"));
    let Fixture { local, _dir, .. } = it;
    drop(local);
    std::fs::rename(&root, &away).unwrap();
    let restart = || open(&root, Arc::new(FakeLoops::default()));
    let parts = ["is new", "mount the disk", root.to_str().unwrap(), "local.id"];
    refused(restart().recover(), Kind::Precondition, &parts);
    std::fs::write(root.join("id"), "00000000000000000000000000000000\n").unwrap();
    refused(restart().recover(), Kind::Precondition, &["belongs to other local volumes"]);
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::rename(&away, &root).unwrap();
    let back = Fixture::at(root.clone());
    assert!(back.local.find(&back.call, &made.id, &back.none).unwrap().is_some());
    drop(back);
    // The state directory was lost.
    std::fs::remove_file(root.with_extension("id")).unwrap();
    Fixture::at(root);
}

/// As if the disk was unmounted lazily, or another disk was mounted over it.
#[test]
fn another_directory_in_the_place_of_the_open_one_is_refused() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let (volumes, away) = (it.root.join("volumes"), it.root.join("away"));
    std::fs::rename(&volumes, &away).unwrap();
    let refused_everywhere = || {
        let parts = [volumes.to_str().unwrap(), "put that back, or restart cephlet"];
        refused(it.create(&it.new_volume("b", MIB)), Kind::Unavailable, &parts);
        refused(it.delete(&volume.id), Kind::Unavailable, &parts);
        refused(it.local.find(&it.call, &volume.id, &it.none), Kind::Unavailable, &parts);
        refused(it.local.list(&it.call, ("", 0), &Err), Kind::Unavailable, &parts);
        refused(it.snapshot("s", &volume), Kind::Unavailable, &parts);
    };
    refused_everywhere();
    std::fs::create_dir(&volumes).unwrap();
    refused_everywhere();
    assert!(it.names("volumes").is_empty() && it.names("pending").is_empty());
    std::fs::remove_dir(&volumes).unwrap();
    std::fs::rename(&away, &volumes).unwrap();
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
}

#[test]
fn a_link_in_the_place_of_a_volume_is_not_followed_by_what_writes() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let (own, away) = (it.root.join("volumes").join(&volume.id.object), it.root.join("away"));
    std::fs::rename(&own, &away).unwrap();
    std::os::unix::fs::symlink(&away, &own).unwrap();
    let publication =
        crate::backend::Publication { node: NODE.into(), capability: block(), read_only: false };
    let published = it.local.publish(&it.call, &volume.id, &publication, &it.none);
    refused(published, Kind::Internal, &[own.to_str().unwrap()]);
    assert!(!away.join("published").exists());
}
