//! Sessions that are killed at random moments, while volumes are made, copied, changed and removed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::killer::{CRASHED, FORGOTTEN, forget_the_dead};
use crate::support::client::Answer;
use crate::support::cluster::cluster;
use crate::support::dice::Dice;
use crate::support::machine::Checksum;
use crate::support::place::MIBS;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, Group, LONG_PATIENCE, MIB, Place, is_full};

/// How many volumes live at once.
const VOLUMES: usize = 24;
/// How often one daemon loses its session. After more within a minute it starts no other for a while.
const KILLS_OF_A_DAEMON: usize = 4;
/// The steps of a life, in their order.
const STEPS: [&str; 7] = ["create", "publish", "unpublish", "copy", "snapshot", "expand", "delete"];

/// How many times each step is under way when the session is killed, at least.
fn kills() -> usize {
    if is_full() { 50 } else { 10 }
}

/// The step that each volume of a round takes.
#[derive(Default)]
struct Steps {
    now: Mutex<[Option<&'static str>; VOLUMES]>,
    changed: Condvar,
}

impl Steps {
    fn enter(&self, volume: usize, step: Option<&'static str>) {
        self.now.lock().expect("a thread panicked")[volume] = step;
        self.changed.notify_all();
    }

    /// The steps that are under way.
    fn now(&self) -> Vec<&'static str> {
        self.now.lock().expect("a thread panicked").iter().copied().flatten().collect()
    }

    /// Waits until a volume takes `step`, or `is_over`.
    fn wait_for(&self, step: &str, is_over: impl Fn() -> bool) {
        let now = self.now.lock().expect("a thread panicked");
        let goes_on = |now: &mut [Option<&str>; VOLUMES]| !now.contains(&Some(step)) && !is_over();
        drop(self.changed.wait_while(now, goes_on).expect("a thread panicked"));
    }
}

/// How often the steps of each kind have been broken off, and how many processes were killed.
#[derive(Debug)]
struct BrokenOff {
    steps: BTreeMap<&'static str, usize>,
    killed: usize,
}

impl BrokenOff {
    fn new() -> Self {
        Self { steps: STEPS.map(|step| (step, 0)).into(), killed: 0 }
    }

    /// Counts the steps that were under way when so many processes were killed.
    fn count(&mut self, steps: Vec<&'static str>, killed: usize) {
        if killed > 0 {
            steps.into_iter().for_each(|step| *self.steps.entry(step).or_default() += 1);
        }
        self.killed += killed;
    }

    /// The steps that were broken off least, as a life has them.
    fn rarest(&self) -> impl Iterator<Item = &'static str> + use<> {
        let mut steps = STEPS;
        steps.sort_by_key(|step| self.steps[step]);
        STEPS.into_iter().filter(move |step| steps[..KILLS_OF_A_DAEMON].contains(step))
    }

    fn has_all(&self, times: usize) -> bool {
        self.steps.values().all(|count| *count >= times)
    }
}

/// The life of one of the volumes.
struct Life<'a, P> {
    corner: &'a P,
    steps: &'a Steps,
    volume: usize,
}

