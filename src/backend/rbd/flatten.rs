//! Chains of clones, kept short. A clone reads what it does not have itself from its parent, and that one from its own: each link
//! costs time, and the kernel follows sixteen. A copy at the end of a longer chain than [`DEEPEST`] is given all its data, one at a
//! time, in the background, and only while nobody has it open: its writer would stall. What is killed in the middle is as it was.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::tool::{Image, Info, Parent, RbdTool, Spot};
use crate::backend::ceph::Access;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::secrets::Secrets;

/// So many parents an image may have, one behind the other.
const DEEPEST: usize = 8;
/// Between two looks at an image that is open, or whose cluster does not answer.
const PAUSE: Duration = Duration::from_secs(60);
/// After so many looks an image is forgotten, until it is copied again.
const LOOKS: u32 = 60;
/// So many images may wait; more are forgotten.
const MOST: usize = 1024;
/// So many depths are remembered; beyond that all are forgotten.
const MOST_DEPTHS: usize = 8192;

/// Copies that may have to be flattened. Whoever drops it ends the thread behind its current image.
pub(super) struct Flattening(Arc<Shared>);

struct Shared {
    tool: Arc<dyn RbdTool>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// By id, how many parents an image has at most: others may have flattened one of them.
    depths: Mutex<HashMap<String, usize>>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Job>,
    /// To be looked at again, and from when on.
    later: VecDeque<(Instant, Job)>,
    started: bool,
    stopped: bool,
}

/// A copy.
struct Job {
    spot: Spot,
    id: String,
    parent: Parent,
    looks: u32,
}

/// What became of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It is flat, shallow, or gone.
    Settled,
    /// Somebody has it open.
    InUse,
}

impl Flattening {
    pub fn new(tool: Arc<dyn RbdTool>) -> Self {
        Self(Arc::new(Shared { tool, queue: Mutex::default(), wake: Condvar::new(), depths: Mutex::default() }))
    }

    /// Starts the thread, if it does not run yet. What was put in line before waits for it.
    pub fn start(&self) -> Result<()> {
        if std::mem::replace(&mut self.0.queue.lock().started, true) {
            return Ok(());
        }
        let shared = Arc::clone(&self.0);
        let thread = thread::Builder::new().name("flatten".into()).stack_size(128 * 1024).spawn(move || shared.run());
        thread.map(drop).map_err(|error| Error::io("start the thread that flattens images", &error))
    }

    /// Puts a new copy in line. In a cluster without credentials of its own nothing is done in the background.
    pub fn look_at(&self, spot: &Spot, info: &Info) {
        let Some(parent) = info.parent.clone() else { return };
        let Ok(access) = Access::new(Arc::clone(&spot.access.cluster), &Secrets::default()) else { return };
        let mut queue = self.0.queue.lock();
        if queue.waiting.len() < MOST {
            queue.waiting.push_back(Job { spot: Spot { access, ..spot.clone() }, id: info.id.clone(), parent, looks: 0 });
            self.0.wake.notify_one();
        }
    }
}

#[cfg(test)]
impl Flattening {
    /// Does now what the thread would do.
    pub fn work_off(&self) {
        let mut jobs: Vec<Job> = std::mem::take(&mut self.0.queue.lock().waiting).into();
        jobs.extend(self.0.queue.lock().later.drain(..).map(|(_, job)| job));
        jobs.into_iter().for_each(|job| self.0.work(job));
    }
}

impl Drop for Flattening {
    fn drop(&mut self) {
        self.0.queue.lock().stopped = true;
        self.0.wake.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(job) = self.next() {
            self.work(job);
        }
    }

    /// The next copy to look at; None at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            let due = queue.later.front().map(|(due, _)| *due);
            if due.is_some_and(|due| due <= Instant::now()) {
                return queue.later.pop_front().map(|(_, job)| job);
            }
            if let Some(job) = queue.waiting.pop_front() {
                return Some(job);
            }
            match due {
                Some(due) => drop(self.wake.wait_until(&mut queue, due)),
                None => self.wake.wait(&mut queue),
            }
        }
    }

    fn work(&self, job: Job) {
        let looks = job.looks + 1;
        let again = match self.settle(&Call::internal("flatten"), &job) {
            Ok(verdict) => verdict == Verdict::InUse,
            Err(error) => {
                log::warn!("image {} of pool {:?} is to be flattened: {error}", job.id, job.spot.pool);
                true
            }
        };
        let mut queue = self.queue.lock();
        if again && looks < LOOKS && queue.later.len() < MOST {
            queue.later.push_back((Instant::now() + PAUSE, Job { looks, ..job }));
        }
    }

    fn settle(&self, call: &Call, job: &Job) -> Result<Verdict> {
        if self.remembered_depth(job).is_some_and(|depth| depth <= DEEPEST) || self.depth(call, job)? <= DEEPEST {
            return Ok(Verdict::Settled);
        }
        // By its name of today.
        let Some(info) = self.tool.info(call, &job.spot, Image::Id(&job.id))? else { return Ok(Verdict::Settled) };
        match self.tool.watchers(call, &job.spot, &info.name)? {
            None => return Ok(Verdict::Settled),
            Some(watchers) if !watchers.is_empty() => return Ok(Verdict::InUse),
            Some(_) => {}
        }
        log::info!("image {} of pool {:?} has more than {DEEPEST} parents: it is flattened", info.name, job.spot.pool);
        self.tool.flatten(call, &job.spot, &info.name)?;
        self.remember(&job.id, 0);
        Ok(Verdict::Settled)
    }

    /// How deep the copy is at most, as far as its parent is known.
    fn remembered_depth(&self, job: &Job) -> Option<usize> {
        let of_parent = *self.depths.lock().get(job.parent.id.as_ref()?)?;
        self.remember(&job.id, of_parent + 1);
        Some(of_parent + 1)
    }

    /// Counts the parents.
    fn depth(&self, call: &Call, job: &Job) -> Result<usize> {
        let mut chain = vec![job.id.clone()];
        let mut next = Some(job.parent.clone());
        while let Some(Parent { pool, namespace, id: Some(id), .. }) = next {
            let spot = Spot { access: job.spot.access.clone(), pool, namespace };
            next = self.tool.info(call, &spot, Image::Id(&id))?.and_then(|info| info.parent);
            chain.push(id);
        }
        chain.iter().rev().enumerate().for_each(|(depth, id)| self.remember(id, depth));
        Ok(chain.len() - 1)
    }

    fn remember(&self, id: &str, depth: usize) {
        let mut depths = self.depths.lock();
        if depths.len() >= MOST_DEPTHS {
            depths.clear();
        }
        depths.insert(id.to_string(), depth);
    }
}
