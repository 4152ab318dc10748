//! One call being served: who it is, which step it is in, and what it holds.
//!
//! A call outlives the client that made it. Whatever it holds (the lock of its volume) is freed when the last
//! clone of it is dropped, so a command that could not be killed keeps the volume locked by keeping a clone.
//!
//! A call runs on a thread of its own, and works while it holds a worker's permit. Where it has to wait for
//! something that ends by itself (a client that died, another controller's claim) it gives the permit back.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock;
use crate::dispatch::permits::{Permit, Permits};
use crate::error::{Error, Result};

/// What may hang as a whole, by its name: a cluster, or the local disk. What is limited is limited for each
/// of them, so that one that hangs takes nothing from the others.
pub type Bulkhead = Arc<str>;

/// How often a call that waits looks whether its client's deadline has passed: gRPC's deadline can only be asked,
/// not waited for.
pub const TICK: Duration = Duration::from_millis(500);

/// Numbers of calls, for the log.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Tells whether the client's deadline has passed.
type Expired = Box<dyn Fn() -> bool + Send + Sync>;

/// Tells whether a command may still be begun.
type Condition = Arc<dyn Fn() -> bool + Send + Sync>;

/// A call in progress. Clones are the same call. Everything that can be asked of it is asked of its
/// [`Progress`].
#[derive(Clone)]
pub struct Call {
    progress: Progress,
    held: Arc<Mutex<Option<Box<dyn Any + Send>>>>,
    worker: Arc<Mutex<Option<Permit>>>,
    /// What the operation has waited for, and since when.
    waits: Arc<Mutex<HashMap<String, Instant>>>,
    begun: Arc<Mutex<Option<String>>>,
    condition: Option<Condition>,
}

/// What others may see of a call. Unlike a clone of the call it does not keep what the call holds: the lock
/// table shows the holder of a lock without keeping that lock from being freed.
#[derive(Clone)]
pub struct Progress(Arc<CallState>);

struct CallState {
    id: u64,
    method: &'static str,
    /// By the clock that goes on while the machine is suspended.
    started: Duration,
    expired: Expired,
    bulkhead: Mutex<Option<Bulkhead>>,
    ignores_deadline: AtomicBool,
    subject: Mutex<String>,
    step: Mutex<(String, Instant)>,
}

impl Call {
    /// A call of `method` whose client's deadline is told by `expired`.
    pub fn new(method: &'static str, expired: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let now = Instant::now();
        let progress = Progress(Arc::new(CallState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            method,
            started: clock::since_boot(),
            expired: Box::new(expired),
            bulkhead: Mutex::default(),
            ignores_deadline: AtomicBool::new(false),
            subject: Mutex::default(),
            step: Mutex::new((String::from("queued"), now)),
        }));
        let (held, worker, waits, begun) = (Arc::default(), Arc::default(), Arc::default(), Arc::default());
        Self { progress, held, worker, waits, begun, condition: None }
    }

    /// A piece of work nobody waits for: start-up, background jobs, tests.
    pub fn internal(method: &'static str) -> Self {
        Self::new(method, || false)
    }

    /// The call as others see it, without what it holds.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The same call, for commands that may be begun only as long as `condition` holds. That is asked when a
    /// command has its turn, for which it may have waited.
    #[must_use]
    pub fn only_while(&self, condition: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { condition: Some(Arc::new(condition)), ..self.clone() }
    }

    /// Whether a command may be begun now.
    pub fn may_begin(&self) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition())
    }

    /// Waits for `what` without holding the thread: fails with [`Kind::Waiting`](crate::error::Kind::Waiting)
    /// until this call has waited for it for `at_most`, counted from the first time it said so. Afterwards it
    /// is Ok, and the operation goes on with a verdict of its own. `what` is the step that is shown
    /// meanwhile; name the object in it, so that waiting for another one begins anew.
    ///
    /// # Errors
    /// `Waiting`: the operation gives up, and is repeated from its start after `pause`. `Timeout`: the
    /// client's deadline has passed meanwhile.
    pub fn wait(&self, what: impl Into<String>, at_most: Duration, pause: Duration) -> Result<()> {
        let what = what.into();
        let since = *self.waits.lock().entry(what.clone()).or_insert_with(Instant::now);
        if since.elapsed() >= at_most {
            return Ok(());
        }
        if self.expired() {
            return Err(Error::timeout(format!("the client's deadline passed in step \"{what}\"")));
        }
        self.enter_step(what.clone());
        Err(Error::waiting(what, pause))
    }

    /// Whether the operation has waited for anything yet, so that this is a repetition.
    pub fn has_waited(&self) -> bool {
        !self.waits.lock().is_empty()
    }

    /// Whether its client has given up before any of the work was done.
    pub fn is_void(&self) -> bool {
        self.expired() && !self.has_waited()
    }

    /// Remembers that this call has begun something that it has to end, or to undo. A repetition of the
    /// operation finds it begun, and could not tell it from what an earlier call has left.
    pub fn begin(&self, what: impl Into<String>) {
        *self.begun.lock() = Some(what.into());
    }

    /// What this call has begun, now or before it had to wait.
    pub fn begun(&self) -> Option<String> {
        self.begun.lock().clone()
    }

    /// It works from now on.
    pub fn work_with(&self, permit: Permit) {
        *self.worker.lock() = Some(permit);
    }

    /// It works no more.
    pub fn stop_working(&self) {
        drop(self.worker.lock().take());
    }

    /// Does nothing for a while, and is no worker meanwhile.
    ///
    /// # Errors
    /// `Unavailable`: the daemon stops.
    pub fn pause(&self, time: Duration) -> Result<()> {
        let Some(permit) = self.worker.lock().take() else {
            std::thread::sleep(time);
            return Ok(());
        };
        let permit = Permits::pause(permit, self, time).map_err(|_| {
            let (step, _) = self.current_step();
            Error::unavailable(format!(
                "cephlet is stopping in step \"{step}\"; send the request again when it is back"
            ))
        })?;
        self.work_with(permit);
        Ok(())
    }

    /// Keeps `thing` until the last clone of this call is gone.
    pub fn hold(&self, thing: impl Any + Send) {
        let former = self.held.lock().replace(Box::new(thing));
        // Dropped with the mutex free: a guard that goes wakes the next call, and who knows what that one
        // does.
        drop(former);
    }
}

