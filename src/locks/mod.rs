//! The fixed-size lock table: one operation at a time on one object, first in, first out; different objects
//! never wait for each other.
//!
//! A call that has to wait holds no thread: its continuation ([`Entry::wake`]) is parked in the table and run
//! when the object is free, when the same request got its answer, or when it has waited too long. A request
//! joins the one before it if it is the very same, and shares its answer; if that answer is one that a
//! repetition may better, the first who joined repeats the work.
//!
//! Memory: the slots are allocated once. What is parked is bounded by `CEPHLET_QUEUE`, as the pool counts
//! parked calls when it admits new ones (those already at work may still come to wait: as many as there are
//! workers).
//!
//! The mutex is held for the moves in the table only. Inside it the table reads the parked calls' progress
//! and deadlines and compares requests; it never calls a continuation, and never drops one.

mod key;
mod table;
#[cfg(test)]
mod tests;
mod turns;

use std::fmt;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::key::{Identical, Key, KeySet};
use self::table::{Decision, Effects, Table};
use self::turns::{Task, in_turn};
use crate::call::Call;
use crate::error::{Error, Result};

/// How often the parked calls are asked whether their clients still wait.
const LOOK: Duration = Duration::from_millis(250);

/// The timer only walks the table and hands calls over.
const TIMER_STACK: usize = 256 * 1024;

/// The continuation of a call. It is run exactly once, with no mutex held: hand the work to a worker, fill in
/// the answer.
pub type Wake<A> = Box<dyn FnOnce(Turn<A>) + Send>;

/// A call that wants a lock.
pub struct Entry<A: 'static> {
    /// The objects (a source and what is made of it, the volumes of a group): all are locked, or none.
    pub keys: KeySet,
    /// The call: its method, its deadline, and what is shown to those who wait for it.
    pub call: Call,
    /// The request, if an identical one may share its answer.
    pub joinable: Option<Box<dyn Identical>>,
    /// What comes next.
    pub wake: Wake<A>,
}

impl<A: 'static> fmt::Debug for Entry<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("keys", &self.keys).field("call", &self.call).finish_non_exhaustive()
    }
}

/// What becomes of a call in the table.
#[derive(Debug)]
pub enum Turn<A: 'static> {
    /// The objects are locked until the guard is dropped.
    Go(Guard<A>),
    /// The same request came earlier, and this is its answer.
    Answer(A),
    /// Not now: `Busy` after the lock wait, naming the holder, its step and their ages; `Timeout` when the
    /// client's deadline has passed; `Unavailable` when the table is full.
    Refused(Error),
}

/// An operation that holds a lock.
#[derive(Clone, Debug)]
pub struct Holder {
    /// The call's number in the log.
    pub call: u64,
    /// The rpc or job.
    pub method: &'static str,
    /// The volume, snapshot or name it is about.
    pub subject: String,
    /// How long it has held the lock.
    pub held: Duration,
    /// The step it is in.
    pub step: String,
    /// For how long it has been in that step.
    pub step_age: Duration,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = [self.method, &self.subject].join(" ");
        write!(
            f,
            "call {} ({}) has held it for {:.1} s",
            self.call,
            what.trim_end(),
            self.held.as_secs_f32()
        )?;
        write!(f, " and has been in step \"{}\" for {:.1} s", self.step, self.step_age.as_secs_f32())
    }
}

/// The lock table. `A` is the answer that identical requests share. Dropped, it ends its timer; guards stay
/// good.
pub struct Locks<A: 'static>(Arc<Inner<A>>);

struct Inner<A: 'static> {
    state: Mutex<TableState<A>>,
    /// Wakes the timer: somebody's deadline is earlier than what it sleeps for.
    earlier: Condvar,
    wait: Duration,
    retryable: fn(&A) -> bool,
}

struct TableState<A: 'static> {
    table: Table<A>,
    /// When the timer looks again; none: when it is woken.
    look: Option<Instant>,
    closed: bool,
}

