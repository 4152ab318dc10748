#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;

use crate::error::Kind;

/// Long enough for any machine: a test that gets here has failed.
const NEVER: Duration = Duration::from_secs(300);

fn workers(count: usize, limit: usize) -> Workers {
    Workers::start(count, limit, || 0).unwrap()
}

fn bulkhead(name: &str) -> Option<Bulkhead> {
    Some(name.into())
}

/// Tasks that say that they run and then stay until the gate is opened (dropped).
struct Stuck {
    gate: Option<Sender<()>>,
    closed: Arc<Mutex<Receiver<()>>>,
    here: Sender<()>,
    arrivals: Receiver<()>,
}

impl Stuck {
    fn new() -> Self {
        let ((gate, closed), (here, arrivals)) = (channel(), channel());
        Self { gate: Some(gate), closed: Arc::new(Mutex::new(closed)), here, arrivals }
    }

    fn task(&self, name: Option<Bulkhead>) -> Task {
        let (closed, here) = (self.closed.clone(), self.here.clone());
        Task::new(name, move || {
            here.send(()).unwrap();
            let _opened = closed.lock().recv();
        })
    }

    fn wait_for(&self, tasks: usize) {
        (0..tasks).for_each(|_| self.arrivals.recv_timeout(NEVER).unwrap());
    }

    fn open(&mut self) {
        self.gate = None;
    }
}

#[test]
fn a_bulkhead_leaves_two_workers_to_the_others() {
    let mut stuck = Stuck::new();
    let workers = workers(4, 100);
    for _ in 0..10 {
        workers.submit(stuck.task(bulkhead("cluster"))).unwrap();
    }
    stuck.wait_for(2);
    let (done, ends) = channel();
    for name in [None, bulkhead("other"), None, bulkhead("other")] {
        let done = done.clone();
        workers.submit(Task::new(name, move || done.send(()).unwrap())).unwrap();
    }
    (0..4).for_each(|_| ends.recv_timeout(NEVER).unwrap());
    assert!(stuck.arrivals.try_recv().is_err(), "a third task of the cluster has a worker");
    assert_eq!(workers.load().queued, 8);
    stuck.open();
    stuck.wait_for(8);
    assert!(workers.drain(Instant::now() + NEVER));
    assert_eq!(workers.work.state.lock().occupied, []);
}

#[test]
fn a_call_goes_on_where_it_is_if_its_bulkhead_has_room() {
    let mut stuck = Stuck::new();
    let workers = Arc::new(workers(4, 100));
    let (sender, threads) = channel();
    let go_on = |workers: &Arc<Workers>| {
        let (workers, sender) = (workers.clone(), sender.clone());
        let here = thread::current().id();
        workers.go_on(Task::new(bulkhead("cluster"), move || {
            sender.send(thread::current().id() == here).unwrap()
        }));
    };
    go_on(&workers);
    assert!(threads.recv_timeout(NEVER).unwrap(), "there was room");
    assert_eq!(workers.work.state.lock().occupied, []);
    (0..2).for_each(|_| workers.submit(stuck.task(bulkhead("cluster"))).unwrap());
    stuck.wait_for(2);
    go_on(&workers);
    assert!(threads.try_recv().is_err(), "it waits for its bulkhead");
    stuck.open();
    assert!(!threads.recv_timeout(NEVER).unwrap(), "a worker has taken it");
}

#[test]
fn a_second_bulkhead_that_hangs_leaves_a_worker_to_a_third() {
    let stuck = Stuck::new();
    let workers = workers(4, 100);
    for name in ["one", "one", "other", "other"] {
        workers.submit(stuck.task(bulkhead(name))).unwrap();
    }
    stuck.wait_for(3);
    let (done, ends) = channel();
    workers.submit(Task::new(bulkhead("third"), move || done.send(()).unwrap())).unwrap();
    ends.recv_timeout(NEVER).unwrap();
    assert!(stuck.arrivals.try_recv().is_err(), "the second one has a second worker");
}

