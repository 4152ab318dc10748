//! A node does not give back a volume that is taken from it: that node's client is shut out, and no other.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::spawn;

use super::scene::{Scene, Volume, connected, devices};
use super::toolbox::CEPH;
use crate::support::client::Answer;
use crate::support::machine::{run, text};
use crate::support::requests::*;
use crate::support::{Cluster, Code, MIB, await_that, cluster, refused};

/// Writes to a file and waits until the cluster has it.
pub(super) fn write(scene: &Scene, file: &str, content: &str) -> std::io::Result<()> {
    let mut file = File::create(scene.path(file))?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}

/// The entries of the blocklist that are for a single client, with the year in which each ends.
pub(super) fn shut_out(cluster: &Cluster) -> Vec<(String, u32)> {
    let text = cluster.ceph(&["osd", "blocklist", "ls"]);
    let entry = |line: &str| {
        let (address, until) = line.split_once(' ')?;
        Some((address.to_string(), until.get(..4)?.parse().ok()?))
    };
    text.lines().filter_map(entry).filter(|(address, _)| !address.ends_with(":0/0")).collect()
}

/// The addresses of the clients that have the image open.
fn watchers(volume: &Volume) -> Vec<String> {
    let status = cluster().rbd(&["status", "--format=json", &volume.spec()]);
    let parts = status.split("\"address\":\"").skip(1);
    parts.filter_map(|part| part.split('"').next()).map(String::from).collect()
}

/// The address of the only client. A command that had the image open just before may still be a watcher.
fn only_client(volume: &Volume) -> String {
    await_that("there is one client", || match <[String; 1]>::try_from(watchers(volume)) {
        Ok([client]) => Ok(client),
        Err(watchers) => Err(format!("{watchers:?}")),
    })
}

/// The record of the volume's nodes, in a lock on the image's header.
fn clients(volume: &Volume) -> String {
    let id = volume.id.rsplit(':').next().expect("the image's id");
    cluster().rados(&[
        "-p",
        "rbd",
        "lock",
        "info",
        &format!("rbd_header.{id}"),
        "cephlet.clients",
        "--format=json",
    ])
}

fn take_from(scene: &Scene, volume: &Volume, node: &str) -> Answer<()> {
    scene.controller.client().controller_unpublish_volume(&unpublish_from(&volume.id, node)).map(drop)
}

/// Every report of the node on a volume says that the volume was shut out, and what to do.
#[track_caller]
fn assert_told_shut_out(scene: &Scene, volume: &Volume) {
    // The kernel's client learns of the fence a moment later.
    let mut told =
        vec![scene.await_trouble(volume, "target", || ()), scene.await_trouble(volume, "stage", || ())];
    let shown = scene.node.client().controller_get_volume(&get(&volume.id)).expect("get");
    told.push(shown.status.volume_condition.message.clone());
    for said in told {
        assert!(said.contains("shut out") || said.contains("blocklisted"), "{said}");
        assert!(said.contains("unpublish and unstage") && said.contains("stage it again"), "{said}");
    }
}

fn a_lost_volume_is_taken_back(mounter: &str) {
    let scene = Scene::alone_with_a_full_node();
    let before = shut_out(cluster());
    let volume = scene.use_volume("one", 32, mount("ext4"), &[("mounter", mounter)]);
    let other = scene.give("two", 32, mount("ext4"), &[("mounter", mounter)]);
    scene.stage(&other, "stage2").expect("stage the other");
    write(&scene, "target/file", "before").expect("write");
    write(&scene, "stage2/file", "before").expect("write");
    let client = only_client(&volume);
    assert!(clients(&volume).contains(&client), "{client} is written down: {}", clients(&volume));

    take_from(&scene, &volume, "node-1").expect("take it from the node");
    let entries: Vec<_> = shut_out(cluster()).into_iter().filter(|entry| !before.contains(entry)).collect();
    let [(address, until)] = entries.try_into().expect("one entry");
    assert_eq!(address, client, "UNSAFE: another client is shut out");
    assert!(until > 2029, "UNSAFE: the entry ends in {until}, while the mapping may live");
    assert_told_shut_out(&scene, &volume);
    write(&scene, "target/late", "late").expect_err("UNSAFE: a node writes to what was taken from it");
    assert_told_shut_out(&scene, &volume);
    assert!(!scene.stats(&other, "stage2").expect("stats").volume_condition.abnormal, "it is disturbed");
    write(&scene, "stage2/file", "after").expect("UNSAFE: another volume of the node is disturbed");

    // It is given to another node at once, and taken back from there.
    let request = publish_to(&volume.id, "node-2");
    scene.controller.client().controller_publish_volume(&request).expect("give it to another");
    take_from(&scene, &volume, "node-2").expect("take it back");
    let volume = scene.publish_to_node(volume, false);
    let parts = ["shut out", client.as_str(), "target"];
    refused(scene.stage(&volume, "stage"), Code::FAILED_PRECONDITION, &parts);
    refused(scene.publish(&volume, "stage", "target"), Code::FAILED_PRECONDITION, &parts);
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.stage(&volume, "stage").expect("it is made ready anew by itself");
    assert_eq!(fs::read_to_string(scene.path("stage/file")).expect("read"), "before");
    assert!(!scene.path("stage/late").exists(), "UNSAFE: what was refused was written");
    write(&scene, "stage/file", "after").expect("write again");

    scene.retire(&volume, &[], &["stage"]);
    scene.retire(&other, &[], &["stage2"]);
    // No code lifts the fence.
    let left: Vec<_> = shut_out(cluster()).into_iter().filter(|entry| !before.contains(entry)).collect();
    assert_eq!(
        left.iter().map(|(address, _)| address).collect::<Vec<_>>(),
        [&client],
        "ordinary lives leave nothing"
    );
    cluster().ceph(&["osd", "blocklist", "rm", &client]);
    assert!(devices(&volume).is_empty() && connected().is_empty());
    scene.assert_clean();
}

