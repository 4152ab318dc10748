#![allow(clippy::unwrap_used)]

mod refusals;
mod storm;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::error::Kind;
use crate::secrets::Secret;

type Answer = Result<&'static str, Kind>;

/// Long enough for any machine: a test that gets here has failed.
const NEVER: Duration = Duration::from_secs(300);

#[derive(PartialEq)]
struct Request(&'static str, Secret);

type Joinable = Option<Box<dyn Identical>>;

fn request(text: &'static str) -> Joinable {
    Some(Box::new(Request(text, Secret::new("key"))))
}

fn key(object: &str) -> Key {
    Key::from(format!("local:node:::{object}"))
}

/// A table, and what its calls were told.
struct Scene {
    locks: Locks<Answer>,
    told: Receiver<(&'static str, Turn<Answer>)>,
    tell: Sender<(&'static str, Turn<Answer>)>,
}

impl Scene {
    fn new(slots: usize, wait: Duration) -> Self {
        let retryable =
            |answer: &Answer| matches!(answer, Err(Kind::Unavailable | Kind::Timeout | Kind::Busy));
        let (tell, told) = channel();
        Self { locks: Locks::new(slots, wait, retryable).unwrap(), told, tell }
    }

    fn patient() -> Self {
        Self::new(8, NEVER)
    }

    fn entry(&self, name: &'static str, call: Call, object: &str, joinable: Joinable) -> Entry<Answer> {
        let tell = self.tell.clone();
        let wake = Box::new(move |turn| tell.send((name, turn)).unwrap());
        Entry { keys: key(object).into(), call, joinable, wake }
    }

    /// A call that nobody can join.
    fn enter(&self, name: &'static str, object: &str) {
        self.locks.enter(self.entry(name, Call::internal("Test"), object, None));
    }

    fn enter_all(&self, name: &'static str, objects: &[&str]) {
        let keys = KeySet::new(objects.iter().map(|object| key(object))).unwrap();
        let entry = self.entry(name, Call::internal("Test"), "replaced", None);
        self.locks.enter(Entry { keys, ..entry });
    }

    fn ask(&self, name: &'static str, text: &'static str) {
        self.locks.enter(self.entry(name, Call::internal("Test"), "v", request(text)));
    }

    #[track_caller]
    fn quiet(&self) {
        if let Ok((name, turn)) = self.told.try_recv() {
            panic!("{name} was told {turn:?} too early");
        }
    }

    #[track_caller]
    fn goes(&self, expected: &str) -> Guard<Answer> {
        match self.told.recv_timeout(NEVER).unwrap() {
            (name, Turn::Go(guard)) if name == expected => guard,
            (name, turn) => panic!("expected {expected} to go, but {name} was told {turn:?}"),
        }
    }

    #[track_caller]
    fn answered(&self, expected: &str) -> Answer {
        match self.told.recv_timeout(NEVER).unwrap() {
            (name, Turn::Answer(answer)) if name == expected => answer,
            (name, turn) => panic!("expected an answer for {expected}, but {name} was told {turn:?}"),
        }
    }

    #[track_caller]
    fn refused(&self, expected: &str) -> Error {
        match self.told.recv_timeout(NEVER).unwrap() {
            (name, Turn::Refused(error)) if name == expected => error,
            (name, turn) => panic!("expected {expected} to be refused, but {name} was told {turn:?}"),
        }
    }
}

#[test]
fn a_free_object_is_locked_at_once() {
    let scene = Scene::patient();
    scene.enter("first", "v");
    let guard = scene.goes("first");
    assert!(!guard.waited());
    drop(guard);
    scene.enter("second", "v");
    assert!(!scene.goes("second").waited());
}

#[test]
fn first_in_first_out() {
    let scene = Scene::patient();
    for name in ["first", "second", "third"] {
        scene.enter(name, "v");
    }
    let first = scene.goes("first");
    scene.quiet();
    assert_eq!(scene.locks.parked(), 2);
    drop(first);
    let second = scene.goes("second");
    assert!(second.waited());
    scene.quiet();
    drop(second);
    drop(scene.goes("third"));
    assert_eq!(scene.locks.parked(), 0);
}

#[test]
fn another_object_does_not_wait() {
    let scene = Scene::patient();
    scene.enter("one", "v");
    scene.enter("other", "w");
    let _both = (scene.goes("one"), scene.goes("other"));
    assert_eq!(scene.locks.holders().len(), 2);
}

#[test]
fn the_same_request_shares_the_answer_before_the_lock_is_free() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    scene.ask("joined", "same");
    let leader = scene.goes("leader");
    scene.quiet();
    leader.answer(&Ok("done"));
    assert_eq!(scene.answered("joined"), Ok("done"));
    scene.ask("late", "same");
    scene.quiet();
    drop(leader);
    scene.goes("late");
}

#[test]
fn a_definite_error_is_shared_too() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    scene.ask("joined", "same");
    scene.goes("leader").answer(&Err(Kind::NotFound));
    assert_eq!(scene.answered("joined"), Err(Kind::NotFound));
}

#[test]
fn requests_that_differ_do_not_join() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    let others: [(&str, Call, Joinable); 4] = [
        ("field", Call::internal("Test"), request("other")),
        ("secret", Call::internal("Test"), Some(Box::new(Request("same", Secret::new("other"))))),
        ("method", Call::internal("Other"), request("same")),
        ("never joins", Call::internal("Test"), None),
    ];
    for (name, call, joinable) in others {
        scene.locks.enter(scene.entry(name, call, "v", joinable));
    }
    scene.goes("leader").answer(&Ok("done"));
    for name in ["field", "secret", "method", "never joins"] {
        scene.goes(name).answer(&Ok("its own"));
    }
}

