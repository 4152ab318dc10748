//! The queue of a lane, and which of its tasks is next.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::{Load, Task};
use crate::call::Bulkhead;
use crate::error::{Error, Result};

/// How often a worker that has nothing to do looks whether a queued call has expired: gRPC's deadline can
/// only be asked, not waited for.
const TICK: Duration = Duration::from_millis(500);

/// A queue and the workers that serve it.
pub(super) struct Lane {
    pub(super) state: Mutex<LaneState>,
    /// There is work, or no more at all.
    wanted: Condvar,
    /// Nothing is queued and nothing runs.
    idle: Condvar,
    /// How many workers all bulkheads together may occupy, each one's first aside.
    share: usize,
}

#[derive(Default)]
pub(super) struct LaneState {
    resumed: VecDeque<Task>,
    fresh: VecDeque<Task>,
    /// What is to be resumed, and when.
    pub(super) paused: Vec<(Instant, Task)>,
    pub(super) running: usize,
    /// How many workers each bulkhead occupies; only those that occupy one.
    pub(super) occupied: Vec<(Bulkhead, usize)>,
    closed: bool,
    /// Nothing may pause any more.
    restless: bool,
    stopped: bool,
}

impl Lane {
    pub(super) fn new(share: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), wanted: Condvar::new(), idle: Condvar::new(), share })
    }

    pub(super) fn admit(&self, task: Task, limit: usize, overload: impl FnOnce(Load) -> Error) -> Result<()> {
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

    pub(super) fn resume(&self, task: Task) {
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

    pub(super) fn resume_at(&self, when: Instant, task: Task) {
        let mut state = self.state.lock();
        if state.stopped || state.restless {
            drop(state);
            return;
        }
        state.paused.push((when, task));
        // Everybody who sleeps has to know how long to: whoever is woken may be given other work.
        self.wanted.notify_all();
    }

    pub(super) fn end_pauses(&self) {
        let mut state = self.state.lock();
        state.restless = true;
        let paused = std::mem::take(&mut state.paused);
        // With the mutex free, like the tasks of a stop.
        drop(state);
        drop(paused);
    }

    pub(super) fn go_on(&self, task: Task) {
        let mut state = self.state.lock();
        if state.stopped || !state.has_room(&task, self.share) {
            drop(state);
            return self.resume(task);
        }
        let Task { bulkhead, run, is_void } = task;
        // It has a clone of the call, and with it what the call holds.
        drop(is_void);
        if let Some(bulkhead) = &bulkhead {
            state.occupy(bulkhead);
        }
        drop(state);
        let permit = Permit { lane: self, bulkhead };
        run();
        drop(permit);
    }

    /// The life of a worker.
    pub(super) fn serve(&self) {
        let mut state = self.state.lock();
        while !state.stopped {
            state.end_due_pauses(Instant::now());
            let Some(Task { bulkhead, run, is_void }) = state.take(self.share) else {
                self.sleep(&mut state);
                continue;
            };
            MutexGuard::unlocked(&mut state, || {
                drop(is_void);
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

    /// Waits for work, for the end of the first pause, or for a queued call to expire.
    fn sleep(&self, state: &mut MutexGuard<'_, LaneState>) {
        let tick = (state.queued() > 0).then(|| Instant::now() + TICK);
        match state.paused.iter().map(|(when, _)| *when).chain(tick).min() {
            Some(when) => drop(self.wanted.wait_until(state, when)),
            None => self.wanted.wait(state),
        }
    }

    pub(super) fn drain(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        state.closed = true;
        while state.running > 0 || state.queued() > 0 {
            if self.idle.wait_until(&mut state, deadline).timed_out() {
                return state.running == 0 && state.queued() == 0;
            }
        }
        true
    }

    pub(super) fn stop(&self) {
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
    pub(super) fn queued(&self) -> usize {
        self.resumed.len() + self.fresh.len()
    }

    /// Queues what has paused for long enough.
    fn end_due_pauses(&mut self, now: Instant) {
        let due = self.paused.extract_if(.., |(when, _)| *when <= now);
        self.resumed.extend(due.map(|(_, task)| task));
    }

    /// The first task whose bulkhead has room, or that needs none any more; those that were parked before
    /// the others.
    pub(super) fn take(&mut self, share: usize) -> Option<Task> {
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
        let all = self.occupied.iter().map(|(_, workers)| workers).sum::<usize>();
        has_none || all < share || (task.is_void)()
    }

    fn leave(&mut self, bulkhead: Option<&Bulkhead>) {
        let Some(bulkhead) = bulkhead else { return };
        if let Some((_, workers)) = self.occupied.iter_mut().find(|(name, _)| name == bulkhead) {
            *workers -= 1;
        }
        self.occupied.retain(|(_, workers)| *workers > 0);
    }
}
