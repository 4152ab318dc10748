//! The daemon is killed while volumes are in use.

use std::fs;

use super::scene::{Scene, device, devices};
use crate::support::MIB;
use crate::support::daemon::exists;
use crate::support::machine::{is_mounted, run, text};
use crate::support::requests::*;

#[test]
fn volumes_outlive_a_killed_daemon() {
    for capability in [mount("ext4"), block()] {
        let mut scene = Scene::without_tools();
        let volume = scene.use_volume("one", 32, capability, &[]);
        let kernel = device(&volume);
        scene.node.kill9();
        assert!(is_mounted(&scene.path("target")) && devices(&volume) == [kernel.clone()]);
        scene.node.restart();
        scene.stage(&volume, "stage").expect("stage what is staged");
        scene.publish(&volume, "stage", "target").expect("publish what is published");
        assert_eq!(devices(&volume), [kernel]);
        assert_eq!(scene.expand(&volume, "target", 64 * MIB), 64 * MIB);
        scene.node.kill9();
        scene.node.restart();
        scene.retire(&volume, &["target"], &["stage"]);
        assert!(!exists(&scene.path("target")), "we made it, in another life");
        scene.assert_clean();
    }
}

#[test]
fn a_staged_volume_is_taken_back_in_another_life() {
    let mut scene = Scene::without_tools();
    let volume = scene.give("one", 32, mount("ext4"), &[]);
    scene.stage(&volume, "stage").expect("stage");
    fs::write(scene.path("stage/file"), "content").expect("write");
    scene.node.kill9();
    // Somebody else was faster.
    run("umount", &[text(&scene.path("stage"))]);
    scene.node.restart();
    scene.stage(&volume, "stage").expect("it is mounted again");
    assert_eq!(fs::read_to_string(scene.path("stage/file")).expect("read"), "content");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}
