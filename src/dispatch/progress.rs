//! The visible state of a call: its identity, its step, and whether its client still waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock;

/// The name of something that may hang as a whole: a backend's work on a cluster, or the local disk. Limits
/// are for each bulkhead, so that a hanging one does not stop the others.
pub type Bulkhead = Arc<str>;

/// How often a waiting call checks whether its client's deadline has passed: gRPC's deadline can be queried,
/// but not waited for.
pub const TICK: Duration = Duration::from_millis(500);

/// Numbers of calls, for the log.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Tells whether the client's deadline has passed.
type Expired = Box<dyn Fn() -> bool + Send + Sync>;

/// The visible state of a call. Unlike a clone of the call it does not keep what the call holds: the lock
/// table shows the holder of a lock without keeping the lock from being freed.
#[derive(Clone)]
pub struct Progress(Arc<CallState>);

struct CallState {
    id: u64,
    method: &'static str,
    /// By the clock that includes suspended time.
    started: Duration,
    expired: Expired,
    bulkhead: Mutex<Option<Bulkhead>>,
    ignores_deadline: AtomicBool,
    subject: Mutex<String>,
    step: Mutex<Step>,
    reports: AtomicU32,
}

/// A step of a call, and how far it is.
#[derive(Clone, Debug)]
pub struct Step {
    /// What is done, such as a command line.
    pub name: String,
    /// How much of it is done, in percent, where its tool tells that.
    pub percent: Option<u8>,
    since: Instant,
}

impl Step {
    fn new(name: String) -> Self {
        Self { name, percent: None, since: Instant::now() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.percent.map_or(Ok(()), |percent| write!(f, " ({percent} %)"))
    }
}

impl Progress {
    /// A call of `method` that has just come in; `expired` tells whether its client's deadline has passed.
    pub(super) fn new(method: &'static str, expired: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(CallState {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            method,
            started: clock::since_boot(),
            expired: Box::new(expired),
            bulkhead: Mutex::default(),
            ignores_deadline: AtomicBool::new(false),
            subject: Mutex::default(),
            step: Mutex::new(Step::new(String::from("queued"))),
            reports: AtomicU32::new(0),
        }))
    }

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

    /// From now on the call ignores its client's deadline and goes on to its end. A repetition would have to
    /// do the same work again, which takes longer than a client waits.
    pub fn ignore_deadline(&self) {
        self.0.ignores_deadline.store(true, Ordering::Relaxed);
    }

    /// Sets what the call's work may hang with.
    pub fn set_bulkhead(&self, bulkhead: Bulkhead) {
        *self.0.bulkhead.lock() = Some(bulkhead);
    }

    /// The bulkhead that the call's work may hang with; None while it is not known.
    pub fn bulkhead(&self) -> Option<Bulkhead> {
        self.0.bulkhead.lock().clone()
    }

    /// Sets the volume, snapshot or name that the call is about.
    pub fn set_subject(&self, subject: impl Into<String>) {
        *self.0.subject.lock() = subject.into();
    }

    /// Which volume, snapshot or name the call is about; empty if it is about none.
    pub fn subject(&self) -> String {
        self.0.subject.lock().clone()
    }

    /// Enters a step ("mkfs.ext4 /dev/loop3"): shown to waiting calls, and in the log of slow calls.
    pub fn enter_step(&self, step: impl Into<String>) {
        *self.0.step.lock() = Step::new(step.into());
    }

    /// Says how much of the step is done, in percent.
    pub fn come_to(&self, percent: u8) {
        self.0.step.lock().percent = Some(percent);
    }

    /// The step the call is in.
    pub fn step(&self) -> Step {
        self.0.step.lock().clone()
    }

    /// Whether a report is due, of which there is one after each further `pause`. It counts as made then.
    pub fn is_due(&self, pause: Duration) -> bool {
        let due = u32::try_from(self.age().as_nanos() / pause.as_nanos()).unwrap_or(u32::MAX);
        self.0.reports.fetch_max(due, Ordering::Relaxed) < due
    }

    /// The step the call is in, with how far it is, and for how long.
    pub fn current_step(&self) -> (String, Duration) {
        let step = self.step();
        (step.to_string(), step.since.elapsed())
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} {} {}", self.id(), self.method(), self.subject())
    }
}