#[test]
fn a_request_joins_the_last_in_the_queue_only() {
    let scene = Scene::patient();
    scene.ask("stage", "stage");
    scene.ask("unstage", "unstage");
    scene.ask("stage again", "stage");
    scene.ask("joined", "stage");
    scene.goes("stage").answer(&Ok("first"));
    scene.goes("unstage").answer(&Ok("gone"));
    scene.goes("stage again").answer(&Ok("second"));
    assert_eq!(scene.answered("joined"), Ok("second"));
}

#[test]
fn after_a_retryable_answer_the_first_who_joined_leads_before_the_others() {
    let scene = Scene::patient();
    for name in ["leader", "next", "last"] {
        scene.ask(name, "same");
    }
    scene.enter("someone else", "v");
    let leader = scene.goes("leader");
    leader.answer(&Err(Kind::Unavailable));
    scene.quiet();
    assert_eq!(scene.locks.parked(), 3);
    drop(leader);
    scene.goes("next").answer(&Ok("better"));
    assert_eq!(scene.answered("last"), Ok("better"));
    scene.goes("someone else");
}

#[test]
fn nobody_joins_after_a_retryable_answer_without_joiners() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    let leader = scene.goes("leader");
    leader.answer(&Err(Kind::Unavailable));
    scene.ask("late", "same");
    leader.answer(&Ok("must not reach anybody"));
    scene.quiet();
    drop(leader);
    scene.goes("late");
}

#[test]
fn a_holder_that_vanishes_without_an_answer_is_succeeded_by_who_joined() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    scene.ask("joined", "same");
    scene.enter("someone else", "v");
    drop(scene.goes("leader"));
    drop(scene.goes("joined"));
    drop(scene.goes("someone else"));
}

#[test]
fn two_objects_are_locked_together_or_not_at_all() {
    let scene = Scene::patient();
    scene.enter("source", "a");
    let source = scene.goes("source");
    scene.enter_all("clone", &["b", "a"]);
    scene.enter("behind", "b");
    scene.quiet();
    drop(source);
    let clone = scene.goes("clone");
    scene.quiet();
    drop(clone);
    scene.goes("behind");
}

#[test]
fn each_of_three_objects_is_locked() {
    for taken in ["a", "b", "c"] {
        let scene = Scene::patient();
        scene.enter("holder", taken);
        let holder = scene.goes("holder");
        scene.enter_all("group", &["c", "a", "b"]);
        scene.quiet();
        drop(holder);
        let group = scene.goes("group");
        for object in ["a", "b", "c"] {
            scene.enter("behind", object);
        }
        scene.quiet();
        drop(group);
        for _ in 0..3 {
            drop(scene.goes("behind"));
        }
    }
}

#[test]
fn the_same_object_twice_is_one_lock() {
    let scene = Scene::new(1, NEVER);
    scene.enter_all("same", &["a", "a"]);
    scene.goes("same");
}

#[test]
fn a_call_kept_by_somebody_keeps_the_lock() {
    let scene = Scene::patient();
    let call = Call::internal("Test");
    let reaper = call.clone();
    scene.locks.enter(scene.entry("holder", call.clone(), "v", request("same")));
    let guard = scene.goes("holder");
    guard.answer(&Err(Kind::Timeout));
    call.hold(guard);
    scene.enter("next", "v");
    drop(call);
    scene.quiet();
    drop(reaper);
    scene.goes("next");
}

#[test]
fn a_hundred_calls_that_wait_take_no_thread_and_nobody_elses_turn() {
    let scene = Scene::patient();
    scene.enter("stuck", "v");
    let stuck = scene.goes("stuck");
    for _ in 0..100 {
        scene.enter("waits", "v");
    }
    assert_eq!(scene.locks.parked(), 100);
    scene.enter("other", "w");
    drop(scene.goes("other"));
    drop(stuck);
    for _ in 0..100 {
        drop(scene.goes("waits"));
    }
}

#[test]
fn a_long_queue_that_is_dropped_takes_no_deep_stack() {
    let scene = Scene::patient();
    scene.enter("holder", "v");
    let holder = scene.goes("holder");
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..5_000 {
        let seen = count.clone();
        let wake = Box::new(move |turn| {
            seen.fetch_add(1, Ordering::Relaxed);
            drop(turn);
        });
        scene.locks.enter(Entry { wake, ..scene.entry("waits", Call::internal("Test"), "v", None) });
    }
    thread::Builder::new().stack_size(128 * 1024).spawn(move || drop(holder)).unwrap().join().unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 5_000);
}

#[test]
fn a_continuation_that_panics_frees_its_lock() {
    let scene = Scene::patient();
    scene.enter("holder", "v");
    let holder = scene.goes("holder");
    let wake = Box::new(|_turn| panic!("on purpose"));
    scene.locks.enter(Entry { wake, ..scene.entry("panics", Call::internal("Test"), "v", None) });
    scene.enter("next", "v");
    drop(holder);
    scene.goes("next");
}
