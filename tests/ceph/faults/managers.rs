//! The manager is killed while it makes and copies subvolumes, and another one takes its place. Ceph's
//! clients send it the command again.

use std::thread;

use serde_json::Value;

use crate::controllers::settle;
use crate::support::cli::{command, done};
use crate::support::client::Answer;
use crate::support::requests::*;
use crate::support::{Client, Cluster, Daemon, Group, Place, await_that, is_full};

/// How many managers are killed.
fn kills() -> usize {
    if is_full() { 12 } else { 4 }
}

/// How many callers there are.
const AT_ONCE: usize = 4;
/// How many volumes are made while a manager dies: so many that it dies before the last is made.
const VOLUMES: usize = 100;
/// How many copies.
const COPIES: usize = 4;

/// What `doctor` says of a copy that the manager has lost; its directory follows.
const LOST: &str = "remove its directory ";

/// How long the manager waits before it begins to copy, in seconds.
const DELAY: &str = "mgr/volumes/snapshot_clone_delay";

/// A group of a cluster whose manager dies, and its controller.
struct Scene {
    group: Group,
    daemon: Daemon,
}

impl Scene {
    fn new() -> Self {
        let group = Group::of(Box::leak(Box::new(Cluster::start())));
        let daemon = group.start();
        settle(|| daemon.client().create(&group.request("makes-the-group")));
        Self { group, daemon }
    }

    /// Lets `count` volumes be made, some at once, and replaces the manager when `begun` says so. Each
    /// request is repeated until its volume is there.
    #[track_caller]
    fn make(
        &self,
        count: usize,
        begun: impl Fn() -> bool,
        ask: impl Fn(&Client, usize) -> Answer<String> + Sync,
    ) -> Vec<String> {
        let (daemon, ask) = (&self.daemon, &ask);
        let make = |first: usize| {
            let client = daemon.client();
            (first..count).step_by(AT_ONCE).map(|number| settle(|| ask(&client, number))).collect::<Vec<_>>()
        };
        thread::scope(|scope| {
            let making: Vec<_> = (0..AT_ONCE).map(|first| scope.spawn(move || make(first))).collect();
            await_that("the manager works", || if begun() { Ok(()) } else { Err(String::new()) });
            self.group.cluster.replace("mgr");
            making.into_iter().flat_map(|one| one.join().expect("it converges")).collect()
        })
    }

    /// Deletes all that is left, and asserts that nothing else is. A start sweeps up what a manager has only
    /// half made. Snapshots that it keeps for copies that have ended are freed, and copies that it has lost
    /// are removed, as `doctor` says.
    #[track_caller]
    fn end(mut self) {
        let left: Vec<String> = self.group.volumes().iter().map(|name| self.group.prefix() + name).collect();
        self.clear(&left);
        eprintln!("{} snapshots were kept", self.group.script("free", &self.group.name));
        for directory in self.remedies().iter().filter_map(|mend| Some(mend.split_once(LOST)?.1)) {
            eprintln!("{directory} was lost");
            self.group.script("remove", directory);
        }
        self.daemon.restart();
        self.group.assert_nothing();
        self.daemon.assert_well();
    }

    /// What `doctor` says is to be done about each of its findings.
    #[track_caller]
    fn remedies(&self) -> Vec<String> {
        let found = command(&self.daemon, "doctor --json", "").stdout;
        let found: Vec<Value> = serde_json::from_slice(&found).expect("JSON");
        found.iter().map(|it| it["mend"].as_str().unwrap_or_default().to_string()).collect()
    }

    /// Deletes these volumes.
    #[track_caller]
    fn clear(&self, ids: &[String]) {
        ids.iter().for_each(|id| drop(settle(|| self.daemon.client().delete_volume(&delete(id)))));
    }
}

#[test]
#[ignore = "random: tests/run --full"]
fn creations_whose_manager_dies() {
    let scene = Scene::new();
    for round in 0..kills() {
        let present = scene.group.index().len();
        let begun = || scene.group.index().len() > present + round;
        let ask = |client: &Client, number: usize| {
            client.create(&scene.group.request(&format!("new-{round}-{number}"))).map(|made| made.volume_id)
        };
        let ids = scene.make(VOLUMES, begun, ask);
        assert_eq!(
            scene.group.script("halves", &scene.group.name),
            "",
            "UNSAFE: a half-made subvolume is a volume"
        );
        let again = |number: usize| settle(|| ask(&scene.daemon.client(), number));
        let again: Vec<String> =
            (0..AT_ONCE).flat_map(|first| (first..VOLUMES).step_by(AT_ONCE)).map(again).collect();
        assert_eq!(again, ids, "UNSAFE: another volume is answered");
        assert_eq!(scene.group.volumes().len(), VOLUMES + 1, "UNSAFE: a volume more or less");
        scene.clear(&ids);
    }
    scene.end();
}

