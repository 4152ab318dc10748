//! Permits limit how much goes on at once, in all and for each bulkhead (one backend's work on one cluster,
//! or the local disk), so that each bulkhead has a permit while others hang. Workers, commands and helpers
//! each have their own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::dispatch::progress::{Bulkhead, Progress, TICK};

/// How many permits there are. A bulkhead that holds none gets one beyond all limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all.
    pub all: usize,
    /// For each bulkhead.
    pub each: usize,
    /// How many permits of each bulkhead may be held by work without a deadline; at least one.
    pub lasting: usize,
}

/// What a permit is wanted for.
#[derive(Debug)]
pub struct Want<'a> {
    /// The permit counts for this bulkhead.
    pub bulkhead: Option<Bulkhead>,
    /// The work has no deadline.
    pub is_lasting: bool,
    /// The call had a permit before, and precedes the others.
    pub is_back: bool,
    /// The step that is shown while the call waits; None keeps the current one.
    pub step: Option<&'a str>,
    /// How long the call waits at most.
    pub patience: Duration,
}

/// Why no permit was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPermit {
    /// The client's deadline passed, or the patience ran out, after so long.
    Expired(Duration),
    /// No permits are given any more.
    Closed,
}

/// Gives permits, first come, first served among those that fit.
pub struct Permits {
    limits: Limits,
    state: Mutex<State>,
    /// Notified when pauses end.
    awake: Condvar,
}

#[derive(Default)]
struct State {
    total: usize,
    /// Only bulkheads that hold permits.
    held: HashMap<Option<Bulkhead>, Held>,
    queue: VecDeque<Arc<Waiting>>,
    is_closed: bool,
    /// Pauses have ended, and no new one begins.
    pauses_ended: bool,
}

#[derive(Default)]
struct Held {
    all: usize,
    lasting: usize,
}

struct Waiting {
    bulkhead: Option<Bulkhead>,
    is_lasting: bool,
    granted: AtomicBool,
    changed: Condvar,
}

/// The right to go on, given back when it is dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Arc<Permits>,
    bulkhead: Option<Bulkhead>,
    is_lasting: bool,
}

impl Permit {
    /// The bulkhead that the permit counts for.
    pub fn bulkhead(&self) -> &Option<Bulkhead> {
        &self.bulkhead
    }

    /// The permits of which this is one.
    pub fn permits(&self) -> Arc<Permits> {
        Arc::clone(&self.permits)
    }

    /// Gives the permit back. The call can take one of its kind again later, by what is returned.
    pub fn give_back(self) -> (Arc<Permits>, Want<'static>) {
        let (bulkhead, is_lasting, patience) = (self.bulkhead.clone(), self.is_lasting, Duration::MAX);
        (self.permits(), Want { bulkhead, is_lasting, is_back: true, step: None, patience })
    }
}

impl Permits {
    /// With these limits.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), awake: Condvar::new() })
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// See [`NoPermit`]; nothing is held then.
    pub fn acquire(self: &Arc<Self>, call: &Progress, want: Want<'_>) -> Result<Permit, NoPermit> {
        let Want { bulkhead, is_lasting, is_back, step, patience } = want;
        let begun = Instant::now();
        let granted = AtomicBool::new(false);
        let own = Arc::new(Waiting { bulkhead, is_lasting, granted, changed: Condvar::new() });
        let mut state = self.state.lock();
        match is_back {
            true => state.queue.push_front(Arc::clone(&own)),
            false => state.queue.push_back(Arc::clone(&own)),
        }
        state.grant(&self.limits);
        while !own.granted.load(Ordering::Relaxed) {
            let waited = begun.elapsed();
            // A call that had a permit before checks by itself whether its client is gone.
            let expired = !is_back && call.expired();
            let refusal = match (state.is_closed, expired || waited >= patience) {
                (true, _) => NoPermit::Closed,
                (false, true) => NoPermit::Expired(waited),
                (false, false) => {
                    if let Some(step) = step {
                        call.enter_step(step);
                    }
                    own.changed.wait_for(&mut state, TICK.min(patience - waited));
                    continue;
                }
            };
            state.queue.retain(|other| !Arc::ptr_eq(other, &own));
            return Err(refusal);
        }
        let permits = Arc::clone(self);
        Ok(Permit { permits, bulkhead: own.bulkhead.clone(), is_lasting })
    }