/// This machine cannot reach the cluster; only the tools can, as they run on another machine.
struct Cut(String);

impl Cut {
    fn off() -> Self {
        let host = cluster().mon_host().rsplit_once(':').expect("a port").0.to_string();
        run("ip", &["route", "add", "blackhole", &host]);
        Self(host)
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        run("ip", &["route", "del", "blackhole", &self.0]);
    }
}

/// A node that is to be lost.
struct Lost {
    /// The tools of Ceph on the node.
    tools: &'static [&'static str],
    mounter: &'static str,
    /// Whether its daemon dies while it is cut off.
    dies: bool,
}

/// Begins a write that is large enough to last as long as the cluster does not answer; reports whether it
/// succeeded.
fn begin_writing(path: PathBuf) -> Receiver<bool> {
    let (told, written) = channel();
    spawn(move || {
        let result = File::create(path).and_then(|mut file| {
            file.write_all(&[7; 1 << 20])?;
            file.sync_all()
        });
        told.send(result.is_ok())
    });
    written
}

/// Another client writes to the image, and notes in a snapshot what it has written.
pub(super) fn write_elsewhere(volume: &Volume) {
    let writes = ["bench", "--io-type=write", "--io-size=4096", "--io-total=4M", "--io-pattern=seq"];
    cluster().rbd(&[&writes[..], &[&volume.spec()]].concat());
    cluster().rbd(&["snap", "create", "--no-progress", &format!("{}@b", volume.spec())]);
}

#[track_caller]
pub(super) fn assert_written_elsewhere_stands(volume: &Volume) {
    let changed = cluster().rbd(&["diff", "--from-snap=b", "--format=json", &volume.spec()]);
    assert_eq!(changed, "[]", "UNSAFE: what the other has written is changed");
    cluster().rbd(&["snap", "rm", "--no-progress", &format!("{}@b", volume.spec())]);
}

/// Takes a snapshot, for which the kernel gives up the image's lock. The frozen file system writes nothing
/// for which the kernel would take the lock again.
fn take_snapshot(scene: &Scene, volume: &Volume, mounter: &str) -> String {
    let target = scene.path("target");
    run("fsfreeze", &["--freeze", text(&target)]);
    let taken = scene.controller.client().create_snapshot(&snapshot("drill", &volume.id)).expect("snapshot");
    let locks = cluster().rbd(&["lock", "ls", &volume.spec()]);
    run("fsfreeze", &["--unfreeze", text(&target)]);
    assert!(mounter != "rbd" || locks.is_empty(), "{locks}");
    taken.snapshot.snapshot_id.clone()
}

/// The node gives back what it had, and uses the volume as a device: the other client wrote no file system.
fn stage_anew(scene: &Scene, volume: Volume) -> Volume {
    scene.unpublish(&volume, "target").expect("unpublish");
    scene.unstage(&volume, "stage").expect("unstage");
    let volume = scene.publish_to_node(Volume { capability: block(), ..volume }, false);
    scene.stage(&volume, "stage").expect("stage");
    scene.publish(&volume, "stage", "target").expect("publish");
    write(scene, "target", "after").expect("the node is shut out no more");
    volume
}

