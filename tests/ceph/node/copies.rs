//! Copies beside their sources.

use std::fs;

use super::scene::{Scene, fill, size_at};
use crate::support::MIB;
use crate::support::machine::checksum;
use crate::support::requests::*;

fn is_grown_at_stage(fs_type: &str, mib: i64) {
    let scene = Scene::without_tools();
    let source = scene.give("one", mib, mount(fs_type), &[]);
    scene.stage(&source, "source").expect("stage");
    fill(&scene.path("source/file"), 1_000_001);
    let before = checksum(&scene.path("source/file"));
    scene.unstage(&source, "source").expect("unstage");
    scene.stage(&source, "source").expect("stage again");
    let copy = scene.make(from_volume(volume_as("two", 2 * mib * MIB, mount(fs_type)), &source.id));
    let copy = scene.publish_to_node(copy, false);
    scene.stage(&copy, "copy").expect("stage the copy beside its source");
    assert!(size_at(&scene.path("copy")) > mib * MIB * 3 / 2, "the file system was not grown");
    assert_eq!(checksum(&scene.path("copy/file")), before);
    fs::write(scene.path("copy/other"), "only here").expect("write");
    assert!(!scene.path("source/other").exists());
    // The source first: the copy lives on.
    scene.retire(&source, &[], &["source"]);
    assert_eq!(checksum(&scene.path("copy/file")), before);
    scene.retire(&copy, &[], &["copy"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_larger_copy_is_grown_at_stage_with_ext4() {
    is_grown_at_stage("ext4", 32);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_larger_copy_is_grown_at_stage_with_xfs() {
    is_grown_at_stage("xfs", 320);
}
