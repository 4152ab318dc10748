//! One call being served: its identity, the step it is in, and what it holds.
//!
//! A call outlives the client that made it. What it holds (the lock of its volume) is freed when the last
//! clone of it is dropped, so a command that could not be killed keeps the volume locked by keeping a clone.
//!
//! A call has a thread to itself, and works while it holds a worker's permit. Where it has to wait for
//! something that ends by itself (a client that died, another controller's claim) it gives the permit back.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::dispatch::permits::{Permit, Permits};
use crate::dispatch::progress::Progress;
use crate::error::{Error, Result};

/// Tells whether a command may still be begun.
type Condition = Arc<dyn Fn() -> bool + Send + Sync>;

/// A call in progress. A clone is the same call. [`Progress`] has everything that can be queried.
#[derive(Clone)]
pub struct Call {
    progress: Progress,
    held: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
    worker: Arc<Mutex<Option<Permit>>>,
    condition: Option<Condition>,
}

impl Call {
    /// A call of `method`; `expired` tells whether its client's deadline has passed.
    pub fn new(method: &'static str, expired: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let progress = Progress::new(method, expired);
        Self { progress, held: Arc::default(), worker: Arc::default(), condition: None }
    }

    /// A piece of work that no client waits for: start-up, background jobs, tests.
    pub fn internal(method: &'static str) -> Self {
        Self::new(method, || false)
    }

    /// The view of this call for others, without what it holds.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The same call, whose commands may begin only while `condition` holds. The condition is checked when a
    /// command gets its turn, possibly after a wait.
    #[must_use]
    pub fn only_while(&self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { condition: Some(Arc::new(condition)), ..self.clone() }
    }

    /// The same call for work that needs nothing of what it holds.
    #[must_use]
    pub fn without_hold(&self) -> Self {
        Self { held: Arc::default(), ..self.clone() }
    }

    /// Whether a command may be begun now.
    pub fn may_begin(&self) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition())
    }

    /// Calls `look` until it finds something, with a `pause` after each time; None if it has found nothing
    /// after `at_most`. During the pauses the call has no worker's permit, but keeps everything else that it
    /// holds. `what` is the step that is shown meanwhile.
    ///
    /// # Errors
    /// Those of `look`. `Timeout`: the client's deadline has passed meanwhile. `Unavailable`: the daemon
    /// stops.
    pub fn wait_for<T>(
        &self,
        what: impl Into<String>,
        at_most: Duration,
        pause: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (what, begun) = (what.into(), Instant::now());
        loop {
            if let Some(found) = look()? {
                return Ok(Some(found));
            }
            let left = at_most.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            if self.expired() {
                return Err(Error::timeout(format!("the client's deadline passed in step \"{what}\"")));
            }
            self.enter_step(what.as_str());
            self.pause(pause.min(left))?;
        }
    }

    /// Gives the call a worker's permit.
    pub fn work_with(&self, permit: Permit) {
        *self.worker.lock() = Some(permit);
    }

    /// Gives the worker's permit back.
    pub fn stop_working(&self) {
        drop(self.worker.lock().take());
    }

    /// Gives the worker's permit back while `wait` blocks, and takes one again.
    ///
    /// # Errors
    /// Those of `wait`. `Unavailable`: no permits are given any more.
    pub fn rest<T>(&self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        let Some(permit) = self.worker.lock().take() else { return wait() };
        let (permits, again) = permit.give_back();
        let waited = wait();
        self.work_with(permits.acquire(self, again).map_err(|_| self.stopping())?);
        waited
    }

    /// Sleeps without a worker's permit.
    fn pause(&self, time: Duration) -> Result<()> {
        let permits: Option<Arc<Permits>> = self.worker.lock().as_ref().map(Permit::permits);
        self.rest(|| match permits {
            Some(permits) => permits.sleep(time).map_err(|_| self.stopping()),
            None => {
                thread::sleep(time);
                Ok(())
            }
        })
    }

    fn stopping(&self) -> Error {
        let (step, _) = self.current_step();
        Error::unavailable(format!(
            "cephlet is stopping in step \"{step}\"; send the request again when it is back"
        ))
    }

    /// Keeps `thing` until the last clone of this call is gone.
    pub fn hold(&self, thing: impl Any + Send) {
        let former = self.held.lock().replace(Box::new(thing));
        // Dropped after the mutex is free: a dropped guard wakes the next call, whose next actions are not
        // known here.
        drop(former);
    }
}

impl Deref for Call {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.progress.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const LONG: Duration = Duration::from_secs(3600);
    const PAUSE: Duration = Duration::from_millis(1);

    #[test]
    fn a_call_that_waits_looks_until_something_is_found_and_shows_for_what_it_waits() {
        let call = Call::internal("Test");
        let mut looks = 0;
        let found = call.wait_for("the end of a dead client", LONG, PAUSE, || {
            looks += 1;
            Ok((looks == 3).then_some("gone"))
        });
        assert_eq!((found.expect("it is found"), looks), (Some("gone"), 3));
        assert_eq!(call.current_step().0, "the end of a dead client");
    }

    #[test]
    fn what_is_waited_for_long_enough_is_looked_at_once_more() {
        let call = Call::internal("Test");
        let mut looks = 0;
        let found = call.wait_for("nothing", 5 * PAUSE, LONG, || {
            looks += 1;
            Ok(None::<()>)
        });
        assert_eq!((found.expect("no failure"), looks), (None, 2), "the pause is no longer than the wait");
    }

    #[test]
    fn a_failed_look_ends_the_waiting() {
        let call = Call::internal("Test");
        let error = call.wait_for("nothing", LONG, PAUSE, || Err::<Option<()>, _>(Error::not_found("gone")));
        assert_eq!(error.expect_err("the look failed").kind(), Kind::NotFound);
    }

    #[test]
    fn a_call_that_ignores_its_deadline_never_expires() {
        let call = Call::new("Test", || true);
        assert!(call.expired());
        call.clone().ignore_deadline();
        assert!(!call.expired());
    }

    #[test]
    fn a_deadline_that_passes_meanwhile_ends_the_waiting() {
        let call = Call::new("Test", || true);
        let error = call.wait_for("the end of a dead client", LONG, PAUSE, || Ok(None::<()>));
        let error = error.expect_err("its client is gone");
        assert_eq!(error.kind(), Kind::Timeout);
        assert!(error.message().contains("the end of a dead client"), "{error}");
    }
}
