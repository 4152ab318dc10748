//! Which images this daemon is flattening, so that whoever has a right to one can preempt it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::call::Call;

/// The flattens under way, and those that ended badly a moment ago, by the image's id.
#[derive(Debug, Default)]
pub(crate) struct FlattenRegistry(Mutex<HashMap<String, Flatten>>);

#[derive(Debug)]
enum Flatten {
    /// It ends when this is set.
    Running(Arc<AtomicBool>),
    /// Its command ended at this moment, and did not close the image.
    Killed(Instant),
}

/// What a flatten that is to end has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preempted {
    /// There is none.
    Nothing,
    /// Its command still runs.
    Ending,
    /// Its command ended at this moment, and the cluster may still take it for a client of the image.
    Killed(Instant),
}

/// A flatten under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct FlattenGuard<'a> {
    registry: &'a FlattenRegistry,
    image: String,
    stop: Arc<AtomicBool>,
    /// Nothing is left open.
    pub closed: bool,
}

impl FlattenRegistry {
    /// Enters the flatten of an image, which is done by one at a time. Those that were killed longer than
    /// `forget_after` ago are forgotten.
    pub fn begin(&self, image: &str, forget_after: Duration) -> FlattenGuard<'_> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut flattens = self.0.lock();
        flattens.retain(|_, flatten| !matches!(flatten, Flatten::Killed(at) if at.elapsed() > forget_after));
        flattens.insert(image.to_string(), Flatten::Running(Arc::clone(&stop)));
        FlattenGuard { registry: self, image: image.to_string(), stop, closed: true }
    }

    /// Has the flatten of an image end, if there is one. Does not wait for it.
    pub fn preempt(&self, image: &str) -> Preempted {
        match self.0.lock().get(image) {
            None => Preempted::Nothing,
            Some(Flatten::Killed(at)) => Preempted::Killed(*at),
            Some(Flatten::Running(stop)) => {
                stop.store(true, Ordering::Relaxed);
                Preempted::Ending
            }
        }
    }
}

impl FlattenGuard<'_> {
    /// The call for its commands: they end when it is preempted, or the job's own call has expired.
    pub fn call(&self, job: &Call) -> Call {
        let (stop, job) = (Arc::clone(&self.stop), job.progress().clone());
        Call::new("flatten", move || stop.load(Ordering::Relaxed) || job.expired())
    }

    /// Ends it, for another controller.
    pub fn preempt(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was preempted.
    pub fn is_preempted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for FlattenGuard<'_> {
    fn drop(&mut self) {
        let mut flattens = self.registry.0.lock();
        match self.closed {
            true => flattens.remove(&self.image),
            false => flattens.insert(self.image.clone(), Flatten::Killed(Instant::now())),
        };
    }
}
