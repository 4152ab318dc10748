//! Volumes that are published without a stage, through CSI 0.1.

use std::fs;

use super::scene::Scene;
use super::trial::{Outcome, Points, Trial};
use crate::support::client::Answer;
use crate::support::machine::{loops_below, mount_at, mounts_below};
use crate::support::v0::{self, Client};
use crate::support::{Code, MIB, requests};

const CHANGING: &[&str] = &[
    "write to the journal",
    "sync the journal",
    "journal synced",
    "start a process",
    "process started",
    "a process has ended",
];

fn blank() -> Scene {
    let mut scene = Scene::new();
    scene.have("one", 32 * MIB, requests::mount("ext4"));
    scene
}

fn published() -> Scene {
    let mut scene = blank();
    publish(&mut scene).expect("publish");
    scene.write("target/file");
    scene
}

fn staged_through_v1() -> Scene {
    let scene = blank();
    scene.stage(requests::mount("ext4")).expect("stage");
    scene.write("stage/file");
    scene
}

fn published_beside_a_stage() -> Scene {
    let mut scene = staged_through_v1();
    publish(&mut scene).expect("publish");
    scene
}

fn blank_device() -> Scene {
    let mut scene = Scene::new();
    scene.have("one", 8 * MIB, requests::block());
    scene.fill();
    scene
}

fn published_device() -> Scene {
    let mut scene = blank_device();
    publish_device(&mut scene).expect("publish");
    scene
}

fn publish(scene: &mut Scene) -> Answer<Outcome> {
    let request = v0::publish(scene.id(), &scene.daemon.text("target"), v0::mount("ext4"));
    Client::of(&scene.daemon).publish(&request).map(|()| Outcome::plain(&()))
}

fn publish_device(scene: &mut Scene) -> Answer<Outcome> {
    fs::OpenOptions::new().create(true).append(true).open(scene.path("target")).expect("make the target");
    let request = v0::publish(scene.id(), &scene.daemon.text("target"), v0::block());
    Client::of(&scene.daemon).node_publish_volume(&request).map(|_| Outcome::plain(&()))
}

fn unpublish(scene: &mut Scene) -> Answer<Outcome> {
    let request = v0::unpublish(scene.id(), &scene.daemon.text("target"));
    Client::of(&scene.daemon).node_unpublish_volume(&request).map(|_| Outcome::plain(&()))
}

/// The volume's file system is mounted at these places beside the real one, and nowhere else.
#[track_caller]
fn assert_mounted(scene: &Scene, at: &[&str]) {
    assert_eq!(mounts_below(&scene.path("")).len(), at.len() + 1, "{:?}", mounts_below(&scene.path("")));
    assert!(
        at.iter().all(|name| mount_at(&scene.path(name)).is_some()),
        "{:?}",
        mounts_below(&scene.path(""))
    );
    assert_eq!(loops_below(&scene.daemon.local_dir()).len(), 1);
}

/// The orchestrator made the target, so it removes it.
#[track_caller]
fn remove_target(scene: &mut Scene) {
    unpublish(scene).expect("unpublish");
    let target = scene.path("target");
    assert!(mount_at(&target).is_none() && target.exists());
    if target.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) }
        .expect("remove the target");
}

#[test]
fn a_blank_volume_is_formatted_and_published() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["target"]);
        scene.write("target/file");
        scene.assert_written("target/file");
        remove_target(scene);
        scene.daemon.assert_node_is_clean();
    };
    Trial { scene: blank, ask: publish, check, steps: CHANGING }.run();
}

#[test]
fn a_file_system_is_unpublished_and_taken_from_the_node() {
    let check = |scene: &mut Scene| {
        scene.daemon.assert_node_is_clean();
        publish(scene).expect("publish again");
        scene.assert_written("target/file");
        remove_target(scene);
    };
    Trial { scene: published, ask: unpublish, check, steps: CHANGING }.run();
}

