//! Background jobs, in lanes: for example one for each cluster, so that a hanging cluster delays only its own
//! jobs. A lane has a thread while it has jobs, and does one job at a time, the longest due first.
//!
//! The queue is in memory only. After a restart the journal or the storage shows which jobs are left to do.

use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::dispatch::{Call, Progress};
use crate::error::{Error, Kind, Result};

/// The pause before a failed job is tried again. If an operator has to do something about the failure first,
/// the pause doubles each time.
pub const RETRY: Duration = Duration::from_secs(60);
/// How often the pause doubles at most: to about an hour.
const DOUBLINGS: u32 = 6;
/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;
/// The most jobs that may wait in a lane. More are refused; a job that is put back never is.
const MAX_JOBS: usize = 4096;

/// What happens to a job after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// The job is finished.
    Never,
    /// It is due again after this pause.
    After(Duration),
}

/// What a job does. Its call has expired once the queue is stopped.
type Work = Box<dyn FnMut(&Call) -> Result<Requeue> + Send>;

/// The jobs that wait. Dropping it stops it.
#[derive(Default)]
pub struct JobQueue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopped: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// By name. A lane without jobs, waiting or running, is not here.
    lanes: HashMap<String, Lane>,
    /// What is done now, by the numbers of the calls.
    under_way: BTreeMap<u64, Progress>,
    started: bool,
}

#[derive(Default)]
struct Lane {
    jobs: Vec<Job>,
    /// The name of the job that is being done.
    current: Option<String>,
    has_thread: bool,
}

struct Job {
    due: Instant,
    /// For people, and the identity of the job in its lane.
    name: String,
    work: Work,
    /// How often in a row it failed for a reason that a repetition alone does not change.
    refusals: u32,
}

/// Does something with each of `items`, even after one has failed. Returns the first failure.
pub fn try_each<T>(items: impl IntoIterator<Item = T>, work: impl FnMut(T) -> Result<()>) -> Result<()> {
    items.into_iter().map(work).fold(Ok(()), Result::and)
}

impl JobQueue {
    /// Starts the threads. Jobs that were added before have waited for this.
    pub fn start(&self) {
        let mut state = self.0.state.lock();
        state.started = true;
        let lanes: Vec<String> = state.lanes.keys().cloned().collect();
        lanes.iter().for_each(|lane| self.0.attend(&mut state, lane));
    }

    /// Begins no job any more. Each thread ends with the job it is doing.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
        // A thread between its check of `stopped` and its wait holds this lock.
        drop(self.0.state.lock());
        self.0.changed.notify_all();
    }

    /// What is done now.
    pub fn under_way(&self) -> Vec<Progress> {
        self.0.state.lock().under_way.values().cloned().collect()
    }

    /// Adds a job that is due after `pause`. If one of the same name waits in the lane already, it is due no
    /// later than that. One that fails is tried again after [`RETRY`].
    pub fn add(
        &self,
        lane: &str,
        name: impl Into<String>,
        pause: Duration,
        work: impl FnMut(&Call) -> Result<Requeue> + Send + 'static,
    ) {
        let (due, name) = (Instant::now() + pause, name.into());
        let job = Job { due, name, work: Box::new(work), refusals: 0 };
        let mut state = self.0.state.lock();
        let jobs = &mut state.lanes.entry(lane.to_string()).or_default().jobs;
        match jobs.iter().position(|other| other.name == job.name) {
            Some(same) => jobs[same].due = jobs[same].due.min(job.due),
            None if jobs.len() < MAX_JOBS => jobs.push(job),
            None => log::warn!("{}: it is left undone, {MAX_JOBS} other jobs wait for {lane:?}", job.name),
        }
        self.0.attend(&mut state, lane);
    }

    /// Whether a job of this name is being done in any lane, or waits and was not refused the last time.
    pub fn has(&self, name: &str) -> bool {
        let state = self.0.state.lock();
        let waits = |job: &Job| job.name == name && job.refusals == 0;
        state.lanes.values().any(|lane| lane.current.as_deref() == Some(name) || lane.jobs.iter().any(waits))
    }
}

impl Drop for JobQueue {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Makes sure that the lane has a thread, and that the thread looks at the jobs of the lane.
    fn attend(self: &Arc<Self>, state: &mut State, name: &str) {
        self.changed.notify_all();
        if !state.started || self.is_stopped() {
            return;
        }
        let Some(lane) = state.lanes.get_mut(name).filter(|lane| !lane.has_thread) else { return };
        let (shared, own) = (Arc::clone(self), name.to_string());
        let thread =
            thread::Builder::new().name("jobs".into()).stack_size(STACK).spawn(move || shared.run(&own));
        lane.has_thread = thread.is_ok();
        if let Err(error) = thread {
            log::error!(
                "there is no thread for the jobs of {name:?}, which wait until one is added: {error}"
            );
        }
    }

