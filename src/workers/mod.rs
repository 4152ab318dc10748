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
//! - A queued call whose client has given up needs no place behind its bulkhead: it is only told so, by the
//!   next worker that has nothing else to do, and leaves its place in the queue to others.

mod lane;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::lane::Lane;
use crate::call::Bulkhead;
use crate::error::{Error, Result};

/// The fewest workers that leave a bulkhead half of them.
pub const MIN_WORKERS: usize = 4;

/// Workers that bulkheads leave to such as have none yet.
const SPARE: usize = 2;

/// Stack of a worker. The work is shallow: the deepest is the parser of the tools' JSON, which stops at 128
/// levels.
const STACK: usize = 512 * 1024;

/// A piece of work.
pub struct Task {
    bulkhead: Option<Bulkhead>,
    /// Whether there is nothing left to do but to say so.
    is_void: Box<dyn Fn() -> bool + Send>,
    run: Box<dyn FnOnce() + Send>,
}

impl Task {
    /// Work behind `bulkhead`; none: it waits for no storage.
    pub fn new(bulkhead: Option<Bulkhead>, run: impl FnOnce() + Send + 'static) -> Self {
        Self { bulkhead, is_void: Box::new(|| false), run: Box::new(run) }
    }

    /// The same, which is over in a moment once `is_void`.
    #[must_use]
    pub fn unless(mut self, is_void: impl Fn() -> bool + Send + 'static) -> Self {
        self.is_void = Box::new(is_void);
        self
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
    count: usize,
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
        let workers = Self { work, quick, count, limit, parked: Box::new(parked) };
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

    /// Refuses one more call of a bulkhead that has `own` of the `all` calls under way already. It may have
    /// as many as there are workers, and beyond that as many as there is room for others: so those of a
    /// cluster that hangs leave half of the queue free, those of a second one a quarter.
    pub fn ensure_room(&self, bulkhead: &Bulkhead, own: usize, all: usize) -> Result<()> {
        let free = (self.count + self.limit).saturating_sub(all);
        if own < self.count.max(free) {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "too much to do for {bulkhead}: {own} calls are under way, and what is left of the queue is for \
             others (CEPHLET_QUEUE, {}); send the request again later",
            self.limit
        )))
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