    /// Gives no more permits; those that wait get [`NoPermit::Closed`].
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.queue.iter().for_each(|waiting| {
            waiting.changed.notify_one();
        });
    }

    /// Blocks for `time`.
    ///
    /// # Errors
    /// [`NoPermit::Closed`]: pauses have been ended.
    pub fn sleep(&self, time: Duration) -> Result<(), NoPermit> {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while !state.pauses_ended && !self.awake.wait_until(&mut state, until).timed_out() {}
        if state.pauses_ended { Err(NoPermit::Closed) } else { Ok(()) }
    }

    /// Ends all pauses, and those that would begin later.
    pub fn end_pauses(&self) {
        self.state.lock().pauses_ended = true;
        self.awake.notify_all();
    }

    /// How many permits are held, and how many calls wait for one.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.total, state.queue.len())
    }
}

impl State {
    /// Gives permits to the first in the queue that fit.
    fn grant(&mut self, limits: &Limits) {
        if self.is_closed {
            return;
        }
        while let Some(at) = self.queue.iter().position(|waiting| self.fits(waiting, limits)) {
            let Some(waiting) = self.queue.remove(at) else { return };
            let held = self.held.entry(waiting.bulkhead.clone()).or_default();
            held.all += 1;
            held.lasting += usize::from(waiting.is_lasting);
            self.total += 1;
            waiting.granted.store(true, Ordering::Relaxed);
            waiting.changed.notify_one();
        }
    }

    fn fits(&self, waiting: &Waiting, limits: &Limits) -> bool {
        let (own, lasting) = self.held.get(&waiting.bulkhead).map_or((0, 0), |held| (held.all, held.lasting));
        let may_last = !waiting.is_lasting || lasting < limits.lasting.max(1);
        own == 0 || (self.total < limits.all && own < limits.each && may_last)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        state.total -= 1;
        if let Some(held) = state.held.get_mut(&self.bulkhead) {
            held.all -= 1;
            held.lasting -= usize::from(self.is_lasting);
            if held.all == 0 {
                state.held.remove(&self.bulkhead);
            }
        }
        state.grant(&self.permits.limits);
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (held, waiting) = self.load();
        write!(f, "{held} permits held, {waiting} waited for")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::{Sender, channel};
    use std::thread;

    use super::*;
    use crate::dispatch::Call;

    const NEVER: Duration = Duration::from_secs(600);
    const COMMANDS: Limits = Limits { all: usize::MAX, each: 3, lasting: 2 };
    const WORKERS: Limits = Limits { all: 4, each: 2, lasting: usize::MAX };

    fn want(bulkhead: Option<&str>) -> Want<'static> {
        let bulkhead = bulkhead.map(Bulkhead::from);
        Want { bulkhead, is_lasting: false, is_back: false, step: None, patience: NEVER }
    }

    /// A permit, if one is free now.
    fn now(permits: &Arc<Permits>, want: Want<'_>) -> Result<Permit, NoPermit> {
        permits.acquire(&Call::internal("test"), Want { patience: Duration::ZERO, ..want })
    }

