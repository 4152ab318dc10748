//! A fixed number of workers and their two lanes.
//!
//! - The quick lane has a worker of its own for what needs no storage, so that a health check never waits for
//!   a cluster.
//! - The work lane is bounded: calls that queue and calls that are parked in the lock table count together,
//!   and one too many is refused at once. A parked call that comes back is never refused, and goes before the
//!   new ones: it holds a lock.
//! - A call that pauses, to be repeated a little later, counts as parked. The workers that have nothing to do
//!   look after the time.
//! - A bulkhead (one cluster, or the local disk) has its first worker for the asking. For a second one, all
//!   bulkheads together must leave two workers free: so one or two clusters that hang never take the daemon
//!   with them. What has to wait stays in the queue while later tasks of others pass it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::error::{Error, Result};

/// The fewest workers that leave a bulkhead half of them.
pub const MIN_WORKERS: usize = 4;

/// Workers that bulkheads leave to such as have none yet.
const SPARE: usize = 2;

/// Stack of a worker. The work is shallow: the deepest is the parser of the tools' JSON, which stops at 128
/// levels.
const STACK: usize = 512 * 1024;

/// What a task may wait for: the name of a cluster, or of the local disk.
pub type Bulkhead = Arc<str>;

/// A piece of work.
pub struct Task {
    bulkhead: Option<Bulkhead>,
    run: Box<dyn FnOnce() + Send>,
}

impl Task {
    /// Work behind `bulkhead`; none: it waits for no storage.
    pub fn new(bulkhead: Option<Bulkhead>, run: impl FnOnce() + Send + 'static) -> Self {
        Self { bulkhead, run: Box::new(run) }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("bulkhead", &self.bulkhead).finish_non_exhaustive()
    }
}

/// What the work lane has to do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Tasks that a worker is busy with.
    pub running: usize,
    /// Tasks that no worker has taken yet.
    pub queued: usize,
    /// Calls that wait in the lock table, or for the end of a pause.
    pub parked: usize,
}

/// The workers. Dropped, they end with the task they are in.
pub struct Workers {
    work: Arc<Lane>,
    quick: Arc<Lane>,
    limit: usize,
    parked: Box<dyn Fn() -> usize + Send + Sync>,
}

