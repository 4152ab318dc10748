//! What the node mounts, grows and unmounts.

use cephlet::proto::csi_v1 as wire;

use super::scene::{DATA, Scene};
use super::trial::{Outcome, Trial};
use crate::support::MIB;
use crate::support::machine::{loops_below, mount_at, mounts_below, owner, run, text};
use crate::support::requests::*;

/// The steps of a change: it is recorded, and a helper does it.
const CHANGING: &[&str] = &[
    "write to the journal",
    "sync the journal",
    "journal synced",
    "start a process",
    "process started",
    "a process has ended",
];

/// Nearly the smallest xfs there is.
const XFS: i64 = 320 * MIB;

fn blank_ext4() -> Scene {
    let mut scene = Scene::new();
    scene.have("one", 32 * MIB, mount("ext4"));
    scene
}

fn staged_ext4() -> Scene {
    let scene = blank_ext4();
    scene.stage(mount("ext4")).expect("stage");
    scene.write("stage/file");
    scene
}

fn published_ext4() -> Scene {
    let scene = staged_ext4();
    scene.publish(mount("ext4"), false).expect("publish");
    scene
}

fn blank_device() -> Scene {
    let mut scene = Scene::new();
    scene.have("one", 8 * MIB, block());
    scene.fill();
    scene
}

fn staged_device() -> Scene {
    let scene = blank_device();
    scene.stage(block()).expect("stage");
    scene
}

fn published_device() -> Scene {
    let scene = staged_device();
    scene.publish(block(), false).expect("publish");
    scene
}

fn staged_xfs() -> Scene {
    let mut scene = Scene::new();
    scene.have("one", XFS, mount("xfs"));
    scene.stage(mount("xfs")).expect("stage");
    scene.write("stage/file");
    scene
}

fn unstaged(scene: Scene) -> Scene {
    scene.unstage().expect("unstage");
    scene
}

fn expanded(scene: Scene, size: i64) -> Scene {
    scene.client().controller_expand_volume(&expand(scene.id(), size)).expect("expand");
    scene
}

/// How many places the volume's file system is mounted at, beside the real one.
fn assert_mounted(scene: &Scene, at: &[&str]) {
    let mounts = mounts_below(&scene.path("")).len();
    assert_eq!(mounts, at.len() + 1, "{:?}", mounts_below(&scene.path("")));
    assert!(
        at.iter().all(|name| mount_at(&scene.path(name)).is_some()),
        "{:?}",
        mounts_below(&scene.path(""))
    );
    assert_eq!(loops_below(&scene.daemon.local_dir()).len(), 1);
}

fn size_at(scene: &Scene, at: &str) -> u64 {
    let found = rustix::fs::statvfs(scene.path(at)).expect("statvfs");
    found.f_blocks * found.f_frsize
}

fn assert_device_holds_its_data(device: &std::path::Path) {
    let begin = run("head", &["-c", "5", text(device)]);
    assert_eq!(begin, "begin");
}

#[test]
fn a_blank_volume_is_formatted_and_staged() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.write("stage/file");
        scene.assert_written("stage/file");
    };
    let ask = |scene: &mut Scene| scene.stage(mount("ext4")).map(|()| Outcome::plain(&()));
    Trial { scene: blank_ext4, ask, check, steps: CHANGING }.run();
}

/// A crash between the formatting and the change of the owner included.
#[test]
fn a_new_volume_is_given_to_its_owner_and_its_group() {
    let scene = || {
        let mut scene = Scene::new();
        let parameters = map(&[("uid", "65534"), ("mode", "0750")]);
        let request = wire::CreateVolumeRequest { parameters, ..volume_as("one", 32 * MIB, mount("ext4")) };
        scene.volumes.push(scene.client().create(&request).expect("create").volume_id);
        scene
    };
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        assert_eq!(owner(&scene.path("stage")), (65534, 100, 0o2770));
    };
    let ask =
        |scene: &mut Scene| scene.stage(shared_with(mount("ext4"), "100")).map(|()| Outcome::plain(&()));
    Trial { scene, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_volume_with_a_file_system_is_staged() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.assert_written("stage/file");
        scene.write("stage/more");
    };
    let ask = |scene: &mut Scene| scene.stage(mount("xfs")).map(|()| Outcome::plain(&()));
    Trial { scene: || unstaged(staged_xfs()), ask, check, steps: CHANGING }.run();
}