/// A node is cut off for longer than its watch lives, with a write under way, and comes back after another
/// client has written. A node with tools holds no lock then: it has given the lock up for a snapshot.
fn a_node_is_cut_off(lost: &Lost) {
    let mut scene = Scene::alone_with(lost.tools);
    let parameters = [("mounter", lost.mounter)];
    let volume = scene.use_volume("one", 8, mount("ext4"), &parameters);
    let other = scene.give("two", 8, mount("ext4"), &parameters);
    scene.stage(&other, "stage2").expect("stage the other");
    write(&scene, "target/file", "before").expect("write");
    let client = only_client(&volume);
    let controller = scene.controller.client();
    let taken = (!lost.tools.is_empty()).then(|| take_snapshot(&scene, &volume, lost.mounter));
    let cut = Cut::off();
    let pending = begin_writing(scene.path("target/pending"));
    await_that("the cluster forgets the node", || match watchers(&volume) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    if lost.dies {
        scene.node.kill9();
    }
    assert_eq!(pending.try_recv(), Err(TryRecvError::Empty), "the write is under way");
    take_from(&scene, &volume, "node-1").expect("take it from the node");
    controller.controller_publish_volume(&publish_to(&volume.id, "node-2")).expect("give it to another");
    write_elsewhere(&volume);

    drop(cut);
    assert_eq!(pending.recv(), Ok(false), "UNSAFE: a write that was kept went through");
    write(&scene, "target/late", "late").expect_err("UNSAFE: a node writes to what was taken from it");
    write(&scene, "stage2/file", "after").expect("UNSAFE: another volume of the node is disturbed");
    assert_written_elsewhere_stands(&volume);

    take_from(&scene, &volume, "node-2").expect("take it back");
    if lost.dies {
        scene.node.restart();
    }
    if let Some(taken) = taken {
        controller.delete_snapshot(&delete_snapshot(&taken)).expect("delete the snapshot");
    }
    let volume = stage_anew(&scene, volume);
    scene.retire(&volume, &["target"], &["stage"]);
    scene.retire(&other, &[], &["stage2"]);
    cluster().ceph(&["osd", "blocklist", "rm", &client]);
    assert!(connected().is_empty());
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_that_was_cut_off_writes_nothing_when_it_is_back() {
    a_node_is_cut_off(&Lost { tools: CEPH, mounter: "rbd", dies: false });
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_that_was_cut_off_writes_nothing_by_rbd_nbd_when_it_is_back() {
    a_node_is_cut_off(&Lost { tools: CEPH, mounter: "rbd-nbd", dies: false });
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_node_that_was_cut_off_without_a_daemon_writes_nothing_when_it_is_back() {
    a_node_is_cut_off(&Lost { tools: CEPH, mounter: "rbd", dies: true });
}

/// The node holds the image's lock.
#[test]
#[ignore = "long: tests/run --full"]
fn a_node_without_tools_that_was_cut_off_writes_nothing_when_it_is_back() {
    a_node_is_cut_off(&Lost { tools: &[], mounter: "rbd", dies: false });
}

#[test]
fn a_volume_that_is_taken_back_while_it_is_staged_is_lost_to_the_node() {
    a_lost_volume_is_taken_back("rbd");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_of_rbd_nbd_that_is_taken_back_while_it_is_staged_is_lost_to_the_node() {
    a_lost_volume_is_taken_back("rbd-nbd");
}

/// A volume that the node has published to itself, as for an orchestrator without a controller: no request
/// brings a publish context by which to tell.
#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_of_the_nodes_own_that_is_shut_out_is_not_published() {
    let scene = Scene::new();
    let volume = scene.make(volume_as("own", 32 * MIB, mount("ext4")));
    scene.stage(&volume, "stage").expect("stage");
    let client = only_client(&volume);
    cluster().ceph(&["osd", "blocklist", "add", &client]);
    let parts = ["shut out", client.as_str(), "stage it again"];
    refused(scene.publish(&volume, "stage", "target"), Code::FAILED_PRECONDITION, &parts);
    scene.stage(&volume, "stage").expect("it is made ready anew");
    scene.publish(&volume, "stage", "target").expect("publish");
    write(&scene, "target/file", "after").expect("write");
    scene.retire(&volume, &["target"], &["stage"]);
    cluster().ceph(&["osd", "blocklist", "rm", &client]);
    scene.assert_clean();
}

#[test]
#[ignore = "long: tests/run --full"]
fn many_lives_shut_nobody_out() {
    let scene = Scene::alone();
    let listed = || cluster().ceph(&["osd", "blocklist", "ls"]);
    let before = listed();
    let mut volume = scene.make(volume_as("lives", 8 * MIB, block()));
    for _ in 0..20 {
        volume = scene.publish_to_node(volume, false);
        scene.stage(&volume, "stage").expect("stage");
        scene.publish(&volume, "stage", "target").expect("publish");
        scene.unpublish(&volume, "target").expect("unpublish");
        scene.unstage(&volume, "stage").expect("unstage");
        take_from(&scene, &volume, "node-1").expect("take it from the node");
    }
    // An earlier entry may have expired.
    let new: Vec<String> = listed().lines().filter(|line| !before.contains(line)).map(String::from).collect();
    assert_eq!(new, Vec::<String>::new());
    assert_eq!(cluster().holders("rbd", volume.id.rsplit(':').next().expect("the image's id")), "");
    scene.retire(&volume, &[], &[]);
    scene.assert_clean();
}