impl Workers {
    /// Starts `count` (at least [`MIN_WORKERS`]) for the work lane and one for the quick lane. `limit` is
    /// how many calls may be queued and parked together; `parked` tells how many are parked elsewhere. Fails
    /// if a thread cannot be started.
    pub fn start(
        count: usize,
        limit: usize,
        parked: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Result<Self> {
        let count = count.max(MIN_WORKERS);
        let (work, quick) = (Lane::new(count - SPARE), Lane::new(1));
        let workers = Self { work, quick, limit, parked: Box::new(parked) };
        for number in 1..=count {
            spawn(&workers.work, format!("worker {number}"))?;
        }
        spawn(&workers.quick, "quick worker".into())?;
        Ok(workers)
    }

    /// Queues work. `Unavailable` if too many calls are queued and parked already, or the daemon is about to
    /// stop.
    pub fn submit(&self, task: Task) -> Result<()> {
        self.work.admit(task, self.limit.saturating_sub((self.parked)()), |state| self.overload(state))
    }

    /// Queues work that waits for nothing and nobody. `Unavailable` if that lane's queue is full too.
    pub fn submit_quick(&self, run: impl FnOnce() + Send + 'static) -> Result<()> {
        self.quick.admit(Task::new(None, run), self.limit, |state| self.overload(state))
    }

    /// Queues the work of a call that was parked. It was admitted once and is not refused now, whatever the
    /// queue's length; only after [`Workers::stop`] it is dropped.
    pub fn resume(&self, task: Task) {
        self.work.resume(task);
    }

    /// Queues the work of a call that pauses, like [`Workers::resume`], when the pause is over. After
    /// [`Workers::end_pauses`] it is dropped.
    pub fn resume_after(&self, pause: Duration, task: Task) {
        self.work.resume_at(Instant::now() + pause, task);
    }

    /// Drops the work of all calls that pause, and of those that would from now on.
    pub fn end_pauses(&self) {
        self.work.end_pauses();
    }

    /// Goes on with a call on this thread, a worker of the work lane, which saves the way through the queue;
    /// queues it like [`Workers::resume`] when its bulkhead has no room.
    pub fn go_on(&self, task: Task) {
        self.work.go_on(task);
    }

    /// What the work lane has to do.
    pub fn load(&self) -> Load {
        let state = self.work.state.lock();
        let (running, queued, paused) = (state.running, state.queued(), state.paused.len());
        drop(state);
        Load { running, queued, parked: paused + (self.parked)() }
    }

    /// Refuses new work from now on, and waits until what was admitted is done; calls in the quick lane go on
    /// being served. False if that took longer than `deadline`. Parked calls whose holder never ends are not
    /// waited for.
    pub fn drain(&self, deadline: Instant) -> bool {
        self.work.drain(deadline)
    }

    /// Takes no more work and forgets what is queued. Workers end with the task they are in; nobody waits for
    /// them, as one may be stuck for ever.
    pub fn stop(&self) {
        self.work.stop();
        self.quick.stop();
    }

    fn overload(&self, Load { queued, parked, .. }: Load) -> Error {
        let (parked, limit) = (parked + (self.parked)(), self.limit);
        Error::unavailable(format!(
            "too much to do: {queued} calls are queued and {parked} wait for a volume or a cluster, the \
             limit is {limit} (CEPHLET_QUEUE); send the request again later"
        ))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workers").field(&self.load()).finish()
    }
}

fn spawn(lane: &Arc<Lane>, name: String) -> Result<()> {
    let lane = lane.clone();
    let thread = thread::Builder::new().name(name.clone()).stack_size(STACK);
    thread
        .spawn(move || lane.serve())
        .map(drop)
        .map_err(|cause| Error::io(format_args!("start the thread \"{name}\""), &cause))
}

/// A queue and the workers that serve it.
struct Lane {
    state: Mutex<LaneState>,
    /// There is work, or no more at all.
    wanted: Condvar,
    /// Nothing is queued and nothing runs.
    idle: Condvar,
    /// How many workers all bulkheads together may occupy, each one's first aside.
    share: usize,
}

#[derive(Default)]
struct LaneState {
    resumed: VecDeque<Task>,
    fresh: VecDeque<Task>,
    /// What is to be resumed, and when.
    paused: Vec<(Instant, Task)>,
    running: usize,
    /// How many workers each bulkhead occupies; only those that occupy one.
    occupied: Vec<(Bulkhead, usize)>,
    closed: bool,
    /// Nothing may pause any more.
    restless: bool,
    stopped: bool,
}

impl Lane {
    fn new(share: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), wanted: Condvar::new(), idle: Condvar::new(), share })
    }

    fn admit(&self, task: Task, limit: usize, overload: impl FnOnce(Load) -> Error) -> Result<()> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::unavailable(
                "cephlet is shutting down; send the request again when it is back",
            ));
        }
        let load = Load { running: state.running, queued: state.queued(), parked: state.paused.len() };
        if load.queued + load.parked >= limit {
            drop(state);
            return Err(overload(load));
        }
        state.fresh.push_back(task);
        self.wanted.notify_one();
        Ok(())
    }

    fn resume(&self, task: Task) {
        let mut state = self.state.lock();
        if state.stopped {
            // The task goes with its call's lock: not before the mutex is free, as the next call comes back
            // at once.
            drop(state);
            return;
        }
        state.resumed.push_back(task);
        self.wanted.notify_one();
    }

    fn resume_at(&self, when: Instant, task: Task) {
        let mut state = self.state.lock();
        if state.stopped || state.restless {
            drop(state);
            return;
        }
        state.paused.push((when, task));
        // Everybody who sleeps has to know how long to: whoever is woken may be given other work.
        self.wanted.notify_all();
    }

    fn end_pauses(&self) {
        let mut state = self.state.lock();
        state.restless = true;
        let paused = std::mem::take(&mut state.paused);
        // With the mutex free, like the tasks of a stop.
        drop(state);
        drop(paused);
    }

    fn go_on(&self, task: Task) {
        let mut state = self.state.lock();
        if state.stopped || !state.has_room(&task, self.share) {
            drop(state);
            return self.resume(task);
        }
        let Task { bulkhead, run } = task;
        if let Some(bulkhead) = &bulkhead {
            state.occupy(bulkhead);
        }
        drop(state);
        let permit = Permit { lane: self, bulkhead };
        run();
        drop(permit);
    }

    /// The life of a worker.
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            state.end_due_pauses(Instant::now());
            let Some(Task { bulkhead, run }) = state.take(self.share) else {
                self.sleep(&mut state);
                continue;
            };
            MutexGuard::unlocked(&mut state, || {
                if catch_unwind(AssertUnwindSafe(run)).is_err() {
                    log::error!("a task panicked and nobody caught it: this is a defect; the worker goes on");
                }
            });
            state.running -= 1;
            state.leave(bulkhead.as_ref());
            if state.running == 0 && state.queued() == 0 {
                self.idle.notify_all();
            }
        }
    }

    /// Waits for work, or for the end of the first pause.
    fn sleep(&self, state: &mut MutexGuard<'_, LaneState>) {
        match state.paused.iter().map(|(when, _)| *when).min() {
            Some(when) => drop(self.wanted.wait_until(state, when)),
            None => self.wanted.wait(state),
        }
    }

    fn drain(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        state.closed = true;
        while state.running > 0 || state.queued() > 0 {
            if self.idle.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0 && state.queued() == 0;
            }
        }
        true
    }

    fn stop(&self) {
        let mut state = self.state.lock();
        (state.closed, state.stopped) = (true, true);
        let queued = (std::mem::take(&mut state.resumed), std::mem::take(&mut state.fresh));
        let paused = std::mem::take(&mut state.paused);
        self.wanted.notify_all();
        drop(state);
        // With the mutex free: a task may hold a lock, and whoever gets it next comes to `resume`.
        drop((queued, paused));
    }
}