/// A manager that dies between the two halves of `snapshot clone` leaves a clone that no manager knows of.
#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_that_no_manager_knows_of_is_made_under_another_name() {
    let mut scene = Scene::new();
    let (group, client) = (&scene.group, scene.daemon.client());
    let source = client.create(&group.request("source")).expect("create").volume_id;
    let first = client.create(&from_volume(group.request("first"), &source)).expect("copy").volume_id;
    group.cluster.ceph(&["config", "set", "mgr", DELAY, "600"]);
    let request = from_volume(group.request("copy"), &source);
    let copying = thread::spawn({
        let (client, request) = (scene.daemon.client(), request.clone());
        move || client.create(&request)
    });
    await_that("the manager has the clone in its list", || {
        match group.script("lose", &group.name).as_str() {
            "1" => Ok(()),
            lost => Err(lost.to_string()),
        }
    });
    group.cluster.ceph(&["config", "rm", "mgr", DELAY]);
    group.cluster.replace("mgr");
    let failure = copying.join().expect("a client").expect_err("the copy is lost");
    assert!(failure.message.contains("its successor does not know of the copy"), "{failure:?}");
    let copy = settle(|| client.create(&request)).volume_id;
    assert_eq!(group.volumes().len(), 4);

    let found = scene.remedies();
    let (_, directory) = found[0].split_once(LOST).unwrap_or_else(|| panic!("{found:?}"));
    group.script("remove", directory);
    scene.clear(&[copy, first, source]);
    scene.daemon.restart();
    assert_eq!(done(&scene.daemon, "doctor"), "nothing was found");
    scene.end();
}

/// A manager that dies between the two halves of the end of a clone keeps its snapshot for ever.
#[test]
#[ignore = "long: tests/run --full"]
fn a_snapshot_that_the_manager_keeps_for_an_ended_copy_is_found_and_can_be_freed() {
    let mut scene = Scene::new();
    let (group, client) = (&scene.group, scene.daemon.client());
    let source = client.create(&group.request("source")).expect("create").volume_id;
    client.create(&from_volume(group.request("copy"), &source)).expect("copy");
    let taken = client.create_snapshot(&snapshot("source", &source)).expect("snapshot");
    group.script("hold", &group.name);
    client.delete_snapshot(&delete_snapshot(&taken.snapshot.snapshot_id)).expect("delete the snapshot");
    client.delete_volume(&delete(&source)).expect("delete the source");
    assert_eq!(group.subvolumes().len(), 3, "the manager keeps the snapshot");
    await_that("doctor finds the snapshot", || {
        let found = scene.remedies();
        let is_found = found.iter().any(|it| it.contains("remove the lines of the section [clone snaps]"));
        if is_found { Ok(()) } else { Err(format!("{found:?}")) }
    });
    assert_eq!(group.script("free", &group.name), "1");
    scene.daemon.restart();
    await_that("the sweep removes it", || match scene.group.subvolumes().len() {
        2 => Ok(()),
        left => Err(left.to_string()),
    });
    assert_eq!(done(&scene.daemon, "doctor"), "nothing was found");
    scene.end();
}

#[test]
#[ignore = "random: tests/run --full"]
fn copies_whose_manager_dies() {
    let scene = Scene::new();
    let client = scene.daemon.client();
    let source = settle(|| client.create(&scene.group.request("source"))).volume_id;
    scene.group.fill(&source);
    let sum = scene.group.content(&source);
    let taken = client.create_snapshot(&snapshot("source", &source)).expect("snapshot");
    let taken = taken.snapshot.snapshot_id.clone();
    for round in 0..kills() {
        let present = scene.group.subvolumes().len();
        let begun = || scene.group.subvolumes().len() > present + round % COPIES;
        let ids = scene.make(COPIES, begun, |client, number| {
            let request = scene.group.request(&format!("copy-{round}-{number}"));
            let request = match number % 2 {
                0 => from_snapshot(request, &taken),
                _ => from_volume(request, &source),
            };
            client.create(&request).map(|made| made.volume_id)
        });
        for id in &ids {
            assert_eq!(scene.group.content(id), sum, "{id}");
        }
        assert_eq!(scene.group.volumes().len(), COPIES + 2, "UNSAFE: a volume more or less");
        scene.clear(&ids);
    }
    settle(|| client.delete_snapshot(&delete_snapshot(&taken)));
    scene.end();
}
