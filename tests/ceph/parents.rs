//! Deleted volumes that clones still read from go with the last of these, also where the last two go at once.

use std::io::Write;
use std::process::{Child, Stdio};
use std::sync::Barrier;
use std::thread;

use crate::support::corner::await_that;
use crate::support::requests::*;
use crate::support::{Client, Corner, is_full};

/// So many parents lose their last two clones at once.
fn pairs() -> usize {
    if is_full() { 40 } else { 2 }
}

/// A volume with two clones, deleted; the clones.
fn clones_of_deleted(corner: &Corner, client: &Client, number: usize) -> [String; 2] {
    let name = |what: &str| format!("{what}-{number}");
    let parent = client.create(&corner.volume(&name("parent"), 4)).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot(&name("taken"), &parent)).expect("take a snapshot");
    let taken = taken.snapshot.snapshot_id.clone();
    let clone = |what: &str| {
        let asked = from_snapshot(corner.volume(&name(what), 4), &taken);
        client.create(&asked).expect("clone").volume_id
    };
    let clones = [clone("first"), clone("second")];
    client.delete_volume(&delete(&parent)).expect("delete the parent");
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete its snapshot");
    clones
}

#[test]
fn parents_go_with_the_last_two_clones_at_once() {
    let corner = Corner::new();
    let daemons = [1, 2].map(|number| corner.setup_of(number).start());
    for number in 0..pairs() {
        let clones = clones_of_deleted(&corner, &daemons[0].client(), number);
        let at_once = Barrier::new(2);
        thread::scope(|scope| {
            for (daemon, clone) in daemons.iter().zip(&clones) {
                scope.spawn(|| {
                    let client = daemon.client();
                    at_once.wait();
                    await_that("the clone is deleted", || {
                        client.delete_volume(&delete(clone)).map_err(|refused| refused.message)
                    });
                });
            }
        });
    }
    corner.await_empty();
}

#[test]
fn content_goes_with_a_parent_that_is_large_for_a_call() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let large = |name: &str| corner.volume(name, 5 << 10);
    let parent = client.create(&large("parent")).expect("create").volume_id;
    corner.poke(&parent, 4 << 30, b"content");
    let clone = client.create(&from_volume(large("clone"), &parent)).expect("clone").volume_id;
    client.delete_volume(&delete(&parent)).expect("delete the parent");
    client.delete_volume(&delete(&clone)).expect("delete the clone");
    corner.await_empty();
}

/// A client that has an image open, wherever that is.
struct Watch(Child);

impl Watch {
    fn of(corner: &Corner, id: &str) -> Self {
        let header = format!("rbd_header.{id}");
        let place = ["--pool", "rbd", "--namespace", &corner.namespace];
        let mut rados = corner.cluster.command("rados");
        rados.args(place).args(["watch", &header]);
        rados.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let watch = Self(rados.spawn().expect("rados"));
        await_that("the image is open", || {
            let watchers = corner.cluster.rados(&[&place[..], &["listwatchers", &header]].concat());
            if watchers.is_empty() { Err("no watcher".to_string()) } else { Ok(()) }
        });
        watch
    }

    /// It closes the image.
    fn end(mut self) {
        self.0.stdin.take().expect("stdin is piped").write_all(b"\n").expect("say that it is over");
        assert!(self.0.wait().expect("its end").success());
    }
}

/// 0.1.0 had librbd keep them in the trash, where it leaves those that somebody has open when the last clone
/// goes.
#[test]
fn what_0_1_0_left_in_the_trash_is_purged() {
    let corner = Corner::new();
    let [parent, clone] = ["2", "3"].map(|digit| corner.spec(&format!("csi-vol-{}", digit.repeat(13))));
    let snapshot = format!("{parent}@taken");
    let rbd = |arguments: &[&str]| corner.cluster.rbd(arguments);
    rbd(&["create", "--size", "16M", &parent]);
    rbd(&["snap", "create", &snapshot]);
    rbd(&["clone", "--rbd-default-clone-format=2", &snapshot, &clone]);
    rbd(&["snap", "rm", &snapshot]);
    let id = corner.json(&["info", &parent])["id"].as_str().expect("an id").to_string();
    rbd(&["rm", "--no-progress", "--rbd-move-parent-to-trash-on-remove=true", &parent]);
    let watch = Watch::of(&corner, &id);
    rbd(&["rm", "--no-progress", &clone]);
    watch.end();
    assert!(rbd(&["trash", "ls", "--all", &corner.place()]).contains(&id), "librbd has left it");
    let _daemon = corner.start();
    corner.await_empty();
}
