//! Many clients, and a daemon that is killed at random moments: acknowledged changes stay.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use super::scene::Scene;
use crate::support::client::Answer;
use crate::support::dice::Dice;
use crate::support::machine::{is_mounted, loops_below, run};
use crate::support::requests::*;
use crate::support::{Client, Code, MIB, PATIENCE};

const SEED: u64 = 0x5eed_0ce9_41e7;
const KILLS: usize = 20;
const CLIENTS: usize = 4;
/// A client has no more volumes than this at once.
const VOLUMES: usize = 4;
/// After so many refusals for now, a call counts as refused for good.
const TRIES: usize = 1000;

/// The state that the clients share with the killer.
struct Storm {
    scene: Mutex<Scene>,
    /// Held for writing while no daemon serves.
    serving: RwLock<()>,
    acknowledged: Mutex<usize>,
    more_acknowledged: Condvar,
    over: AtomicBool,
}

impl Storm {
    /// Asks until the answer is definite, across as many lives of the daemon as it takes.
    #[track_caller]
    fn insist<T>(&self, what: &str, ask: impl Fn(&Client) -> Answer<T>) -> T {
        for _ in 0..TRIES {
            drop(self.serving.read().expect("nobody panicked"));
            let client = self.scene.lock().expect("nobody panicked").client();
            match ask(&client) {
                Ok(answer) => {
                    *self.acknowledged.lock().expect("nobody panicked") += 1;
                    self.more_acknowledged.notify_all();
                    return answer;
                }
                Err(failure) if matches!(failure.code, Code::UNAVAILABLE | Code::ABORTED) => {}
                Err(failure) => panic!("{what}: {failure:?}"),
            }
        }
        panic!("{what}: refused {TRIES} times");
    }

    fn text(&self, name: &str) -> String {
        self.scene.lock().expect("nobody panicked").daemon.text(name)
    }

    /// Kills the daemon a random time after a random number of calls were answered, and starts it again.
    fn strike(&self, dice: &mut Dice) {
        let before = self.acknowledged.lock().expect("nobody panicked");
        let enough = *before + 1 + dice.below(12);
        let waited = self
            .more_acknowledged
            .wait_timeout_while(before, PATIENCE, |now| *now < enough)
            .expect("nobody panicked");
        assert!(!waited.1.timed_out(), "no call was answered for {PATIENCE:?}");
        drop(waited);
        // The random moment is what is tested here; the sleep waits for nothing.
        thread::sleep(Duration::from_micros(dice.below(8000) as u64));
        let _down = self.serving.write().expect("nobody panicked");
        let mut scene = self.scene.lock().expect("nobody panicked");
        scene.daemon.kill9();
        // This kills formatters and helpers, too.
        scene.daemon.kill_leftovers();
        scene.daemon.restart();
    }
}

/// The state of a volume after the acknowledged calls.
#[derive(Clone, Debug)]
struct Known {
    id: String,
    mib: i64,
    snapshot: Option<String>,
    in_use: bool,
    written: bool,
}

/// One client and its volumes, by name.
struct Customer<'a> {
    storm: &'a Storm,
    number: usize,
    dice: Dice,
    made: usize,
    volumes: BTreeMap<String, Known>,
}