/// A worker's place behind a bulkhead, released when this is dropped, also by a panic.
struct Permit<'a> {
    lane: &'a Lane,
    bulkhead: Option<Bulkhead>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.lane.state.lock();
        state.leave(self.bulkhead.as_ref());
        // A task may have waited for this place while its worker went to sleep.
        if state.queued() > 0 {
            self.lane.wanted.notify_one();
        }
    }
}

impl LaneState {
    fn queued(&self) -> usize {
        self.resumed.len() + self.fresh.len()
    }

    /// Queues what has paused for long enough.
    fn end_due_pauses(&mut self, now: Instant) {
        let due = self.paused.extract_if(.., |(when, _)| *when <= now);
        self.resumed.extend(due.map(|(_, task)| task));
    }

    /// The first task whose bulkhead has room, those that were parked before the others.
    fn take(&mut self, share: usize) -> Option<Task> {
        let next = |queue: &VecDeque<Task>| queue.iter().position(|task| self.has_room(task, share));
        let task = match next(&self.resumed) {
            Some(at) => self.resumed.remove(at),
            None => next(&self.fresh).and_then(|at| self.fresh.remove(at)),
        }?;
        self.running += 1;
        if let Some(bulkhead) = &task.bulkhead {
            self.occupy(bulkhead);
        }
        Some(task)
    }

    fn occupy(&mut self, bulkhead: &Bulkhead) {
        match self.occupied.iter_mut().find(|(name, _)| name == bulkhead) {
            Some((_, workers)) => *workers += 1,
            None => self.occupied.push((bulkhead.clone(), 1)),
        }
    }

    fn has_room(&self, task: &Task, share: usize) -> bool {
        let Some(bulkhead) = &task.bulkhead else { return true };
        let has_none = self.occupied.iter().all(|(name, _)| name != bulkhead);
        has_none || self.occupied.iter().map(|(_, workers)| workers).sum::<usize>() < share
    }

    fn leave(&mut self, bulkhead: Option<&Bulkhead>) {
        let Some(bulkhead) = bulkhead else { return };
        if let Some((_, workers)) = self.occupied.iter_mut().find(|(name, _)| name == bulkhead) {
            *workers -= 1;
        }
        self.occupied.retain(|(_, workers)| *workers > 0);
    }
}