    fn run(&self, lane: &str) {
        while let Some(mut job) = self.next(lane) {
            if let Requeue::After(pause) = self.perform(lane, &mut job) {
                self.put_back(lane, pause, job);
            }
        }
    }

    /// Does a job once. No failure, not even a panic, ends the thread.
    fn perform(&self, lane: &str, job: &mut Job) -> Requeue {
        let call = self.call(lane, &job.name);
        self.state.lock().under_way.insert(call.id(), call.progress().clone());
        let outcome = catch_unwind(AssertUnwindSafe(|| (job.work)(&call)));
        self.state.lock().under_way.remove(&call.id());
        match outcome {
            Ok(Ok(requeue)) => requeue,
            // A stop breaks off what is under way. The next start sweeps.
            Ok(Err(_)) if self.is_stopped() => Requeue::Never,
            Ok(Err(error)) => Self::failed(job, &error),
            Err(_) => {
                log::error!("{}: cephlet has a defect, see above; it is left undone", job.name);
                Requeue::Never
            }
        }
    }

    /// When a failed job is tried again.
    fn failed(job: &mut Job, error: &Error) -> Requeue {
        let is_refusal = matches!(error.kind(), Kind::Precondition | Kind::Unauthenticated);
        job.refusals = if is_refusal { job.refusals + 1 } else { 0 };
        let pause = RETRY * 2u32.pow(job.refusals.saturating_sub(1).min(DOUBLINGS));
        log::warn!("{}: {error}; it is tried again in {} s", job.name, pause.as_secs());
        Requeue::After(pause)
    }

    fn call(&self, lane: &str, job: &str) -> Call {
        let stopped = Arc::clone(&self.stopped);
        let call = Call::new("job", move || stopped.load(Ordering::Relaxed));
        call.set_bulkhead(lane.into());
        call.set_subject(job);
        call
    }

    /// The next job of a lane, once it is due; None at the end, or when the lane is empty and gone.
    fn next(&self, name: &str) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if self.is_stopped() {
                return None;
            }
            let lane = state.lanes.get_mut(name)?;
            lane.current = None;
            match lane.first() {
                Some(first) if lane.jobs[first].due <= Instant::now() => {
                    let job = lane.jobs.remove(first);
                    lane.current = Some(job.name.clone());
                    return Some(job);
                }
                Some(first) => {
                    let due = lane.jobs[first].due;
                    self.changed.wait_until(&mut state, due);
                }
                None => {
                    state.lanes.remove(name);
                    return None;
                }
            }
        }
    }

    /// Puts a job back, even into a full lane. It replaces a job of the same name, and is due no later.
    fn put_back(&self, lane: &str, pause: Duration, mut job: Job) {
        job.due = Instant::now() + pause;
        let mut state = self.state.lock();
        let jobs = &mut state.lanes.entry(lane.to_string()).or_default().jobs;
        match jobs.iter_mut().find(|other| other.name == job.name) {
            Some(same) => {
                job.due = job.due.min(same.due);
                *same = job;
            }
            None => jobs.push(job),
        }
    }
}

impl Lane {
    /// The index of the job that is due first.
    fn first(&self) -> Option<usize> {
        (0..self.jobs.len()).min_by_key(|at| self.jobs[*at].due)
    }
}

#[cfg(test)]
impl JobQueue {
    /// Does here all jobs that are due within `time`, and those that are added meanwhile and due at once. No
    /// lane may have a thread.
    pub fn work_off(&self, time: Duration) {
        let mut until = Instant::now() + time;
        loop {
            let due = self.take(until);
            if due.is_empty() {
                return;
            }
            for (lane, mut job) in due {
                if let Requeue::After(pause) = self.0.perform(&lane, &mut job) {
                    self.0.put_back(&lane, pause, job);
                }
            }
            until = Instant::now();
        }
    }

    fn take(&self, until: Instant) -> Vec<(String, Job)> {
        let mut taken = Vec::new();
        for (name, lane) in &mut self.0.state.lock().lanes {
            assert!(!lane.has_thread, "a thread does it");
            taken.extend(lane.jobs.extract_if(.., |job| job.due <= until).map(|job| (name.clone(), job)));
        }
        taken
    }

    /// The names of the jobs that wait, and in how much time each is due.
    pub fn waiting(&self) -> Vec<(String, Duration)> {
        let state = self.0.state.lock();
        let jobs = state.lanes.values().flat_map(|lane| &lane.jobs);
        jobs.map(|job| (job.name.clone(), job.due.saturating_duration_since(Instant::now()))).collect()
    }
}

#[cfg(test)]
mod tests;
