//! How many processes run at once, and in which order those that wait may start.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Class, CommandError};
use crate::call::Call;

/// How often one that waits looks whether its client's deadline has passed: gRPC's deadline can only be
/// asked, not waited for.
const TICK: Duration = Duration::from_millis(500);

/// A fixed number of places, given out first come, first served.
///
/// Work without a deadline may hold all places but one, so that a few long jobs never keep out what ends
/// soon; it then waits aside, and those behind it pass. The same goes for what has a common share: commands
/// of a cluster that hangs keep out neither those of other clusters nor local ones.
pub(super) struct Gate {
    limit: usize,
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    lasting: usize,
    /// Places held by each share that holds any.
    shares: BTreeMap<Arc<str>, usize>,
    closed: bool,
    next_ticket: u64,
    waiting: VecDeque<Waiter>,
}

#[derive(Clone)]
struct Waiter {
    ticket: u64,
    lasting: bool,
    share: Option<Arc<str>>,
}

/// Who wants a place.
pub(super) struct Entrant<'a> {
    pub(super) call: &'a Call,
    pub(super) command: &'a str,
    pub(super) class: Class,
    pub(super) share: Option<&'a Arc<str>>,
}

/// A place; free again when dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    lasting: bool,
    share: Option<Arc<str>>,
}

impl Gate {
    /// With `limit` places, for which nobody waits longer than `patience`.
    pub(super) fn new(limit: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), patience, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a place to run a command.
    pub(super) fn enter(self: &Arc<Self>, entrant: &Entrant<'_>) -> Result<Place, CommandError> {
        let Entrant { call, command, class, share } = *entrant;
        let started = Instant::now();
        let mut state = self.state.lock();
        let waiter = state.queue(class.is_lasting(), share.cloned());
        while !state.closed && !state.try_admit(&waiter, self.limit) {
            let waited = started.elapsed();
            if call.expired() || waited >= self.patience {
                state.leave(&waiter);
                return Err(CommandError::Expired { command: command.into(), waited });
            }
            call.step(format!("waiting for others to end before {command}"));
            self.changed.wait_for(&mut state, TICK);
        }
        if state.closed {
            state.leave(&waiter);
            return Err(CommandError::Stopping { command: command.into() });
        }
        // The next in the queue may fit as well, and was woken while this one stood before it.
        self.changed.notify_all();
        Ok(Place { gate: Arc::clone(self), lasting: waiter.lasting, share: waiter.share })
    }

