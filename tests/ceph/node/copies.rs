//! Copies beside their sources.

use std::fs;

use super::scene::{Scene, devices, fill, size_at};
use crate::support::machine::{checksum, run, text};
use crate::support::requests::*;
use crate::support::{Code, MIB, refused};

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
    // The source is deleted first: the copy lives on.
    scene.retire(&source, &[], &["source"]);
    assert_eq!(checksum(&scene.path("copy/file")), before);
    scene.retire(&copy, &[], &["copy"]);
    scene.assert_clean();
}

/// The journal on a read-only device cannot be replayed, and another node may read the device, too.
#[test]
fn a_copy_of_a_volume_in_use_is_read_after_it_was_staged_for_writing_once() {
    let scene = Scene::without_tools();
    let source = scene.give("one", 32, mount("ext4"), &[]);
    scene.stage(&source, "source").expect("stage");
    fill(&scene.path("source/file"), 1_000_001);
    run("sync", &[text(&scene.path("source/file"))]);
    let before = checksum(&scene.path("source/file"));
    let mut copy = scene.make(from_volume(volume_as("two", 32 * MIB, mount("ext4")), &source.id));
    let controller = scene.controller.client();
    for (readonly, is_replayed) in [(true, false), (false, true), (true, true)] {
        copy = scene.publish_to_node(copy, readonly);
        let staged = scene.stage(&copy, "copy");
        match is_replayed {
            true => {
                staged.expect("stage the copy");
                assert_eq!(checksum(&scene.path("copy/file")), before);
                scene.unstage(&copy, "copy").expect("unstage");
            }
            false => drop(refused(staged, Code::FAILED_PRECONDITION, &["journal", "for writing once"])),
        }
        assert!(devices(&copy).is_empty(), "it is still mapped");
        controller.controller_unpublish_volume(&unpublish_from(&copy.id, "node-1")).expect("unpublish");
    }
    scene.retire(&copy, &[], &[]);
    scene.retire(&source, &[], &["source"]);
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
