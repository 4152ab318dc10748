//! The visible state of a call: its identity, its step, and whether its client still waits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock;

/// The name of something that may hang as a whole: a cluster, or the local disk. Limits are for each
/// bulkhead, so that a hanging one takes nothing from the others.
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
    step: Mutex<(String, Instant)>,
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
            step: Mutex::new((String::from("queued"), Instant::now())),
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
        *self.0.step.lock() = (step.into(), Instant::now());
    }

    /// The step the call is in, and for how long.
    pub fn current_step(&self) -> (String, Duration) {
        let step = self.0.step.lock();
        (step.0.clone(), step.1.elapsed())
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} {} {}", self.id(), self.method(), self.subject())
    }
}