impl Customer<'_> {
    fn run(mut self) -> BTreeMap<String, Known> {
        while !self.storm.over.load(Ordering::SeqCst) {
            match self.some_volume() {
                Some(name) if self.volumes.len() == VOLUMES || self.dice.below(4) > 0 => {
                    self.use_volume(&name)
                }
                _ => self.create(),
            }
        }
        self.volumes
    }

    fn some_volume(&mut self) -> Option<String> {
        let at = self.dice.below(self.volumes.len().max(1));
        self.volumes.keys().nth(at).cloned()
    }

    fn create(&mut self) {
        let name = format!("c{}-{}", self.number, self.made);
        self.made += 1;
        let request = volume_as(&name, 16 * MIB, mount("ext4"));
        let made = self.storm.insist("create", |client| client.create(&request));
        self.volumes.insert(
            name,
            Known { id: made.volume_id, mib: 16, snapshot: None, in_use: false, written: false },
        );
    }

    fn use_volume(&mut self, name: &str) {
        let choice = self.dice.below(5);
        let mut known = self.volumes.remove(name).expect("it is there");
        match choice {
            0 if !known.in_use => return self.delete(&known),
            1 => self.toggle_snapshot(name, &mut known),
            2 => self.expand(&mut known),
            _ if known.in_use => self.put_down(name, &mut known),
            _ => self.pick_up(name, &mut known),
        }
        self.volumes.insert(name.to_string(), known);
    }

    fn delete(&self, known: &Known) {
        self.storm.insist("delete", |client| client.delete_volume(&delete(&known.id)));
        if let Some(id) = &known.snapshot {
            self.storm.insist("delete a snapshot", |client| client.delete_snapshot(&delete_snapshot(id)));
        }
    }

    fn toggle_snapshot(&self, name: &str, known: &mut Known) {
        known.snapshot = match known.snapshot.take() {
            Some(id) => {
                self.storm
                    .insist("delete a snapshot", |client| client.delete_snapshot(&delete_snapshot(&id)));
                None
            }
            // No blocks are shared here: only a volume that is not attached can be copied.
            None if known.in_use => None,
            None => {
                let reply = self
                    .storm
                    .insist("take a snapshot", |client| client.create_snapshot(&snapshot(name, &known.id)));
                Some(reply.snapshot.snapshot_id.clone())
            }
        };
    }

    fn expand(&self, known: &mut Known) {
        known.mib += 4;
        self.storm
            .insist("expand", |client| client.controller_expand_volume(&expand(&known.id, known.mib * MIB)));
    }

    fn pick_up(&self, name: &str, known: &mut Known) {
        let [staging, target] = self.paths(name);
        self.storm
            .insist("stage", |client| client.node_stage_volume(&stage(&known.id, &staging, mount("ext4"))));
        self.storm.insist("publish", |client| {
            client.node_publish_volume(&publish(&known.id, &staging, &target, mount("ext4")))
        });
        let file = format!("{target}/file");
        match known.written {
            true => {
                assert_eq!(run("cat", &[&file]), name, "what was written before is there in every later use")
            }
            false => drop(run("sh", &["-ec", "printf %s $1 >$2", "write", name, &file])),
        }
        (known.in_use, known.written) = (true, true);
    }

    fn put_down(&self, name: &str, known: &mut Known) {
        let [staging, target] = self.paths(name);
        self.storm.insist("unpublish", |client| client.node_unpublish_volume(&unpublish(&known.id, &target)));
        self.storm.insist("unstage", |client| client.node_unstage_volume(&unstage(&known.id, &staging)));
        known.in_use = false;
    }

    fn paths(&self, name: &str) -> [String; 2] {
        ["stage", "target"].map(|kind| self.storm.text(&format!("{kind}-{name}")))
    }
}

/// Lets clients work while the daemon is killed again and again; returns what was acknowledged.
fn rage(storm: &Storm) -> BTreeMap<String, Known> {
    thread::scope(|scope| {
        let begin = |number: usize| {
            let dice = Dice(SEED + number as u64);
            let customer = Customer { storm, number, dice, made: 0, volumes: BTreeMap::new() };
            scope.spawn(move || customer.run())
        };
        let clients: Vec<_> = (1..=CLIENTS).map(begin).collect();
        let mut dice = Dice(SEED);
        for _ in 0..KILLS {
            storm.strike(&mut dice);
        }
        storm.over.store(true, Ordering::SeqCst);
        clients
            .into_iter()
            .flat_map(|client| client.join().expect("a client was told something else"))
            .collect()
    })
}

/// Asserts that everything acknowledged exists, and nothing else.
fn assert_as_acknowledged(scene: &Scene, told: &BTreeMap<String, Known>) {
    let snapshots = told.values().filter(|known| known.snapshot.is_some()).count();
    scene.assert_holds(told.len(), snapshots);
    scene.assert_nothing_twice();
    for (name, known) in told {
        let got = scene
            .client()
            .controller_get_volume(&get(&known.id))
            .unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        assert_eq!(got.volume.capacity_bytes, known.mib * MIB, "{name}");
        assert_eq!(is_mounted(&scene.path(&format!("target-{name}"))), known.in_use, "{name}");
        if let Some(id) = &known.snapshot {
            scene
                .client()
                .get_snapshot(&get_snapshot(id))
                .unwrap_or_else(|failure| panic!("{name}: {failure:?}"));
        }
    }
    let in_use = told.values().filter(|known| known.in_use).count();
    assert_eq!(loops_below(&scene.daemon.local_dir()).len(), in_use);
}

#[test]
#[ignore = "random: tests/run --full"]
fn what_was_acknowledged_stays_so() {
    let storm = Storm {
        scene: Mutex::new(Scene::new()),
        serving: RwLock::new(()),
        acknowledged: Mutex::new(0),
        more_acknowledged: Condvar::new(),
        over: AtomicBool::new(false),
    };
    let told = rage(&storm);
    let mut scene = storm.scene.into_inner().expect("nobody panicked");
    scene.daemon.restart();
    assert_as_acknowledged(&scene, &told);
    for (name, known) in told {
        let [staging, target] = ["stage", "target"].map(|kind| scene.daemon.text(&format!("{kind}-{name}")));
        scene.client().node_unpublish_volume(&unpublish(&known.id, &target)).expect("unpublish");
        scene.client().node_unstage_volume(&unstage(&known.id, &staging)).expect("unstage");
        assert!(!fs::exists(&target).expect("look at the target"), "{target} was made and not removed");
        scene.snapshots.extend(known.snapshot);
        scene.volumes.push(known.id);
    }
    scene.assert_leaves_nothing();
}