#[test]
fn a_staged_volume_is_published() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage", "target"]);
        scene.assert_written("target/file");
        remove_target(scene);
        assert_mounted(scene, &["stage"]);
    };
    Trial { scene: staged_through_v1, ask: publish, check, steps: CHANGING }.run();
}

#[test]
fn a_volume_stays_staged_when_it_is_unpublished() {
    let check = |scene: &mut Scene| {
        assert_mounted(scene, &["stage"]);
        scene.assert_written("stage/file");
        remove_target(scene);
    };
    Trial { scene: published_beside_a_stage, ask: unpublish, check, steps: CHANGING }.run();
}

#[test]
fn a_device_is_published_without_a_stage() {
    let check = |scene: &mut Scene| {
        assert_eq!(loops_below(&scene.daemon.local_dir()).len(), 1);
        remove_target(scene);
        scene.daemon.assert_node_is_clean();
    };
    Trial { scene: blank_device, ask: publish_device, check, steps: CHANGING }.run();
}

#[test]
fn a_device_without_a_stage_is_unpublished() {
    let check = |scene: &mut Scene| {
        scene.daemon.assert_node_is_clean();
        remove_target(scene);
    };
    Trial { scene: published_device, ask: unpublish, check, steps: CHANGING }.run();
}

/// The orchestrator gives up the publishing and publishes elsewhere. Only a mount is in the way.
#[test]
fn a_publishing_that_died_leaves_the_volume_free_unless_it_is_mounted() {
    let prepared = || {
        let mut scene = blank();
        assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
        scene
    };
    let elsewhere =
        |scene: &Scene| v0::publish(scene.id(), &scene.daemon.text("elsewhere"), v0::mount("ext4"));
    let mut rehearsal = prepared();
    assert!(rehearsal.daemon.start_to_crash(usize::MAX), "not that soon");
    publish(&mut rehearsal).expect("publish");
    rehearsal.daemon.kill9();
    let points = Points::heard_by(&rehearsal);
    let mut free = 0;
    for point in points.before + 1..=points.before + points.during.len() {
        let mut scene = prepared();
        assert!(scene.daemon.start_to_crash(point), "it is ready before it dies");
        publish(&mut scene).expect_err("it dies");
        scene.daemon.wait();
        scene.daemon.await_leftovers();
        scene.daemon.restart();
        let published = Client::of(&scene.daemon).publish(&elsewhere(&scene));
        let at = match mount_at(&scene.path("target")) {
            Some(_) => {
                assert_eq!(published.expect_err("it is mounted").code, Code::FAILED_PRECONDITION);
                "target"
            }
            None => {
                published.unwrap_or_else(|failure| panic!("{point}: {failure:?}"));
                free += 1;
                "elsewhere"
            }
        };
        let request = v0::unpublish(scene.id(), &scene.daemon.text(at));
        Client::of(&scene.daemon).node_unpublish_volume(&request).expect("unpublish");
        scene.daemon.assert_node_is_clean();
        // The target was there before, so it is the orchestrator's.
        fs::remove_dir(scene.path("target")).expect("remove the target");
        scene.assert_leaves_nothing();
    }
    assert!(free > 3, "{free} of {:?}", points.during);
}

/// Every change and every sync on the way, from the ready daemon to the answer.
fn steps_of(create: fn(&Scene)) -> Vec<String> {
    let mut scene = Scene::new();
    assert!(scene.daemon.terminate().success());
    assert!(scene.daemon.start_to_crash(usize::MAX), "not that soon");
    create(&scene);
    scene.daemon.kill9();
    Points::heard_by(&scene).during
}

#[test]
fn a_creation_takes_the_same_steps_through_both_protocols() {
    let v1 = steps_of(|scene| drop(scene.client().create(&requests::volume("one")).expect("create")));
    let v0 = steps_of(|scene| drop(Client::of(&scene.daemon).create(&v0::volume("one")).expect("create")));
    assert!(v1.iter().any(|step| step.contains("sync")), "{v1:?}");
    assert_eq!(v0, v1);
}
