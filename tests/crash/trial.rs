//! A request, killed at every crash point, and asked again.

use std::thread;
use std::time::{Duration, Instant};

use super::scene::Scene;
use crate::support::client::Answer;
use crate::support::log::Log;
use crate::support::{Code, LONG_PATIENCE, PATIENCE, is_full};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The whole answer: the same when the request is repeated.
    exact: String,
    /// The part that does not depend on chance or time: the same in every scene.
    alike: String,
}

impl Outcome {
    pub fn new(exact: &impl std::fmt::Debug, alike: &impl std::fmt::Debug) -> Self {
        Self { exact: format!("{exact:?}"), alike: format!("{alike:?}") }
    }

    /// Whether both are the same, apart from chance and time.
    pub fn is_like(&self, other: &Self) -> bool {
        self.alike == other.alike
    }

    /// An answer without names or times in it.
    pub fn plain(answer: &impl std::fmt::Debug) -> Self {
        Self::new(answer, answer)
    }
}

/// A request to be tried.
pub struct Trial {
    /// The scene before the request.
    pub scene: fn() -> Scene,
    pub ask: fn(&mut Scene) -> Answer<Outcome>,
    /// What must be true once the request has succeeded.
    pub check: fn(&mut Scene),
    /// Steps that must be among its crash points.
    pub steps: &'static [&'static str],
}

/// What happens to the processes that a killed daemon leaves behind.
#[derive(Clone, Copy, Debug)]
enum Leftovers {
    /// They end by themselves before the daemon is started again.
    End,
    /// They go on beside the new daemon.
    GoOn,
    /// One or the other from point to point: a sample of both.
    ByTurns,
}

impl Leftovers {
    fn go_on_at(self, point: usize) -> bool {
        match self {
            Self::End => false,
            Self::GoOn => true,
            Self::ByTurns => point.is_multiple_of(2),
        }
    }
}

/// The crash points of a life that went undisturbed.
pub struct Points {
    /// How many were passed before it was ready.
    pub before: usize,
    /// Those that followed, up to the answer: later ones belong to the background.
    pub during: Vec<String>,
}

/// Whether a line of the log says that a call was answered.
pub fn is_answer(line: &str) -> bool {
    line.split_whitespace().nth(3).is_some_and(|method| method.starts_with("/csi."))
        && !line.contains(" still running ")
}

/// The lines of the log behind the first `from`, once one of them says that a call was answered.
#[track_caller]
pub fn await_answer(log: &Log, from: usize) -> Vec<String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let lines = log.after(from);
        if lines.iter().any(|line| is_answer(line)) {
            return lines;
        }
        assert!(Instant::now() < until, "no call was answered:\n{}", lines.join("\n"));
        thread::sleep(Duration::from_millis(2));
    }
}

/// The crash points in these lines of a log.
pub fn points_in(lines: &[String]) -> Vec<String> {
    lines.iter().filter_map(|line| line.strip_prefix("crash point: ")).map(String::from).collect()
}

/// A third of these points, or all of them (TESTS=full), where one trial takes seconds. Most points come in
/// pairs, as a process starts and ends, so this is every third pair.
pub fn sample<T>(points: Vec<T>) -> Vec<T> {
    let is_chosen = |at: usize| is_full() || (at / 2).is_multiple_of(3);
    points.into_iter().enumerate().filter(|(at, _)| is_chosen(*at)).map(|(_, point)| point).collect()
}