impl Deref for Call {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl Progress {
    /// The call's number in the log.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// The rpc or job, as it is named in the log.
    pub fn method(&self) -> &'static str {
        self.0.method
    }

    /// How long ago the call came in.
    pub fn age(&self) -> Duration {
        clock::since_boot().saturating_sub(self.0.started)
    }

    /// Whether the client's deadline has passed, unless the call goes on all the same.
    pub fn expired(&self) -> bool {
        !self.0.ignores_deadline.load(Ordering::Relaxed) && (self.0.expired)()
    }

    /// From now on the call goes on to its end whatever its client's deadline: a repetition would have to do
    /// again what was done so far, which takes longer than a client waits.
    pub fn ignore_deadline(&self) {
        self.0.ignores_deadline.store(true, Ordering::Relaxed);
    }

    /// Says what the call's work may hang with.
    pub fn set_bulkhead(&self, bulkhead: Bulkhead) {
        *self.0.bulkhead.lock() = Some(bulkhead);
    }

    /// What the call's work may hang with; None as long as nobody knows.
    pub fn bulkhead(&self) -> Option<Bulkhead> {
        self.0.bulkhead.lock().clone()
    }

    /// Says which volume, snapshot or name the call is about.
    pub fn set_subject(&self, subject: impl Into<String>) {
        *self.0.subject.lock() = subject.into();
    }

    /// Which volume, snapshot or name the call is about; empty if it is about none.
    pub fn subject(&self) -> String {
        self.0.subject.lock().clone()
    }

    /// Enters a step ("mkfs.ext4 /dev/loop3"): shown to whoever has to wait, and in the log of slow calls.
    pub fn enter_step(&self, step: impl Into<String>) {
        *self.0.step.lock() = (step.into(), Instant::now());
    }

    /// The step the call is in, and for how long.
    pub fn current_step(&self) -> (String, Duration) {
        let step = self.0.step.lock();
        (step.0.clone(), step.1.elapsed())
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.progress.fmt(f)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} {} {}", self.id(), self.method(), self.subject())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    const LONG: Duration = Duration::from_secs(3600);
    const PAUSE: Duration = Duration::from_millis(7);

    #[test]
    fn a_call_that_waits_says_for_what_and_how_long_to_pause() {
        let call = Call::internal("Test");
        assert!(!call.has_waited());
        let error = call.wait("the end of a dead client", LONG, PAUSE).expect_err("there is time left");
        assert_eq!((error.kind(), error.pause()), (Kind::Waiting, Some(PAUSE)));
        assert_eq!(call.current_step().0, "the end of a dead client");
        assert!(call.has_waited());
        assert_eq!(error.context("delete").pause(), Some(PAUSE), "whoever adds to it hands it on");
    }

    #[test]
    fn the_time_is_counted_from_the_first_wait_for_the_same_thing() {
        let call = Call::internal("Test");
        call.wait("one", LONG, PAUSE).expect_err("there is time left");
        std::thread::sleep(Duration::from_millis(2));
        call.clone().wait("one", Duration::from_millis(2), PAUSE).expect("it was waited for long enough");
        call.wait("other", LONG, PAUSE).expect_err("nobody has waited for this one");
        call.wait("none", Duration::ZERO, PAUSE).expect("nothing to wait for");
    }

    #[test]
    fn a_call_that_goes_on_whatever_its_deadline_never_expires() {
        let call = Call::new("Test", || true);
        assert!(call.expired());
        call.clone().ignore_deadline();
        assert!(!call.expired());
    }

    #[test]
    fn a_deadline_that_passes_meanwhile_ends_the_waiting() {
        let call = Call::new("Test", || true);
        let error = call.wait("the end of a dead client", LONG, PAUSE).expect_err("nobody waits for it");
        assert_eq!((error.kind(), error.pause()), (Kind::Timeout, None));
        assert!(error.message().contains("the end of a dead client"), "{error}");
    }
}
