//! What calls get from the lock table, and in which order.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::lock_table::{Guard, LockTable, Locked};
use super::{Identical, Key, KeySet, ObjectLocks};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::secrets::Secret;

/// A request that other calls may join, if there is one.
type Joinable = Option<Box<dyn Identical>>;

type Answer = Result<&'static str, Kind>;

/// Longer than any machine needs.
const NEVER: Duration = Duration::from_secs(300);

#[derive(PartialEq)]
struct Request(&'static str, Secret);

fn request(text: &'static str) -> Joinable {
    Some(Box::new(Request(text, Secret::new("key"))))
}

fn key(object: &str) -> Key {
    Key::from(format!("local:node:::{object}"))
}

fn keys(objects: &[&str]) -> KeySet {
    KeySet::new(objects.iter().map(|object| key(object))).unwrap()
}

/// A table, and what its calls got.
struct Scene {
    table: Arc<LockTable<Answer>>,
    got: Receiver<(&'static str, Result<Locked<Answer>>)>,
    sender: Sender<(&'static str, Result<Locked<Answer>>)>,
}

impl Scene {
    fn new(slots: usize, patience: Duration) -> Self {
        let is_retryable =
            |answer: &Answer| matches!(answer, Err(Kind::Unavailable | Kind::Timeout | Kind::Busy));
        let (sender, got) = channel();
        Self { table: LockTable::new(slots, patience, is_retryable), got, sender }
    }

    fn patient() -> Self {
        Self::new(8, NEVER)
    }

    /// Starts a call, and returns once it waits or has got something.
    fn start(&self, name: &'static str, call: Call, keys: KeySet, request: Joinable) {
        let (table, sender) = (Arc::clone(&self.table), self.sender.clone());
        let before = self.table.waiting();
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        thread::spawn(move || {
            let got = table.enter(&call, &keys, request);
            end.store(true, Ordering::SeqCst);
            drop(sender.send((name, got)));
        });
        while self.table.waiting() == before && !ended.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }

    fn enter(&self, name: &'static str, objects: &[&str]) {
        self.start(name, Call::internal("Test"), keys(objects), None);
    }

    fn ask(&self, name: &'static str, text: &'static str) {
        self.start(name, Call::internal("Test"), keys(&["v"]), request(text));
    }

    #[track_caller]
    fn is_quiet(&self) {
        if let Ok((name, _)) = self.got.try_recv() {
            panic!("{name} got something too early");
        }
    }

    #[track_caller]
    fn holds(&self, expected: &str) -> Guard<Answer> {
        match self.got.recv_timeout(NEVER).unwrap() {
            (name, Ok(Locked::Held(guard))) if name == expected => guard,
            (name, _) => panic!("expected {expected} to hold the lock, not {name}"),
        }
    }

    #[track_caller]
    fn joined(&self, expected: &str) -> Answer {
        match self.got.recv_timeout(NEVER).unwrap() {
            (name, Ok(Locked::Joined(answer))) if name == expected => answer,
            (name, _) => panic!("expected an answer for {expected}, not {name}"),
        }
    }

    #[track_caller]
    fn refused(&self, expected: &str) -> Error {
        match self.got.recv_timeout(NEVER).unwrap() {
            (name, Err(error)) if name == expected => error,
            (name, _) => panic!("expected {expected} to be refused, not {name}"),
        }
    }
}

#[test]
fn calls_for_one_object_take_turns_and_those_for_another_do_not_wait() {
    let scene = Scene::patient();
    for name in ["first", "second", "third"] {
        scene.enter(name, &["v"]);
    }
    scene.enter("other", &["w"]);
    let first = scene.holds("first");
    let _other = scene.holds("other");
    scene.is_quiet();
    assert_eq!(scene.table.waiting(), 2);
    drop(first);
    let second = scene.holds("second");
    scene.is_quiet();
    drop(second);
    drop(scene.holds("third"));
    assert_eq!(scene.table.waiting(), 0);
}

#[test]
fn the_same_request_shares_the_answer_before_the_lock_is_free() {
    for answer in [Ok("done"), Err(Kind::NotFound)] {
        let scene = Scene::patient();
        scene.ask("leader", "same");
        let leader = scene.holds("leader");
        scene.ask("joined", "same");
        scene.is_quiet();
        leader.answer(&answer);
        assert_eq!(scene.joined("joined"), answer);
        scene.ask("late", "same");
        scene.is_quiet();
        drop(leader);
        scene.holds("late");
    }
}

#[test]
fn requests_that_differ_do_not_join() {
    let scene = Scene::patient();
    scene.ask("leader", "same");
    let leader = scene.holds("leader");
    let others: [(&str, Call, Joinable); 4] = [
        ("field", Call::internal("Test"), request("other")),
        ("secret", Call::internal("Test"), Some(Box::new(Request("same", Secret::new("other"))))),
        ("method", Call::internal("Other"), request("same")),
        ("without a request", Call::internal("Test"), None),
    ];
    for (name, call, request) in others {
        scene.start(name, call, keys(&["v"]), request);
    }
    leader.answer(&Ok("done"));
    drop(leader);
    for name in ["field", "secret", "method", "without a request"] {
        drop(scene.holds(name));
    }
}

#[test]
fn a_request_joins_the_last_in_the_queue_only() {
    let scene = Scene::patient();
    scene.ask("stage", "stage");
    let stage = scene.holds("stage");
    scene.ask("unstage", "unstage");
    scene.ask("stage again", "stage");
    scene.ask("joined", "stage");
    stage.answer(&Ok("first"));
    drop(stage);
    drop(scene.holds("unstage"));
    scene.holds("stage again").answer(&Ok("second"));
    assert_eq!(scene.joined("joined"), Ok("second"));
}

#[test]
fn after_a_retryable_answer_or_none_the_first_that_joined_leads_before_the_others() {
    for answer in [Some(Err(Kind::Unavailable)), None] {
        let scene = Scene::patient();
        scene.ask("leader", "same");
        let leader = scene.holds("leader");
        scene.ask("next", "same");
        scene.ask("last", "same");
        scene.enter("another", &["v"]);
        if let Some(answer) = &answer {
            leader.answer(answer);
        }
        scene.is_quiet();
        drop(leader);
        let next = scene.holds("next");
        next.answer(&Ok("better"));
        assert_eq!(scene.joined("last"), Ok("better"));
        drop(next);
        scene.holds("another");
    }
}

#[test]
fn several_objects_are_locked_together_or_not_at_all() {
    for taken in ["a", "b", "c"] {
        let scene = Scene::patient();
        scene.enter("holder", &[taken]);
        let holder = scene.holds("holder");
        scene.enter("group", &["c", "a", "b", "a"]);
        scene.is_quiet();
        drop(holder);
        let group = scene.holds("group");
        for object in ["a", "b", "c"] {
            scene.enter("behind", &[object]);
        }
        scene.is_quiet();
        drop(group);
        (0..3).for_each(|_| drop(scene.holds("behind")));
    }
}

#[test]
fn a_clone_of_the_call_keeps_the_lock() {
    let scene = Scene::patient();
    let call = Call::internal("Test");
    let reaper = call.clone();
    scene.start("holder", call.clone(), keys(&["v"]), None);
    call.hold(scene.holds("holder"));
    scene.enter("next", &["v"]);
    drop(call);
    scene.is_quiet();
    drop(reaper);
    scene.holds("next");
}

#[test]
fn a_call_that_waits_too_long_learns_who_holds_the_lock() {
    let scene = Scene::new(8, Duration::from_millis(20));
    let call = Call::internal("NodeStageVolume");
    call.set_subject("local:node::web");
    scene.start("holder", call.clone(), keys(&["b", "web"]), request("same"));
    let _guard = scene.holds("holder");
    call.enter_step("mkfs.ext4 /dev/loop3");
    scene.enter("waiter", &["web"]);
    let error = scene.refused("waiter");
    assert_eq!(error.kind(), Kind::Busy);
    for fact in
        ["local:node:::web", "NodeStageVolume local:node::web", "mkfs.ext4 /dev/loop3", "has held it for"]
    {
        assert!(error.message().contains(fact), "no {fact:?} in {error}");
    }
    scene.start("joined", Call::internal("NodeStageVolume"), keys(&["b", "web"]), request("same"));
    assert_eq!(scene.refused("joined").kind(), Kind::Busy);
    assert_eq!(scene.table.waiting(), 0);
}

#[test]
fn a_call_whose_client_has_given_up_leaves_the_queue() {
    let scene = Scene::patient();
    let gone = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&gone);
    scene.enter("holder", &["v"]);
    let holder = scene.holds("holder");
    let call = Call::new("Test", move || flag.load(Ordering::SeqCst));
    scene.start("impatient", call, keys(&["v"]), request("same"));
    scene.ask("joined", "same");
    scene.enter("last", &["v"]);
    gone.store(true, Ordering::SeqCst);
    assert_eq!(scene.refused("impatient").kind(), Kind::Timeout);
    drop(holder);
    drop(scene.holds("joined"));
    drop(scene.holds("last"));
}

#[test]
fn a_full_table_refuses_at_once_and_recovers() {
    let scene = Scene::new(2, NEVER);
    scene.enter("one", &["a"]);
    let one = scene.holds("one");
    scene.enter("two more", &["b", "c"]);
    assert_eq!(scene.refused("two more").kind(), Kind::Unavailable);
    scene.enter("fits", &["b"]);
    let _fits = scene.holds("fits");
    scene.enter("too many", &["c"]);
    assert!(scene.refused("too many").message().contains("CEPHLET_LOCK_SLOTS"));
    scene.enter("queues", &["a"]);
    drop(one);
    drop(scene.holds("queues"));
    scene.enter("has room", &["c"]);
    scene.holds("has room");
}

#[test]
fn a_closed_table_refuses_all_that_wait_and_all_that_come() {
    let scene = Scene::patient();
    scene.enter("holder", &["a"]);
    let guard = scene.holds("holder");
    scene.enter("waiter", &["a", "b"]);
    scene.table.close(Error::unavailable("going down"));
    assert!(scene.refused("waiter").message().contains("going down"));
    drop(guard);
    scene.enter("later", &["c"]);
    assert!(scene.refused("later").message().contains("going down"));
}

/// Every thread takes sets of up to three of six objects in every order.
#[test]
fn sets_of_objects_in_any_order_never_lock_each_other_out() {
    const OBJECTS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let scene = Scene::patient();
    let in_use = Mutex::new(BTreeSet::new());
    thread::scope(|scope| {
        for number in 0..8_usize {
            let (table, in_use) = (&scene.table, &in_use);
            scope.spawn(move || {
                for round in 0..300_usize {
                    let pick =
                        |step: usize| OBJECTS[(number * 7 + round * (step + 1) + step) % OBJECTS.len()];
                    let set: BTreeSet<&str> = (0..=round % 3).map(pick).collect();
                    let objects: Vec<&str> = set.iter().copied().collect();
                    let Locked::Held(guard) =
                        table.enter(&Call::internal("Test"), &keys(&objects), None).unwrap()
                    else {
                        panic!("nothing to join");
                    };
                    for object in &set {
                        assert!(in_use.lock().insert(*object), "UNSAFE: {object} is locked twice");
                    }
                    thread::yield_now();
                    for object in &set {
                        in_use.lock().remove(object);
                    }
                    drop(guard);
                }
            });
        }
    });
}

#[test]
fn an_object_that_is_locked_can_be_tried_without_waiting() {
    let table = LockTable::<Answer>::new(2, NEVER, |_| false);
    let call = Call::internal("Test");
    let held = table.try_lock(&call, key("v")).unwrap().unwrap();
    assert!(table.try_lock(&call, key("v")).unwrap().is_none());
    assert!(table.try_lock(&call, key("w")).unwrap().is_some());
    drop(held);
    assert!(table.try_lock(&call, key("v")).unwrap().is_some());
}