/// Repeats the request until it succeeds or the daemon is dead, which is to die at its `point`-th point.
/// Until then the request may be refused for now.
pub fn ask_until_death<T>(
    log: &Log,
    from: usize,
    point: usize,
    mut ask: impl FnMut() -> Answer<T>,
) -> Answer<T> {
    let until = Instant::now() + LONG_PATIENCE;
    loop {
        let answer = ask();
        let for_now = answer.as_ref().is_err_and(|failure| {
            matches!(
                failure.code,
                Code::ABORTED | Code::UNAVAILABLE | Code::FAILED_PRECONDITION | Code::DEADLINE_EXCEEDED
            )
        });
        if !for_now || points_in(&log.after(from)).len() >= point || Instant::now() > until {
            return answer;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

impl Points {
    /// The points in the log of a daemon with only one life.
    pub fn heard_by(scene: &Scene) -> Self {
        Self::heard_in(&scene.daemon.log.after(0))
    }

    /// Those in these lines of its log.
    pub fn heard_in(lines: &[String]) -> Self {
        let (mut before, mut during, mut answered) = (0, Vec::new(), 0);
        for line in lines {
            match line.strip_prefix("crash point: ") {
                Some(point) => during.push(point.to_string()),
                None if line.contains(" serves at ") => before += std::mem::take(&mut during).len(),
                None if is_answer(line) => answered = during.len(),
                None => {}
            }
        }
        during.truncate(answered);
        Self { before, during }
    }
}

impl Trial {
    /// Kills the daemon at the first crash point of the request, at the second, and so on until the request
    /// is answered. If that leaves processes behind, the points treat them in the two manners in turn, or
    /// each point in both (TESTS=full).
    #[track_caller]
    pub fn run(&self) {
        let (wanted, points) = self.undisturbed();
        let starts_processes = points.during.iter().any(|point| point == "process started");
        let manners: &[Leftovers] = match starts_processes {
            false => &[Leftovers::End],
            true if is_full() => &[Leftovers::End, Leftovers::GoOn],
            true => &[Leftovers::ByTurns],
        };
        for leftovers in manners {
            let crashes =
                (points.before + 1..).take_while(|point| self.crash_at(*point, *leftovers, &wanted)).count();
            assert!(crashes >= points.during.len(), "only {crashes} of these: {:#?}", points.during);
        }
    }

    /// Lets the request pass, and asserts that its steps are crash points.
    #[track_caller]
    fn undisturbed(&self) -> (Outcome, Points) {
        let mut scene = self.prepared();
        assert!(scene.daemon.start_to_crash(usize::MAX), "not that soon");
        let outcome = (self.ask)(&mut scene)
            .unwrap_or_else(|failure| panic!("{failure:?}\n{}", scene.daemon.log.text()));
        scene.daemon.kill9();
        let points = Points::heard_by(&scene);
        let missing: Vec<_> =
            self.steps.iter().filter(|step| !points.during.iter().any(|point| point == *step)).collect();
        assert!(missing.is_empty(), "{missing:?} are not among the crash points: {:#?}", points.during);
        self.repeat(scene, &outcome);
        (outcome, points)
    }

    /// The scene, without a running daemon.
    fn prepared(&self) -> Scene {
        let mut scene = (self.scene)();
        assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
        scene
    }

    /// One trial; false if the request was answered before the daemon came to this point.
    #[track_caller]
    fn crash_at(&self, point: usize, leftovers: Leftovers, wanted: &Outcome) -> bool {
        let mut scene = self.prepared();
        let crashed = !scene.daemon.start_to_crash(point) || {
            let answer = (self.ask)(&mut scene);
            scene.daemon.end_at_crash_point(&answer)
        };
        match leftovers.go_on_at(point) {
            false => scene.daemon.await_leftovers(),
            true => self.ask_beside(&mut scene),
        }
        self.repeat(scene, wanted);
        crashed
    }

    /// Sends the request while a process of the former daemon may still work on it: refused for now, or done.
    #[track_caller]
    fn ask_beside(&self, scene: &mut Scene) {
        scene.daemon.restart();
        if let Err(failure) = (self.ask)(scene) {
            // FAILED_PRECONDITION: a helper of the former daemon has the file system frozen.
            let for_now =
                matches!(failure.code, Code::ABORTED | Code::UNAVAILABLE | Code::FAILED_PRECONDITION);
            assert!(for_now, "{failure:?}\n{}", scene.daemon.log.text());
        }
        scene.daemon.await_leftovers();
        assert!(scene.daemon.terminate().success(), "{}", scene.daemon.log.text());
    }

    /// Repeats the request: the same answer, which is that of an undisturbed request, and one object.
    #[track_caller]
    fn repeat(&self, mut scene: Scene, wanted: &Outcome) {
        scene.daemon.restart();
        let first = (self.ask)(&mut scene)
            .unwrap_or_else(|failure| panic!("{failure:?}\n{}", scene.daemon.log.text()));
        let second = (self.ask)(&mut scene).expect("asked again");
        assert_eq!(first, second);
        assert_eq!(first.alike, wanted.alike);
        scene.assert_nothing_twice();
        (self.check)(&mut scene);
        scene.assert_leaves_nothing();
    }
}
