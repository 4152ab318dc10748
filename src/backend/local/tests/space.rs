//! Requests for which there is not enough room.

use super::*;
use crate::backend::Deleted;

fn tiny() -> (Mounted, Fixture) {
    let mounted = Mounted::tiny_ext4();
    let it = Fixture::at(mounted.path.join("local"));
    (mounted, it)
}

fn nothing_left(it: &Fixture) {
    assert!(it.names("pending").is_empty(), "a failed request leaves nothing behind");
}

#[test]
fn a_volume_larger_than_what_is_free_is_refused() {
    let (_mounted, it) = tiny();
    refused(it.create(&it.new_volume("a", 64 * MIB)), Kind::NoSpace, &["\"a\"", "bytes free"]);
    let volume = it.volume("b", 2 * MIB);
    let expanded =
        it.local.expand(&it.call, &volume.id, &SizeRange { required: 64 * MIB, limit: 0 }, &it.none);
    refused(expanded, Kind::NoSpace, &[&volume.id.to_string(), "bytes free"]);
    assert_eq!(it.find(&volume).unwrap().size, 2 * MIB);
    nothing_left(&it);
}

#[test]
fn a_size_that_no_file_can_have_is_out_of_range() {
    let (_mounted, it) = tiny();
    refused(it.create(&it.new_volume("a", 1 << 60)), Kind::OutOfRange, &["\"a\""]);
    nothing_left(&it);
}

#[test]
fn preallocation_fails_at_once_and_gives_everything_back() {
    // xfs reserves more blocks than it counts as used, so the last free blocks cannot all be allocated.
    let mounted = Mounted::xfs();
    let it = Fixture::at(mounted.path.join("local"));
    let free = || it.local.capacity(&it.call, &Map::new(), &[], None).unwrap().largest;
    let parameters = Map::from([("preallocate".into(), "true".into())]);
    let refused_at_once =
        it.create(&NewVolume { parameters: parameters.clone(), ..it.new_volume("a", free()) });
    refused(refused_at_once, Kind::NoSpace, &["\"a\"", "allocate"]);
    nothing_left(&it);
    let volume = it.create(&NewVolume { parameters, ..it.new_volume("b", 2 * MIB) }).unwrap();
    let before = free();
    let expanded =
        it.local.expand(&it.call, &volume.id, &SizeRange { required: 2 * MIB + before, limit: 0 }, &it.none);
    refused(expanded, Kind::NoSpace, &[&volume.id.to_string(), "allocate"]);
    assert!(free() + MIB > before, "blocks behind the end are given back: {before} before, {} after", free());
    assert_eq!(it.find(&volume).unwrap().size, 2 * MIB);
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing_behind() {
    let (mounted, it) = tiny();
    let volume = it.volume("a", 8 * MIB);
    std::fs::write(it.image(&volume), vec![7; 8 << 20]).unwrap();
    refused(it.snapshot("s", &volume), Kind::NoSpace, &["\"s\"", "bytes free"]);
    refused(it.create(&it.copy_of("b", &volume)), Kind::NoSpace, &["\"b\"", "bytes free"]);
    nothing_left(&it);
    drop(mounted);
}

#[test]
fn a_full_file_system_still_lets_volumes_be_deleted() {
    let (mounted, it) = tiny();
    let volume = it.volume("a", 2 * MIB);
    let _ = std::fs::write(mounted.path.join("ballast"), vec![7; 16 << 20]);
    refused(it.create(&it.new_volume("b", MIB)), Kind::NoSpace, &["\"b\""]);
    nothing_left(&it);
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
    nothing_left(&it);
}
