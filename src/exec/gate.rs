//! How many processes run at once, and in which order those that wait may start.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Class, CommandError};
use crate::call::Call;

/// How often one that waits looks whether its client's deadline has passed: gRPC's deadline can only be asked, not waited for.
const TICK: Duration = Duration::from_millis(500);

/// A fixed number of places, given out first come, first served.
///
/// Work without a deadline may hold all places but one, so that a few long jobs never keep out what ends soon; it then waits
/// aside, and those behind it pass.
pub(super) struct Gate {
    limit: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: usize,
    lasting: usize,
    closed: bool,
    next_ticket: u64,
    waiting: VecDeque<Waiter>,
}

#[derive(Clone, Copy)]
struct Waiter {
    ticket: u64,
    lasting: bool,
}

/// A place; free again when dropped.
pub(super) struct Place {
    gate: Arc<Gate>,
    lasting: bool,
}

impl Gate {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a place to run `command`.
    pub(super) fn enter(self: &Arc<Self>, call: &Call, command: &str, class: Class) -> Result<Place, CommandError> {
        let started = Instant::now();
        let mut state = self.state.lock();
        let waiter = state.queue(class == Class::Unbounded);
        while !state.closed && !state.try_admit(waiter, self.limit) {
            if call.expired() {
                state.leave(waiter);
                return Err(CommandError::Expired { command: command.into(), waited: started.elapsed() });
            }
            call.step(format!("waiting for others to end before {command}"));
            self.changed.wait_for(&mut state, TICK);
        }
        if state.closed {
            state.leave(waiter);
            return Err(CommandError::Stopping { command: command.into() });
        }
        // The next in the queue may fit as well, and was woken while this one stood before it.
        self.changed.notify_all();
        Ok(Place { gate: Arc::clone(self), lasting: waiter.lasting })
    }

    /// Lets nobody in any more; those that wait get an error.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn queue(&mut self, lasting: bool) -> Waiter {
        let waiter = Waiter { ticket: self.next_ticket, lasting };
        self.next_ticket += 1;
        self.waiting.push_back(waiter);
        waiter
    }

    /// Takes a place if `waiter` is the first in the queue that fits.
    fn try_admit(&mut self, waiter: Waiter, limit: usize) -> bool {
        let lasting_limit = limit.saturating_sub(1).max(1);
        let fits = |candidate: &&Waiter| self.running < limit && (!candidate.lasting || self.lasting < lasting_limit);
        if self.waiting.iter().find(fits).is_none_or(|first| first.ticket != waiter.ticket) {
            return false;
        }
        self.leave(waiter);
        self.running += 1;
        self.lasting += usize::from(waiter.lasting);
        true
    }

    fn leave(&mut self, waiter: Waiter) {
        self.waiting.retain(|other| other.ticket != waiter.ticket);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.running -= 1;
        state.lasting -= usize::from(self.lasting);
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

    fn enter(gate: &Arc<Gate>, class: Class) -> Place {
        gate.enter(&Call::internal("test"), "test", class).unwrap()
    }

    /// Starts a thread that queues; returns once it stands in the queue.
    fn queue(gate: &Arc<Gate>, class: Class, name: &'static str, entered: &mpsc::Sender<(&'static str, Place)>) {
        let before = gate.state.lock().next_ticket;
        let (gate_there, entered) = (Arc::clone(gate), entered.clone());
        thread::spawn(move || entered.send((name, enter(&gate_there, class))));
        while gate.state.lock().next_ticket == before {
            thread::yield_now();
        }
    }

    #[test]
    fn places_are_given_in_order() {
        let gate = Gate::new(1);
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
        let gate = Gate::new(2);
        let (sender, entered) = mpsc::channel();
        let held = enter(&gate, Class::Unbounded);
        queue(&gate, Class::Unbounded, "lasting", &sender);
        queue(&gate, Class::Question, "question", &sender);
        let (name, question) = entered.recv().unwrap();
        assert_eq!(name, "question");
        drop(question);
        assert!(entered.recv_timeout(Duration::from_millis(50)).is_err(), "a second lasting job took the last place");
        drop(held);
        assert_eq!(entered.recv().unwrap().0, "lasting");
    }

    #[test]
    fn one_place_serves_lasting_work_too() {
        drop(enter(&Gate::new(1), Class::Unbounded));
    }

    #[test]
    fn who_waits_beyond_its_deadline_gives_up_and_blocks_nobody() {
        let gate = Gate::new(1);
        let held = enter(&gate, Class::Change);
        let error = gate.enter(&Call::new("test", || true), "btrfs", Class::Change).map(drop).unwrap_err();
        assert!(matches!(error, CommandError::Expired { .. }), "{error}");
        drop(held);
        drop(enter(&gate, Class::Change));
    }

    #[test]
    fn closing_turns_away_those_that_wait() {
        let gate = Gate::new(1);
        let _held = enter(&gate, Class::Change);
        let there = Arc::clone(&gate);
        let waiting = thread::spawn(move || there.enter(&Call::internal("test"), "btrfs", Class::Change).map(drop));
        while gate.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        gate.close();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, CommandError::Stopping { .. }), "{error}");
    }
}