impl<A: Clone + Send + 'static> Locks<A> {
    /// A table of `slots` objects. Calls wait `wait` at most. `retryable` tells the answers that joined calls
    /// do not share but try to better (UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED). Fails if the timer's thread
    /// cannot be started.
    pub fn new(slots: usize, wait: Duration, retryable: fn(&A) -> bool) -> Result<Self> {
        let state = TableState { table: Table::new(slots), look: None, closed: false };
        let inner = Arc::new(Inner { state: Mutex::new(state), earlier: Condvar::new(), wait, retryable });
        let timer = inner.clone();
        let thread = thread::Builder::new().name("lock timer".into()).stack_size(TIMER_STACK);
        thread
            .spawn(move || timer.watch())
            .map_err(|cause| Error::io("start the thread of the lock table's timer", &cause))?;
        Ok(Self(inner))
    }

    /// Locks, joins or waits. The entry's `wake` runs before this returns if the objects are free (or the
    /// table full), otherwise later on another thread.
    pub fn enter(&self, entry: Entry<A>) {
        for (wake, outcome) in self.0.enter(entry) {
            wake(self.0.turn(outcome, false));
        }
    }

    /// Waits on this thread until the object is free, and locks it: for work that is no client's call.
    ///
    /// # Errors
    /// `Busy` after the lock wait, `Unavailable` when the table is full or the daemon stops.
    pub fn lock(&self, call: &Call, key: Key) -> Result<Guard<A>> {
        let (sender, turn) = mpsc::channel();
        let wake = Box::new(move |turn| drop(sender.send(turn)));
        self.enter(Entry { keys: key.into(), call: call.clone(), joinable: None, wake });
        match turn.recv() {
            Ok(Turn::Go(guard)) => Ok(guard),
            Ok(Turn::Refused(error)) => Err(error),
            Ok(Turn::Answer(_)) | Err(_) => {
                Err(Error::unavailable("the lock table is gone: cephlet is stopping"))
            }
        }
    }

    /// Refuses every parked call with `error`: what they wait for may go on for longer than the daemon.
    pub fn refuse_parked(&self, error: &Error) {
        let effects = self.0.state.lock().table.refuse_all(error);
        self.0.tell(effects);
    }

    /// How many calls are parked: waiting or joined.
    pub fn parked(&self) -> usize {
        self.0.state.lock().table.parked()
    }

    /// The operations that hold locks.
    #[cfg(test)]
    fn holders(&self) -> Vec<Holder> {
        self.0.state.lock().table.holders(Instant::now())
    }
}

impl<A: 'static> Drop for Locks<A> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.earlier.notify_all();
    }
}

impl<A: 'static> fmt::Debug for Locks<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("parked", &self.0.state.lock().table.parked()).finish_non_exhaustive()
    }
}

impl<A: Clone + Send + 'static> Inner<A> {
    fn enter(&self, entry: Entry<A>) -> Effects<A> {
        // The entry's clone of the call is dropped at the end, after the mutex: it may be the last, and free
        // another lock.
        let call = entry.call.clone();
        let mut state = self.state.lock();
        let now = Instant::now();
        let effects = state.table.enter(entry, self.wait, now);
        let soon = now + LOOK.min(self.wait);
        if state.table.parked() > 0 && state.look.is_none_or(|look| look > soon) {
            self.earlier.notify_one();
        }
        drop(state);
        if effects.is_empty() {
            log::debug!("call {}: waits behind another for the same object", call.id());
        }
        drop(call);
        effects
    }

    /// Serves all deadlines: sleeps until the first one, looks at the clients' own now and then, and sleeps
    /// for good while nobody is parked.
    fn watch(self: &Arc<Self>) {
        let mut state = self.state.lock();
        while !state.closed {
            let now = Instant::now();
            let effects = state.table.expire(now);
            if !effects.is_empty() {
                MutexGuard::unlocked(&mut state, || self.tell(effects));
                continue;
            }
            state.look = state.table.deadline().map(|deadline| deadline.min(now + LOOK));
            match state.look {
                Some(look) => drop(self.earlier.wait_until(&mut state, look)),
                None => self.earlier.wait(&mut state),
            }
        }
    }
}

impl<A: 'static> Inner<A> {
    fn turn(self: &Arc<Self>, outcome: Decision, waited: bool) -> Turn<A> {
        match outcome {
            Decision::Go(ticket) => Turn::Go(Guard { inner: self.clone(), ticket, waited }),
            Decision::Refused(error) => Turn::Refused(error),
        }
    }

    fn tell(self: &Arc<Self>, effects: Effects<A>) {
        let turns = effects.into_iter().map(|(wake, outcome)| (wake, self.turn(outcome, true)));
        in_turn(turns.map(|(wake, turn)| Box::new(move || wake(turn)) as Task));
    }
}

/// The lock of one operation. It may outlive the answer, as long as the work goes on: keep it in
/// [`Call::hold`].
pub struct Guard<A: 'static> {
    inner: Arc<Inner<A>>,
    ticket: u64,
    waited: bool,
}

impl<A: Clone + 'static> Guard<A> {
    /// Gives the answer to everybody who joined; if it is a retryable one, the first of them leads the next
    /// attempt, at the head of the queue. From now on nobody joins: the same request queues.
    pub fn answer(&self, answer: &A) {
        let hand_over = (self.inner.retryable)(answer);
        let joined = self.inner.state.lock().table.answered(self.ticket, hand_over);
        in_turn(joined.into_iter().map(|waiter| {
            let answer = answer.clone();
            Box::new(move || (waiter.wake)(Turn::Answer(answer))) as Task
        }));
    }
}

impl<A: 'static> Guard<A> {
    /// Whether the call was parked before it got its lock, so that `wake` is not running on the thread that
    /// entered.
    pub fn waited(&self) -> bool {
        self.waited
    }
}

impl<A: 'static> Drop for Guard<A> {
    fn drop(&mut self) {
        let effects = self.inner.state.lock().table.leave(self.ticket, Instant::now());
        self.inner.tell(effects);
    }
}

impl<A: 'static> fmt::Debug for Guard<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
