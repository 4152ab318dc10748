//! A request about volumes of a real cluster, of RBD or CephFS: the daemon is killed at a step of it and
//! started again at once, while its session and the processes that it had started go on. The new daemon finds
//! its state directory as it was, or an empty one: in turn at a third of the steps, or both at each of them
//! (TESTS=full).

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use cephlet::proto::csi_v1 as wire;

use super::scene::assert_journal_is_empty;
use super::trial::{Outcome, ask_until_death, await_answer, is_answer, points_in, sample};
use crate::support::client::Answer;
use crate::support::log::Log;
use crate::support::requests::*;
use crate::support::{Client, Code, Corner, Daemon, LONG_PATIENCE, Place, await_that, is_full};

/// Points at which nothing has changed since the previous point. Whether the journal was synced matters only
/// if the machine dies, too.
pub const UNCHANGED: [&str; 5] =
    ["ask the session", "start a process", "write to the journal", "sync the journal", "journal synced"];

/// A daemon that serves a place, and what it has made there.
pub struct Scene<P = Corner> {
    pub daemon: Daemon,
    pub corner: P,
    pub volumes: Vec<String>,
    pub snapshots: Vec<String>,
    stock: Stock,
}

/// What stays for all trials: the number of volumes and snapshots, and what they consist of.
#[derive(Default)]
struct Stock {
    volumes: usize,
    snapshots: usize,
    remains: Vec<String>,
}

impl Scene {
    /// Makes an image of `mib` MiB.
    #[track_caller]
    pub fn have_sized(&mut self, name: &str, mib: i64) {
        let request = self.corner.volume(name, mib);
        self.have_made(&request);
    }
}

impl<P: Place> Scene<P> {
    pub fn client(&self) -> Client {
        self.daemon.client()
    }

    /// The first volume.
    pub fn id(&self) -> &str {
        &self.volumes[0]
    }

    /// Makes a volume of 8 MiB.
    #[track_caller]
    pub fn have(&mut self, name: &str) {
        let request = self.corner.request(name);
        self.have_made(&request);
    }

    #[track_caller]
    fn have_made(&mut self, request: &wire::CreateVolumeRequest) {
        let made = self.client().create(request).expect("create");
        self.volumes.push(made.volume_id);
    }

    /// Makes one with content.
    #[track_caller]
    pub fn have_filled(&mut self, name: &str) {
        self.have(name);
        self.corner.fill(self.volumes.last().expect("a volume"));
    }

    #[track_caller]
    pub fn have_snapshot(&mut self, name: &str) {
        let reply = self.client().create_snapshot(&snapshot(name, self.id())).expect("snapshot");
        self.snapshots.push(reply.snapshot.snapshot_id.clone());
    }

    /// Starts the daemon anew with an empty state directory, waits until the start's own work, which may
    /// vary, is done, and arms the daemon to die at this point from then on. Returns the length of its log
    /// before.
    #[track_caller]
    fn start_anew(&mut self, point: usize) -> usize {
        assert!(self.daemon.terminate().success(), "{}", self.daemon.log.text());
        self.forget();
        let before = self.daemon.log.len();
        assert!(self.daemon.start_to_crash(usize::MAX), "not that soon");
        await_that("it has swept", || {
            let life = self.daemon.log.after(before);
            if has_swept(&life, P::SWEPT) { Ok(()) } else { Err(life.join("\n")) }
        });
        let armed = self.daemon.log.len();
        let (draft, file) = (self.daemon.path("run/crash-at.new"), self.daemon.path("run/crash-at"));
        fs::write(&draft, point.to_string()).expect("write the number");
        fs::rename(draft, file).expect("give it to the daemon");
        armed
    }

    /// Removes the state directory of a daemon that has ended, except for its tag: copies of a controller
    /// whose tag is lost are removed after a day, and no test waits for that.
    fn forget(&self) {
        let (state, tag) = (self.daemon.path("state"), self.daemon.path("state/tag"));
        let kept = fs::read(&tag).expect("the tag");
        fs::remove_dir_all(&state).expect("remove the state directory");
        fs::create_dir(&state).expect("make it again");
        fs::write(&tag, kept).expect("the tag is there again");
    }

    /// Everything that exists now stays for all trials.
    #[track_caller]
    fn take_stock(&mut self) {
        self.stock = Stock {
            volumes: self.volumes.len(),
            snapshots: self.snapshots.len(),
            remains: self.corner.remains(),
        };
    }

    /// Deletes everything but the stock, and asserts that nothing else is left.
    #[track_caller]
    fn clear(&mut self) {
        let client = self.client();
        for id in self.volumes.drain(self.stock.volumes..) {
            insist(&self.daemon.log, 0, || client.delete_volume(&delete(&id)));
        }
        for id in self.snapshots.drain(self.stock.snapshots..) {
            insist(&self.daemon.log, 0, || client.delete_snapshot(&delete_snapshot(&id)));
        }
        self.corner.await_remains(&self.stock.remains);
        self.daemon.assert_well();
    }
}

/// What exists once nothing is done in the background any more, such as the removal of a large image.
#[track_caller]
fn settled_shape(corner: &impl Place) -> Vec<String> {
    await_that("nothing is done in the background", || {
        let shape = corner.shape();
        let has = |what: &str| shape.iter().any(|line| line.starts_with(what));
        let is_due = has("image csi-held-") && !has("snapshot csi-held-");
        thread::sleep(Duration::from_millis(500));
        if !is_due && corner.shape() == shape { Ok(shape) } else { Err(format!("{shape:?}")) }
    })
}