    /// Lets nobody in any more; those that wait get an error.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn queue(&mut self, lasting: bool, share: Option<Arc<str>>) -> Waiter {
        let waiter = Waiter { ticket: self.next_ticket, lasting, share };
        self.next_ticket += 1;
        self.waiting.push_back(waiter.clone());
        waiter
    }

    /// Takes a place if `waiter` is the first in the queue that fits.
    fn try_admit(&mut self, waiter: &Waiter, limit: usize) -> bool {
        let all_but_one = limit.saturating_sub(1).max(1);
        let held = |share: &Arc<str>| self.shares.get(share).copied().unwrap_or(0);
        let fits = |candidate: &&Waiter| {
            self.running < limit
                && (!candidate.lasting || self.lasting < all_but_one)
                && candidate.share.as_ref().is_none_or(|share| held(share) < all_but_one)
        };
        if self.waiting.iter().find(fits).is_none_or(|first| first.ticket != waiter.ticket) {
            return false;
        }
        self.leave(waiter);
        self.running += 1;
        self.lasting += usize::from(waiter.lasting);
        if let Some(share) = &waiter.share {
            *self.shares.entry(Arc::clone(share)).or_default() += 1;
        }
        true
    }

    fn give_back(&mut self, share: &Arc<str>) {
        if let Some(held) = self.shares.get_mut(share) {
            *held -= 1;
            if *held == 0 {
                self.shares.remove(share);
            }
        }
    }

    fn leave(&mut self, waiter: &Waiter) {
        self.waiting.retain(|other| other.ticket != waiter.ticket);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.running -= 1;
        state.lasting -= usize::from(self.lasting);
        if let Some(share) = &self.share {
            state.give_back(share);
        }
        drop(state);
        self.gate.changed.notify_all();
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        write!(f, "{} of {} running, {} waiting", state.running, self.limit, state.waiting.len())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    /// Longer than any test takes.
    const NEVER: Duration = Duration::from_secs(600);

    fn enter(gate: &Arc<Gate>, class: Class) -> Place {
        enter_as(gate, &Call::internal("test"), class, None).unwrap()
    }

    fn enter_as(
        gate: &Arc<Gate>,
        call: &Call,
        class: Class,
        share: Option<&Arc<str>>,
    ) -> Result<Place, CommandError> {
        gate.enter(&Entrant { call, command: "btrfs", class, share })
    }

    /// Starts a thread that queues; returns once it stands in the queue.
    fn queue(
        gate: &Arc<Gate>,
        class: Class,
        name: &'static str,
        entered: &mpsc::Sender<(&'static str, Place)>,
    ) {
        let before = gate.state.lock().next_ticket;
        let (gate_there, entered) = (Arc::clone(gate), entered.clone());
        thread::spawn(move || entered.send((name, enter(&gate_there, class))));
        while gate.state.lock().next_ticket == before {
            thread::yield_now();
        }
    }

    #[test]
    fn places_are_given_in_order() {
        let gate = Gate::new(1, NEVER);
        let (sender, entered) = mpsc::channel();
        let held = enter(&gate, Class::Change);
        for name in ["first", "second", "third"] {
            queue(&gate, Class::Question, name, &sender);
        }
        assert!(entered.try_recv().is_err(), "nobody may enter while the only place is taken");
        drop(held);
        let order: Vec<_> = (0..3).map(|_| entered.recv().unwrap().0).collect();
        assert_eq!(order, ["first", "second", "third"]);
    }

    #[test]
    fn lasting_work_leaves_one_place_to_the_others() {
        let gate = Gate::new(2, NEVER);
        let (sender, entered) = mpsc::channel();
        let held = enter(&gate, Class::Unbounded);
        queue(&gate, Class::Breakable, "lasting", &sender);
        queue(&gate, Class::Question, "question", &sender);
        let (name, question) = entered.recv().unwrap();
        assert_eq!(name, "question");
        drop(question);
        assert!(
            entered.recv_timeout(Duration::from_millis(50)).is_err(),
            "a second lasting job took the last place"
        );
        drop(held);
        assert_eq!(entered.recv().unwrap().0, "lasting");
    }

    #[test]
    fn a_share_leaves_one_place_to_the_others() {
        let gate = Gate::new(3, NEVER);
        let (hanging, other): (Arc<str>, Arc<str>) = ("hanging".into(), "other".into());
        let call = Call::internal("test");
        let first = enter_as(&gate, &call, Class::Question, Some(&hanging)).unwrap();
        let _second = enter_as(&gate, &call, Class::Question, Some(&hanging)).unwrap();
        let expired = Call::new("test", || true);
        assert!(
            enter_as(&gate, &expired, Class::Question, Some(&hanging)).is_err(),
            "it took the last place"
        );
        drop(enter_as(&gate, &expired, Class::Change, Some(&other)).unwrap());
        drop(enter_as(&gate, &expired, Class::Change, None).unwrap());
        drop(first);
        drop(enter_as(&gate, &expired, Class::Question, Some(&hanging)).unwrap());
    }

    #[test]
    fn one_place_serves_a_share_too() {
        let gate = Gate::new(1, NEVER);
        drop(enter_as(&gate, &Call::internal("test"), Class::Question, Some(&"cluster".into())).unwrap());
        assert!(gate.state.lock().shares.is_empty());
    }

    #[test]
    fn one_place_serves_lasting_work_too() {
        drop(enter(&Gate::new(1, NEVER), Class::Unbounded));
    }

    #[test]
    fn who_waits_beyond_its_deadline_gives_up_and_blocks_nobody() {
        let gate = Gate::new(1, NEVER);
        let held = enter(&gate, Class::Change);
        let error = enter_as(&gate, &Call::new("test", || true), Class::Change, None).map(drop).unwrap_err();
        assert!(matches!(error, CommandError::Expired { .. }), "{error}");
        drop(held);
        drop(enter(&gate, Class::Change));
    }

    #[test]
    fn who_has_no_deadline_gives_up_some_time() {
        let gate = Gate::new(1, Duration::ZERO);
        let held = enter(&gate, Class::Change);
        let error = enter_as(&gate, &Call::internal("test"), Class::Change, None).map(drop).unwrap_err();
        assert!(matches!(error, CommandError::Expired { .. }), "{error}");
        drop(held);
        drop(enter(&gate, Class::Change));
    }

    #[test]
    fn closing_turns_away_those_that_wait() {
        let gate = Gate::new(1, NEVER);
        let _held = enter(&gate, Class::Change);
        let there = Arc::clone(&gate);
        let waiting =
            thread::spawn(move || enter_as(&there, &Call::internal("test"), Class::Change, None).map(drop));
        while gate.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        gate.close();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, CommandError::Stopping { .. }), "{error}");
    }
}