#[test]
fn a_device_is_staged() {
    let check = |scene: &mut Scene| {
        let loops = loops_below(&scene.daemon.local_dir());
        assert_eq!(loops.len(), 1, "{loops:?}");
        assert_device_holds_its_data(&loops[0].0);
    };
    let ask = |scene: &mut Scene| scene.stage(block()).map(|()| Outcome::plain(&()));
    Trial { scene: blank_device, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_that_is_too_small_grows_when_it_is_staged() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.assert_written("stage/file");
        assert!(size_at(scene, "stage") > 50 << 20);
    };
    let ask = |scene: &mut Scene| scene.stage(mount("ext4")).map(|()| Outcome::plain(&()));
    Trial { scene: || expanded(unstaged(staged_ext4()), 64 * MIB), ask, check, steps: CHANGING }.run();
}

#[test]
fn an_xfs_that_is_too_small_grows_when_it_is_staged() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.assert_written("stage/file");
        assert!(size_at(scene, "stage") > 400 << 20);
    };
    let ask = |scene: &mut Scene| scene.stage(mount("xfs")).map(|()| Outcome::plain(&()));
    Trial { scene: || expanded(unstaged(staged_xfs()), 512 * MIB), ask, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_is_published() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage", "target"]);
        scene.assert_written("target/file");
        scene.write("target/more");
        scene.assert_written("stage/more");
    };
    let ask = |scene: &mut Scene| scene.publish(mount("ext4"), false).map(|()| Outcome::plain(&()));
    Trial { scene: staged_ext4, ask, check, steps: CHANGING }.run();
}

/// The directories above the target are made, too.
#[test]
fn a_file_system_is_published_below_what_is_missing() {
    let scene = || Scene { target: "srv/data/target", ..staged_ext4() };
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage", "srv/data/target"]);
        scene.assert_written("srv/data/target/file");
    };
    let ask = |scene: &mut Scene| scene.publish(mount("ext4"), false).map(|()| Outcome::plain(&()));
    Trial { scene, ask, check, steps: &["make directory"] }.run();
}

#[test]
fn a_file_system_is_unpublished_with_the_directories_above_it() {
    let scene = || {
        let scene = Scene { target: "srv/data/target", ..staged_ext4() };
        scene.publish(mount("ext4"), false).expect("publish");
        scene
    };
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        assert!(!scene.path("srv").exists());
    };
    let ask = |scene: &mut Scene| scene.unpublish().map(|()| Outcome::plain(&()));
    Trial { scene, ask, check, steps: &["remove directory"] }.run();
}

#[test]
fn a_file_system_is_published_read_only() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage", "target"]);
        scene.assert_written("target/file");
        let refused = std::fs::write(scene.path("target/more"), DATA).expect_err("it is read-only");
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        scene.write("stage/more");
    };
    let ask = |scene: &mut Scene| scene.publish(mount("ext4"), true).map(|()| Outcome::plain(&()));
    Trial { scene: staged_ext4, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_device_is_published() {
    let check = |scene: &mut Scene| assert_device_holds_its_data(&scene.path("target"));
    let ask = |scene: &mut Scene| scene.publish(block(), false).map(|()| Outcome::plain(&()));
    Trial { scene: staged_device, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_is_unpublished() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        assert!(!scene.path("target").exists(), "we made it");
        scene.assert_written("stage/file");
    };
    let ask = |scene: &mut Scene| scene.unpublish().map(|()| Outcome::plain(&()));
    Trial { scene: published_ext4, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_device_is_unpublished() {
    let check = |scene: &mut Scene| {
        assert!(!scene.path("target").exists(), "we made it");
        assert_eq!(loops_below(&scene.daemon.local_dir()).len(), 1);
    };
    let ask = |scene: &mut Scene| scene.unpublish().map(|()| Outcome::plain(&()));
    Trial { scene: published_device, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_is_unstaged() {
    let check = |scene: &mut Scene| {
        scene.daemon.assert_node_is_clean();
        scene.stage(mount("ext4")).expect("stage again");
        scene.assert_written("stage/file");
    };
    let ask = |scene: &mut Scene| scene.unstage().map(|()| Outcome::plain(&()));
    Trial { scene: staged_ext4, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_device_is_unstaged() {
    let check = |scene: &mut Scene| {
        scene.daemon.assert_node_is_clean();
        assert_device_holds_its_data(&scene.image(scene.id()));
    };
    let ask = |scene: &mut Scene| scene.unstage().map(|()| Outcome::plain(&()));
    Trial { scene: staged_device, ask, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_in_use_grows() {
    let ask = |scene: &mut Scene| {
        let request = node_expand(scene.id(), &scene.daemon.text("stage"));
        let request = wire::NodeExpandVolumeRequest { capacity_range: range(512 * MIB, 0), ..request };
        scene.client().node_expand_volume(&request).map(|reply| Outcome::plain(&reply))
    };
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.assert_written("stage/file");
        assert!(size_at(scene, "stage") > 400 << 20);
    };
    let steps = &["start a process", "process started", "a process has ended"];
    Trial { scene: || expanded(staged_xfs(), 512 * MIB), ask, check, steps }.run();
}