#[test]
fn queued_and_parked_calls_count_together() {
    let stuck = Stuck::new();
    let parked = Arc::new(AtomicUsize::new(0));
    let count = parked.clone();
    let workers = Workers::start(4, 3, move || count.load(Ordering::SeqCst)).unwrap();
    for name in ["one", "two", "three", "four"] {
        workers.submit(stuck.task(bulkhead(name))).unwrap();
        stuck.wait_for(1);
    }
    workers.submit(stuck.task(None)).unwrap();
    parked.store(2, Ordering::SeqCst);
    let refusal = workers.submit(stuck.task(None)).unwrap_err();
    assert_eq!(refusal.kind(), Kind::Unavailable);
    assert!(refusal.message().contains("1 calls are queued and 2 wait"), "{refusal}");
    workers.resume(stuck.task(None));
    assert_eq!(workers.load(), Load { running: 4, queued: 2, parked: 2 });
    parked.store(0, Ordering::SeqCst);
    workers.submit(stuck.task(None)).unwrap();
}

#[test]
fn a_bulkhead_that_hangs_leaves_half_of_the_queue_to_the_others_and_a_second_one_a_quarter() {
    let workers = workers(4, 256);
    let ensure = |own, all| workers.ensure_room(&"cluster".into(), own, all);
    ensure(129, 129).unwrap();
    let refusal = ensure(131, 131).unwrap_err();
    assert_eq!(refusal.kind(), Kind::Unavailable);
    assert!(refusal.message().contains("cluster") && refusal.message().contains("256"), "{refusal}");
    ensure(64, 131 + 64).unwrap();
    assert!(ensure(66, 131 + 66).is_err());
    ensure(3, 1000).expect("as many as there are workers it may have whatever others do");
}

#[test]
fn a_queued_call_that_nobody_waits_for_is_over_although_its_bulkhead_hangs() {
    let stuck = Stuck::new();
    let workers = workers(4, 100);
    for _ in 0..2 {
        workers.submit(stuck.task(bulkhead("cluster"))).unwrap();
    }
    stuck.wait_for(2);
    let (given_up, (done, ends)) = (Arc::new(AtomicBool::new(false)), channel());
    for number in 0..2 {
        let (given_up, done) = (given_up.clone(), done.clone());
        let task = Task::new(bulkhead("cluster"), move || done.send(number).unwrap());
        workers.submit(task.unless(move || number == 1 && given_up.load(Ordering::SeqCst))).unwrap();
    }
    given_up.store(true, Ordering::SeqCst);
    assert_eq!(ends.recv_timeout(NEVER), Ok(1));
    assert_eq!(workers.load().queued, 1, "the other one waits for its bulkhead");
    assert!(ends.try_recv().is_err());
}

#[test]
fn calls_that_come_back_go_first() {
    let mut stuck = Stuck::new();
    let workers = workers(4, 100);
    for name in ["one", "two", "three", "four"] {
        workers.submit(stuck.task(bulkhead(name))).unwrap();
    }
    stuck.wait_for(4);
    let order = Arc::new(Mutex::new(Vec::new()));
    let task = |name| {
        let order = order.clone();
        Task::new(None, move || order.lock().push(name))
    };
    workers.submit(task("new")).unwrap();
    workers.resume(task("first back"));
    workers.resume(task("second back"));
    let taken: Vec<_> = {
        let mut state = workers.work.state.lock();
        std::iter::from_fn(|| state.take(2)).collect()
    };
    taken.into_iter().for_each(|task| (task.run)());
    assert_eq!(*order.lock(), ["first back", "second back", "new"]);
    stuck.open();
}

#[test]
fn the_quick_lane_answers_while_every_worker_is_stuck() {
    let stuck = Stuck::new();
    let workers = workers(4, 100);
    for _ in 0..8 {
        workers.submit(stuck.task(None)).unwrap();
    }
    stuck.wait_for(4);
    let (done, ends) = channel();
    workers.submit_quick(move || done.send(()).unwrap()).unwrap();
    ends.recv_timeout(NEVER).unwrap();
}

