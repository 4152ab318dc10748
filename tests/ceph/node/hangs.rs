//! The cluster stands still in the middle of a call, and the daemon is killed: a new one works at once, and
//! when the cluster goes on, everything can be repeated and taken back.

use std::fs;
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use super::scene::{Scene, Volume, connected, device, devices, size_at};
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{LONG_PATIENCE, MIB, PATIENCE};

/// Waits until a process of this program other than the daemon is in state D (it waits for the disk): the
/// helper in its call.
#[track_caller]
fn await_hang(scene: &Scene) {
    let deadline = Instant::now() + PATIENCE;
    while !descendants(scene.node.pid()).into_iter().any(|pid| state(pid) == Some('D')) {
        assert!(Instant::now() < deadline, "nothing hangs");
        sleep(Duration::from_millis(50));
    }
}

/// The state and the parent of a process (proc_pid_stat(5)).
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn state(pid: u32) -> Option<char> {
    state_and_parent(pid).map(|(state, _)| state)
}

fn descendants(of: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let children =
        pids.iter().copied().filter(|pid| state_and_parent(*pid).is_some_and(|(_, parent)| parent == of));
    children.flat_map(|child| std::iter::once(child).chain(descendants(child))).collect()
}

/// Kills the daemon while a call hangs, and starts another one, which serves at once.
#[track_caller]
fn replace_daemon<T: std::fmt::Debug>(scene: &mut Scene, hanging: JoinHandle<Answer<T>>) {
    scene.node.kill9();
    hanging.join().expect("the call ends").expect_err("its daemon was killed");
    scene.node.restart();
    scene.node.assert_well();
}

/// Repeats a call for longer than its first answer may take.
#[track_caller]
pub fn retried(mut call: impl FnMut() -> Answer<()>, what: &str) {
    let deadline = Instant::now() + LONG_PATIENCE;
    while let Err(error) = call() {
        assert!(Instant::now() < deadline, "{what}: {error:?}");
        sleep(Duration::from_millis(500));
    }
}

#[test]
#[ignore = "long: tests/run --full"]
fn killed_in_the_middle_of_a_map() {
    let mut scene = Scene::alone_with(&[]);
    let volume = scene.give("one", 32, mount("ext4"), &[]);
    let paused = scene.cluster().pause("osd");
    let (client, request) = (scene.node.client(), scene.stage_request(&volume, "stage"));
    let hanging = spawn(move || client.node_stage_volume(&request));
    await_hang(&scene);
    replace_daemon(&mut scene, hanging);
    drop(paused);
    retried(|| scene.stage(&volume, "stage"), "stage again");
    device(&volume);
    fs::write(scene.path("stage/file"), "content").expect("write");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}

/// A map whose call no client repeats is taken back all the same. `rbd device map` is not tested, as it was
/// seen to wait for the cluster before it asks the kernel for anything.
#[test]
#[ignore = "long: tests/run --full"]
fn abandoned_in_the_middle_of_a_map() {
    for mounter in ["rbd", "rbd-nbd"] {
        let mut scene = Scene::alone_with(&["rbd-nbd"]);
        let volume = scene.give("one", 32, mount("ext4"), &[("mounter", mounter)]);
        let paused = scene.cluster().pause("osd");
        let (client, request) = (scene.node.client(), scene.stage_request(&volume, "stage"));
        let hanging = spawn(move || client.node_stage_volume(&request));
        match mounter {
            "rbd-nbd" => scene.tools.await_start("rbd-nbd"),
            _ => await_hang(&scene),
        }
        replace_daemon(&mut scene, hanging);
        // The process of rbd-nbd goes on; the process that asks the kernel has died with the daemon.
        let paused = if mounter == "rbd-nbd" {
            scene.unstage(&volume, "stage").expect_err("a map is under way");
            drop(paused);
            None
        } else {
            Some(paused)
        };
        retried(|| scene.unstage(&volume, "stage"), "unstage");
        assert!(devices(&volume).is_empty() && connected().is_empty(), "{mounter}");
        drop(paused);
        scene.retire(&volume, &[], &[]);
        scene.assert_clean();
    }
}

fn write_and_stop<'a>(scene: &Scene, volume: &Volume) -> crate::support::cluster::Paused<'a> {
    fs::write(scene.path("target/file"), vec![7; 1 << 20]).expect("write");
    scene.unpublish(volume, "target").expect("unpublish");
    scene.cluster().pause("osd")
}

#[test]
#[ignore = "long: tests/run --full"]
fn killed_in_the_middle_of_an_unmount() {
    let mut scene = Scene::alone();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    let paused = write_and_stop(&scene, &volume);
    let (client, request) = (scene.node.client(), unstage(&volume.id, &scene.node.text("stage")));
    let hanging = spawn(move || client.node_unstage_volume(&request));
    await_hang(&scene);
    replace_daemon(&mut scene, hanging);
    drop(paused);
    retried(|| scene.unstage(&volume, "stage"), "unstage again");
    scene.stage(&volume, "stage").expect("stage it again");
    assert_eq!(fs::read(scene.path("stage/file")).expect("read"), vec![7; 1 << 20], "UNSAFE: wrong data");
    scene.retire(&volume, &[], &["stage"]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn killed_in_the_middle_of_an_expansion() {
    let mut scene = Scene::alone();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    scene.controller.client().controller_expand_volume(&expand(&volume.id, 64 * MIB)).expect("expand");
    let paused = scene.cluster().pause("osd");
    let (client, request) = (scene.node.client(), scene.expand_request(&volume, "target", 64 * MIB));
    let again = request.clone();
    let hanging = spawn(move || client.node_expand_volume(&request));
    await_hang(&scene);
    replace_daemon(&mut scene, hanging);
    drop(paused);
    retried(|| scene.node.client().node_expand_volume(&again).map(drop), "expand again");
    assert!(size_at(&scene.path("target")) > 50 * MIB);
    assert!(!scene.stats(&volume, "target").expect("stats").volume_condition.abnormal);
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}

/// The kernel has the numbers of a mounted ext4 in memory.
#[test]
#[ignore = "long: tests/run --full"]
fn stats_are_answered_while_the_storage_hangs() {
    let scene = Scene::alone();
    let volume = scene.use_volume("one", 32, mount("ext4"), &[]);
    let paused = scene.cluster().pause("osd");
    assert!(!scene.stats(&volume, "target").expect("stats").volume_condition.abnormal);
    drop(paused);
    scene.retire(&volume, &["target"], &["stage"]);
    scene.assert_clean();
}