impl<P: Place> Life<'_, P> {
    /// Takes a step, and repeats its request until it succeeds.
    fn step<T>(&self, step: &'static str, ask: impl Fn() -> Answer<T>) -> T {
        assert!(STEPS.contains(&step), "{step}");
        self.steps.enter(self.volume, Some(step));
        let answer = self.insist(ask);
        self.steps.enter(self.volume, None);
        answer
    }

    fn insist<T>(&self, ask: impl Fn() -> Answer<T>) -> T {
        let (begun, mut forgotten) = (Instant::now(), false);
        loop {
            let failure = match ask() {
                Ok(answer) => return answer,
                Err(failure) => failure,
            };
            let again = matches!(failure.code, Code::UNAVAILABLE | Code::ABORTED | Code::DEADLINE_EXCEEDED)
                || ["forgotten after 30 s", "wait 30 s", "signal 9 ended", CRASHED]
                    .iter()
                    .any(|it| failure.message.contains(it));
            assert!(again && begun.elapsed() < LONG_PATIENCE, "{failure:?}");
            if begun.elapsed() > FORGOTTEN && !std::mem::replace(&mut forgotten, true) {
                forget_the_dead(self.corner.cluster(), &failure);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// All steps, of the volume and of a copy.
    fn live(&self, client: &Client, source: &Source, name: &str) {
        let corner = self.corner;
        let id = self.step("create", || client.create(&corner.request(name))).volume_id;
        self.step("publish", || client.controller_publish_volume(&corner.publication(&id, "node-1")));
        self.step("unpublish", || client.controller_unpublish_volume(&unpublish_from(&id, "node-1")));
        let copied = from_snapshot(corner.request(&format!("{name}-copy")), &source.snapshot);
        let copy = self.step("copy", || client.create(&copied)).volume_id;
        assert_eq!(corner.content(&copy), source.sum, "UNSAFE: a copy has lost data");
        let taken = self.step("snapshot", || client.create_snapshot(&snapshot(name, &copy)));
        self.step("expand", || client.controller_expand_volume(&expand(&copy, 2 * MIBS * MIB)));
        let taken = delete_snapshot(&taken.snapshot.snapshot_id);
        self.step("snapshot", || client.delete_snapshot(&taken));
        for id in [&id, &copy] {
            self.step("delete", || client.delete_volume(&delete(id)));
        }
    }
}

/// A volume with content, a snapshot of it, and the checksum.
struct Source {
    volume: String,
    snapshot: String,
    sum: Checksum,
}

impl Source {
    fn new(corner: &impl Place, client: &Client) -> Self {
        let volume = client.create(&corner.request("source")).expect("create").volume_id;
        corner.fill(&volume);
        let sum = corner.content(&volume);
        let taken = client.create_snapshot(&snapshot("source", &volume)).expect("snapshot");
        Self { volume, snapshot: taken.snapshot.snapshot_id.clone(), sum }
    }
}

/// Kills a daemon's session, and the tools that it has started. Returns how many there were. A session that
/// has no threads yet has not said hello; after one that dies then the daemon does without for a long time.
fn kill_tools(daemon: &Daemon) -> usize {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("the daemon runs").flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<i32> = children
        .flat_map(|all| all.split(' ').filter_map(|it| it.parse().ok()).collect::<Vec<_>>())
        .collect();
    let is_tool = |pid: &&i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        match name.trim() {
            "python3" => threads() > 1,
            tool => ["rbd", "rados", "ceph"].contains(&tool),
        }
    };
    let tools = children.iter().filter(is_tool).filter_map(|pid| Pid::from_raw(*pid));
    // One may just have ended.
    tools.filter(|tool| kill_process(*tool, Signal::KILL).is_ok()).count()
}

/// Kills the tools of a daemon while volumes live, in the steps that were broken off least.
fn storm(
    corner: &impl Place,
    daemon: &Daemon,
    source: &Source,
    (broken_off, round): (&mut BrokenOff, usize),
) {
    let (over, steps) = (AtomicBool::new(false), &Steps::default());
    thread::scope(|scope| {
        let is_over = || over.load(Ordering::Relaxed);
        let killing = scope.spawn(move || {
            let mut dice = Dice::random();
            for step in broken_off.rarest() {
                steps.wait_for(step, is_over);
                // A step takes between a millisecond and seconds.
                thread::sleep(Duration::from_millis(1 << dice.below(10)));
                let mut killed = 0;
                while killed == 0 && !is_over() {
                    thread::sleep(Duration::from_millis(1));
                    let under_way = steps.now();
                    killed = kill_tools(daemon);
                    broken_off.count(under_way, killed);
                }
            }
        });
        let living: Vec<_> = (0..VOLUMES)
            .map(|volume| {
                let name = format!("new-{round}-{volume}");
                let life = Life { corner, steps, volume };
                scope.spawn(move || life.live(&daemon.client(), source, &name))
            })
            .collect();
        living.into_iter().for_each(|one| one.join().expect("a life"));
        over.store(true, Ordering::Relaxed);
        steps.changed.notify_all();
        killing.join().expect("the kills");
    });
}

/// The clients that are shut out: those of dead owners of an image's lock.
fn shut_out() -> usize {
    cluster().ceph(&["osd", "blocklist", "ls"]).lines().count()
}

/// Breaks off every step so many times, and nothing is lost. Returns how many sessions were killed.
fn lose_nothing<P: Place>(kills: usize) -> usize {
    let corner = P::take();
    let mut daemon = corner.setup_of(1).start();
    let source = Source::new(&corner, &daemon.client());
    let mut broken_off = BrokenOff::new();
    for round in 0.. {
        storm(&corner, &daemon, &source, (&mut broken_off, round));
        eprintln!("round {round}: {broken_off:?}");
        if broken_off.has_all(kills) {
            break;
        }
        daemon.restart();
    }
    forget_the_dead(corner.cluster(), &broken_off);
    daemon.client().delete_snapshot(&delete_snapshot(&source.snapshot)).expect("delete the snapshot");
    daemon.client().delete_volume(&delete(&source.volume)).expect("delete");
    corner.assert_nothing();
    daemon.assert_well();
    broken_off.killed
}

#[test]
#[ignore = "random: tests/run --full"]
fn sessions_that_are_killed_lose_no_image() {
    let before = shut_out();
    let killed = lose_nothing::<Corner>(kills());
    let shut_out = shut_out() - before;
    assert!(shut_out <= killed, "{shut_out} clients were shut out, {killed} were killed");
}

#[test]
#[ignore = "random: tests/run --full"]
fn sessions_that_are_killed_lose_no_subvolume() {
    // A copy of a subvolume takes seconds.
    lose_nothing::<Group>(kills().min(20));
}