#[test]
fn the_number_of_threads_is_fixed_and_panics_end_none() {
    let workers = workers(4, 1000);
    let (here, arrivals) = channel();
    for number in 0..400 {
        let here = here.clone();
        workers
            .submit(Task::new(None, move || {
                here.send(thread::current().id()).unwrap();
                assert!(number % 100 != 0, "on purpose");
            }))
            .unwrap();
    }
    let threads: HashSet<_> = (0..400).map(|_| arrivals.recv_timeout(NEVER).unwrap()).collect();
    assert!(threads.len() <= 4, "{} threads", threads.len());
    let stuck = Stuck::new();
    (0..4).for_each(|_| workers.submit(stuck.task(None)).unwrap());
    stuck.wait_for(4);
}

#[test]
fn draining_waits_for_what_runs_and_refuses_what_is_new() {
    let mut stuck = Stuck::new();
    let workers = workers(4, 100);
    for _ in 0..6 {
        workers.submit(stuck.task(None)).unwrap();
    }
    stuck.wait_for(4);
    assert!(!workers.drain(Instant::now()));
    assert_eq!(workers.submit(stuck.task(None)).unwrap_err().kind(), Kind::Unavailable);
    workers.submit_quick(|| ()).expect("health checks go on being answered");
    stuck.open();
    assert!(workers.drain(Instant::now() + NEVER));
    stuck.wait_for(2);
}

#[test]
fn a_stopped_pool_drops_what_it_is_given() {
    let stuck = Stuck::new();
    let workers = workers(4, 100);
    (0..4).for_each(|_| workers.submit(stuck.task(None)).unwrap());
    stuck.wait_for(4);
    let (kept, gone) = channel::<()>();
    let again = kept.clone();
    workers.submit(Task::new(None, move || drop(kept))).unwrap();
    workers.stop();
    workers.resume(Task::new(None, move || drop(again)));
    assert!(
        gone.recv_timeout(NEVER).is_err_and(|end| end == std::sync::mpsc::RecvTimeoutError::Disconnected)
    );
}

#[test]
fn a_call_that_pauses_holds_no_worker_and_counts_as_parked() {
    let full = workers(4, 2);
    (0..2).for_each(|_| full.resume_after(NEVER, Task::new(None, || ())));
    assert_eq!(full.load(), Load { running: 0, queued: 0, parked: 2 });
    let refusal = full.submit(Task::new(None, || ())).unwrap_err();
    assert!(refusal.message().contains("0 calls are queued and 2 wait"), "{refusal}");
    let workers = workers(4, 1);
    let (sender, ends) = channel();
    let begun = Instant::now();
    let pause = Duration::from_millis(50);
    let later = sender.clone();
    workers.resume_after(pause, Task::new(bulkhead("cluster"), move || later.send("paused").unwrap()));
    assert_eq!(ends.recv_timeout(NEVER), Ok("paused"));
    assert!(begun.elapsed() >= pause);
    workers.submit(Task::new(None, move || sender.send("new").unwrap())).unwrap();
    assert_eq!(ends.recv_timeout(NEVER), Ok("new"));
}

#[test]
fn a_pause_ends_although_who_looked_at_the_time_has_other_work() {
    let mut stuck = Stuck::new();
    let workers = workers(4, 100);
    let (sender, ends) = channel();
    workers.resume_after(Duration::from_millis(50), Task::new(None, move || sender.send(()).unwrap()));
    for _ in 0..3 {
        workers.submit(stuck.task(None)).unwrap();
    }
    stuck.wait_for(3);
    ends.recv_timeout(NEVER).unwrap();
    stuck.open();
}

#[test]
fn pauses_can_be_ended_for_good() {
    let workers = workers(4, 100);
    let (kept, gone) = channel::<()>();
    let again = kept.clone();
    workers.resume_after(NEVER, Task::new(None, move || drop(kept)));
    workers.end_pauses();
    workers.resume_after(NEVER, Task::new(None, move || drop(again)));
    assert!(gone.try_recv().is_err_and(|end| end == std::sync::mpsc::TryRecvError::Disconnected));
    let (done, ends) = channel();
    workers.submit(Task::new(None, move || done.send(()).unwrap())).unwrap();
    ends.recv_timeout(NEVER).expect("everything else goes on");
}