    /// Starts a thread that waits for a permit, and returns once it stands in the queue.
    fn queue(
        permits: &Arc<Permits>,
        want: Want<'static>,
        name: &'static str,
        to: &Sender<(&'static str, Permit)>,
    ) {
        let (_, before) = permits.load();
        let Want { bulkhead, is_lasting, is_back, patience, .. } = want;
        let (there, to) = (Arc::clone(permits), to.clone());
        thread::spawn(move || {
            let want = Want { bulkhead, is_lasting, is_back, step: None, patience };
            to.send((name, there.acquire(&Call::internal("test"), want).unwrap()))
        });
        while permits.load().1 == before {
            thread::yield_now();
        }
    }

    #[test]
    fn permits_are_given_in_order_and_first_to_those_that_come_back() {
        let permits = Permits::new(Limits { each: 1, ..COMMANDS });
        let held = now(&permits, want(None)).unwrap();
        let (to, given) = channel();
        queue(&permits, want(None), "first", &to);
        queue(&permits, want(None), "second", &to);
        queue(&permits, Want { is_back: true, ..want(None) }, "back", &to);
        assert!(given.try_recv().is_err());
        drop(held);
        let order: Vec<_> = (0..3).map(|_| given.recv().unwrap().0).collect();
        assert_eq!(order, ["back", "first", "second"]);
    }

    #[test]
    fn lasting_work_leaves_one_permit_and_is_passed_while_it_waits() {
        let permits = Permits::new(Limits { each: 2, lasting: 1, ..COMMANDS });
        let lasting = || Want { is_lasting: true, ..want(None) };
        let held = now(&permits, lasting()).unwrap();
        let (to, given) = channel();
        queue(&permits, lasting(), "lasting", &to);
        drop(now(&permits, want(None)).expect("the last one is for what ends soon"));
        assert!(given.try_recv().is_err());
        drop(held);
        assert_eq!(given.recv().unwrap().0, "lasting");
    }

    #[test]
    fn a_bulkhead_that_hangs_takes_no_permit_of_another() {
        let permits = Permits::new(COMMANDS);
        let hanging: Vec<_> = (0..3).map(|_| now(&permits, want(Some("hanging"))).unwrap()).collect();
        assert!(now(&permits, want(Some("hanging"))).is_err());
        for other in [Some("other"), None] {
            let taken: Vec<_> = (0..3).map(|_| now(&permits, want(other))).collect();
            assert!(taken.iter().all(Result::is_ok), "{other:?} is kept out");
        }
        drop(hanging);
        assert_eq!(permits.load(), (0, 0));
        assert!(permits.state.lock().held.is_empty());
    }

    #[test]
    fn each_bulkhead_has_a_first_worker_while_others_hang() {
        let permits = Permits::new(WORKERS);
        let one: Vec<_> = (0..2).map(|_| now(&permits, want(Some("one"))).unwrap()).collect();
        assert!(now(&permits, want(Some("one"))).is_err(), "two workers stay free");
        let other: Vec<_> = (0..2).map(|_| now(&permits, want(Some("other"))).unwrap()).collect();
        assert_eq!(permits.load().0, WORKERS.all);
        for hanging in ["third", "fourth"] {
            let first = now(&permits, want(Some(hanging))).expect("the first one");
            assert!(now(&permits, want(Some(hanging))).is_err());
            drop(first);
        }
        drop((one, other));
    }

    #[test]
    fn a_call_that_expires_leaves_the_queue() {
        let permits = Permits::new(Limits { each: 1, ..COMMANDS });
        let held = now(&permits, want(None)).unwrap();
        let refused = permits.acquire(&Call::new("test", || true), want(None)).unwrap_err();
        assert!(matches!(refused, NoPermit::Expired(_)));
        drop(held);
        drop(now(&permits, want(None)).unwrap());
    }

    #[test]
    fn closing_ends_the_waiting() {
        let permits = Permits::new(Limits { each: 1, ..COMMANDS });
        let _held = now(&permits, want(None)).unwrap();
        let there = Arc::clone(&permits);
        let waiting = thread::spawn(move || there.acquire(&Call::internal("test"), want(None)).map(drop));
        while permits.load().1 == 0 {
            thread::yield_now();
        }
        permits.close();
        assert_eq!(waiting.join().unwrap().unwrap_err(), NoPermit::Closed);
    }
}