/// Whether a life of the daemon has swept the cluster and does nothing else.
fn has_swept(life: &[String], last: &[&str]) -> bool {
    let count = |part: &str| life.iter().filter(|line| line.ends_with(part)).count();
    let swept = life.iter().any(|line| last.iter().any(|it| line.contains(it)));
    let pairs = [("session asked", "session has answered"), ("process started", "a process has ended")];
    swept && pairs.iter().all(|(begun, ended)| count(begun) == count(ended))
}

/// A request to be tried.
pub struct Trial<P = Corner> {
    /// Makes what exists before and after all trials.
    pub stock: fn(&mut Scene<P>),
    /// Makes what exists before each trial.
    pub have: fn(&mut Scene<P>),
    pub ask: fn(&mut Scene<P>) -> Answer<Outcome>,
    /// What must be true once the request has succeeded.
    pub check: fn(&mut Scene<P>),
}

/// The state directory that the next daemon finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StateDir {
    Kept,
    Lost,
}

/// What happens to the state directory when the daemon is killed at this point.
fn states(number: usize, what: &str) -> &'static [StateDir] {
    match what {
        // The content of the lost directory does not depend on whether a process still runs.
        "session asked" | "process started" => &[StateDir::Kept],
        _ if is_full() => &[StateDir::Kept, StateDir::Lost],
        _ if (number / 2).is_multiple_of(2) => &[StateDir::Kept],
        _ => &[StateDir::Lost],
    }
}

/// The outcome of an undisturbed request.
struct Rehearsal {
    outcome: Outcome,
    shape: Vec<String>,
    /// The points at which to kill, counted from the request, and their names.
    points: Vec<(usize, String)>,
}

impl<P: Place> Trial<P> {
    #[track_caller]
    pub fn run(&self) {
        let corner = P::take();
        let mut scene = Scene {
            daemon: corner.setup_of(1).in_own_session().start(),
            corner,
            volumes: Vec::new(),
            snapshots: Vec::new(),
            stock: Stock::default(),
        };
        (self.stock)(&mut scene);
        scene.take_stock();
        let rehearsal = self.rehearse(&mut scene);
        let mut crashes = 0;
        for (number, (point, what)) in rehearsal.points.iter().enumerate() {
            for (trial, state) in states(number, what).iter().enumerate() {
                let crashed = self.crash_at(&mut scene, *point, *state, &rehearsal);
                crashes += usize::from(crashed && trial == 0);
            }
        }
        // Work in the background has points, too, at varying moments: not every trial passes as many points
        // before the answer.
        let all = rehearsal.points.len();
        assert!(2 * crashes >= all, "only {crashes} of {all}");
        for id in &scene.volumes {
            scene.client().controller_unpublish_volume(&unpublish_from(id, "")).expect("unpublish");
        }
        scene.stock = Stock::default();
        scene.clear();
        assert!(scene.daemon.terminate().success());
        assert_journal_is_empty(&scene.daemon);
    }

    #[track_caller]
    fn rehearse(&self, scene: &mut Scene<P>) -> Rehearsal {
        (self.have)(scene);
        let from = scene.start_anew(usize::MAX);
        let outcome = insist(&scene.daemon.log.clone(), from, || (self.ask)(scene));
        let life = await_answer(&scene.daemon.log, from);
        let answer = life.iter().rposition(|line| is_answer(line)).expect("an answer");
        let heard = points_in(&life[..answer]);
        let worth = |at: &usize| *at == 0 || !UNCHANGED.contains(&heard[*at].as_str());
        let points: Vec<_> = (0..heard.len()).filter(worth).map(|at| (at + 1, heard[at].clone())).collect();
        assert!(points.len() > 3, "{heard:?}");
        (self.check)(scene);
        let shape = settled_shape(&scene.corner);
        scene.clear();
        Rehearsal { outcome, shape, points: sample(points) }
    }

    /// One trial; false if the request was answered before the daemon came to this point.
    #[track_caller]
    fn crash_at(&self, scene: &mut Scene<P>, point: usize, state: StateDir, rehearsal: &Rehearsal) -> bool {
        (self.have)(scene);
        let from = scene.start_anew(point);
        let log = scene.daemon.log.clone();
        let answer = ask_until_death(&log, from, point, || (self.ask)(scene));
        let crashed = scene.daemon.end_at_crash_point(&answer);
        if state == StateDir::Lost {
            scene.forget();
        }
        scene.daemon.restart();
        let [first, second] = [(); 2].map(|()| insist(&log, from, || (self.ask)(scene)));
        assert_eq!(first, second);
        assert!(first.is_like(&rehearsal.outcome), "{first:?}, undisturbed {:?}", rehearsal.outcome);
        scene.daemon.await_leftovers();
        (self.check)(scene);
        scene.corner.await_shape(&rehearsal.shape);
        scene.clear();
        crashed
    }
}

/// Repeats a request until it succeeds. It may be refused for now while a process of the former daemon still
/// works on it, or a busy manager answers late.
#[track_caller]
fn insist<T>(log: &Log, from: usize, mut ask: impl FnMut() -> Answer<T>) -> T {
    let until = Instant::now() + LONG_PATIENCE;
    loop {
        let failure = match ask() {
            Ok(answer) => return answer,
            Err(failure) => failure,
        };
        // The message is for an image that a dead client seems to have open.
        let for_now = matches!(failure.code, Code::ABORTED | Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED)
            || failure.message.contains(" 30 s");
        assert!(for_now && Instant::now() < until, "{failure:?}\n{}", log.after(from).join("\n"));
        thread::sleep(Duration::from_millis(100));
    }
}
