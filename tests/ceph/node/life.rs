//! A volume's whole life.

use std::fs;
use std::os::unix::fs::FileTypeExt;

use super::scene::{Scene, device, devices, fill, size_at};
use crate::support::MIB;
use crate::support::machine::{checksum, is_mounted, mount_at, owner, run, text, write_as};
use crate::support::requests::*;

#[test]
#[ignore = "long: tests/run --full"]
fn one_daemon_as_one_user_does_it_all() {
    let scene = Scene::new();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    fs::write(scene.path("target/file"), "content").expect("write");
    let kernel = device(&volume);
    assert_eq!(mount_at(&scene.path("target")).expect("mounted").source, text(&kernel));
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

/// A volume is written, taken back, published again, grown, kept in a snapshot, restored and compared.
fn carries_data(fs_type: &str, mib: i64) {
    let scene = Scene::new();
    let volume = scene.use_volume("one", mib, mount(fs_type), &[]);
    fill(&scene.path("target/file"), 3_000_001);
    let before = checksum(&scene.path("target/file"));
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    assert!(devices(&volume).is_empty(), "UNSAFE: it is mapped still");
    scene.stage(&volume, "elsewhere").expect("stage elsewhere");
    fs::create_dir_all(scene.path("pod")).expect("the parent of the target");
    for _ in 0..2 {
        scene.publish(&volume, "elsewhere", "pod/target").expect("publish elsewhere");
    }
    assert_eq!(checksum(&scene.path("pod/target/file")), before);

    let open = fs::File::create(scene.path("pod/target/in-use")).expect("a file in use");
    let size = volume.size * 2;
    assert_eq!(scene.expand(&volume, "pod/target", size), size);
    assert!(size_at(&scene.path("pod/target")) > volume.size * 3 / 2);
    drop(open);

    run("sync", &["-f", text(&scene.path("pod/target"))]);
    let taken =
        scene.controller.client().create_snapshot(&snapshot("snap", &volume.id)).expect("snapshot").snapshot;
    fill(&scene.path("pod/target/file"), 2_000_001);
    let restored = scene.make(from_snapshot(volume_as("two", size, mount(fs_type)), &taken.snapshot_id));
    let restored = scene.publish_to_node(restored, false);
    scene.stage(&restored, "restored").expect("stage what was restored, beside its source");
    assert_eq!(checksum(&scene.path("restored/file")), before);
    scene.retire(&restored, &[], &["restored"]);
    scene
        .controller
        .client()
        .delete_snapshot(&delete_snapshot(&taken.snapshot_id))
        .expect("delete the snapshot");
    scene.retire(&volume, &["pod/target"], &["elsewhere"]);
    scene.assert_clean();
}

/// What the controller knows of the owner goes to the node with the publication.
#[test]
fn a_new_volume_is_given_to_its_owner_and_its_group() {
    let scene = Scene::new();
    let parameters = [("uid", "65534"), ("mode", "0750")];
    let volume = scene.use_volume("one", 32, shared_with(mount("ext4"), "100"), &parameters);
    let target = scene.path("target");
    assert_eq!(owner(&target), (65534, 100, 0o2770));
    assert!(write_as(65534, 1, &target, "file") && write_as(1, 100, &target, "new"));
    assert!(!write_as(1, 1, &target, "other"));
    assert_eq!(owner(&target.join("new")).1, 100);
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

#[test]
fn ext4_carries_data() {
    carries_data("ext4", 32);
}

#[test]
#[ignore = "long: tests/run --full"]
fn xfs_carries_data() {
    carries_data("xfs", 320);
}

#[test]
fn a_block_volume_carries_data_and_grows() {
    let scene = Scene::new();
    let volume = scene.use_volume("one", 8, block(), &[]);
    let target = scene.path("target");
    assert!(target.metadata().expect("the target").file_type().is_block_device());
    fill(&scene.path("data"), 1 << 20);
    let source = format!("if={}", text(&scene.path("data")));
    run("dd", &[&source, &format!("of={}", text(&target)), "bs=1M", "oflag=direct", "status=none"]);
    scene.publish(&volume, "stage", "second").expect("a second target");
    run("cmp", &["-n", "1048576", text(&scene.path("data")), text(&scene.path("second"))]);
    assert_eq!(scene.expand(&volume, "target", 16 * MIB), 16 * MIB);
    assert_eq!(run("blockdev", &["--getsize64", text(&target)]), (16 * MIB).to_string());
    let stats = scene.stats(&volume, "target").expect("stats");
    assert_eq!(stats.usage[0].total, 16 * MIB);
    scene.retire(&volume, &["target", "second"], &["stage"]);
    scene.assert_clean();
}

/// The node starts a program only to make a file system for the first time, or to grow one.
#[test]
fn a_node_without_cephs_tools_starts_no_program_but_mkfs() {
    let scene = Scene::without_tools();
    let volume = scene.give("one", 32, mount("ext4"), &[("namespace", "team")]);
    scene.tools.started();
    scene.stage(&volume, "stage").expect("stage");
    assert_eq!(scene.tools.started(), ["mkfs.ext4"]);
    scene.publish(&volume, "stage", "target").expect("publish");
    scene.stats(&volume, "target").expect("stats");
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    assert!(!is_mounted(&scene.path("stage")) && devices(&volume).is_empty());
    scene.stage(&volume, "stage").expect("stage it again");
    assert!(scene.tools.started().is_empty());
    scene.expand(&volume, "stage", 64 * MIB);
    assert_eq!(scene.tools.started(), ["resize2fs"]);
    scene.retire(&volume, &[], &["stage"]);
    assert!(scene.tools.started().is_empty());
    scene.assert_clean();
}
