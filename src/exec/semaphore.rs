//! How many processes run at once, and in which order those that wait may start.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::{Class, CommandError};
use crate::call::{Bulkhead, Call};

/// How often one that waits looks whether its client's deadline has passed: gRPC's deadline can only be
/// asked, not waited for.
const TICK: Duration = Duration::from_millis(500);

/// A fixed number of permits for each bulkhead, given out first come, first served. What hangs in one
/// bulkhead keeps nobody out of another.
///
/// Work without a deadline may hold all permits of its bulkhead but one, so that a few long jobs never keep
/// out what ends soon; it then waits aside, and those behind it pass.
pub(super) struct Semaphore {
    limit: usize,
    patience: Duration,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// One for each bulkhead in which anything runs or waits; commands without a bulkhead have one as well.
    queues: BTreeMap<Option<Bulkhead>, Queue>,
    closed: bool,
    next_ticket: u64,
}

#[derive(Default)]
struct Queue {
    running: usize,
    lasting: usize,
    waiting: VecDeque<Ticket>,
}

#[derive(Clone, Copy)]
struct Ticket {
    number: u64,
    lasting: bool,
}

/// Who wants a permit.
pub(super) struct Waiter<'a> {
    pub(super) call: &'a Call,
    pub(super) command: &'a str,
    pub(super) class: Class,
    pub(super) bulkhead: Option<Bulkhead>,
}

/// The right to run one command, released when it is dropped.
pub(super) struct Permit {
    semaphore: Arc<Semaphore>,
    lasting: bool,
    bulkhead: Option<Bulkhead>,
}

impl Permit {
    /// With what the command is counted.
    pub(super) fn bulkhead(&self) -> &Option<Bulkhead> {
        &self.bulkhead
    }
}

impl Semaphore {
    /// With `limit` permits for each bulkhead, for which nobody waits longer than `patience`.
    pub(super) fn new(limit: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), patience, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a permit to run a command.
    pub(super) fn enter(self: &Arc<Self>, waiter: &Waiter<'_>) -> Result<Permit, CommandError> {
        let Waiter { call, command, class, bulkhead } = waiter;
        let started = Instant::now();
        let mut state = self.state.lock();
        let ticket = state.queue(bulkhead, class.is_lasting());
        while !state.closed && !state.try_admit(bulkhead, ticket, self.limit) {
            let waited = started.elapsed();
            if call.expired() || waited >= self.patience {
                state.leave(bulkhead, ticket);
                return Err(CommandError::Expired { command: (*command).into(), waited });
            }
            call.enter_step(format!("waiting for others to end before {command}"));
            self.changed.wait_for(&mut state, TICK);
        }
        if state.closed {
            state.leave(bulkhead, ticket);
            return Err(CommandError::Stopping { command: (*command).into() });
        }
        // The next in the queue may fit as well, and was woken while this one stood before it.
        self.changed.notify_all();
        Ok(Permit { semaphore: Arc::clone(self), lasting: ticket.lasting, bulkhead: bulkhead.clone() })
    }

    /// Lets nobody in any more; those that wait get an error.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl State {
    fn queue(&mut self, bulkhead: &Option<Bulkhead>, lasting: bool) -> Ticket {
        let ticket = Ticket { number: self.next_ticket, lasting };
        self.next_ticket += 1;
        self.queues.entry(bulkhead.clone()).or_default().waiting.push_back(ticket);
        ticket
    }

    /// Takes a permit if `ticket` is the first in its queue that fits.
    fn try_admit(&mut self, bulkhead: &Option<Bulkhead>, ticket: Ticket, limit: usize) -> bool {
        self.queues.get_mut(bulkhead).is_some_and(|queue| queue.try_admit(ticket, limit))
    }

    fn leave(&mut self, bulkhead: &Option<Bulkhead>, ticket: Ticket) {
        self.change(bulkhead, |queue| queue.waiting.retain(|other| other.number != ticket.number));
    }

    fn give_back(&mut self, bulkhead: &Option<Bulkhead>, lasting: bool) {
        self.change(bulkhead, |queue| {
            queue.running -= 1;
            queue.lasting -= usize::from(lasting);
        });
    }

    /// Changes a queue that is there; one in which nothing runs or waits any more goes.
    fn change(&mut self, bulkhead: &Option<Bulkhead>, change: impl FnOnce(&mut Queue)) {
        let Some(queue) = self.queues.get_mut(bulkhead) else { return };
        change(queue);
        if queue.running == 0 && queue.waiting.is_empty() {
            self.queues.remove(bulkhead);
        }
    }
}

impl Queue {
    fn try_admit(&mut self, ticket: Ticket, limit: usize) -> bool {
        let all_but_one = limit.saturating_sub(1).max(1);
        let fits =
            |candidate: &&Ticket| self.running < limit && (!candidate.lasting || self.lasting < all_but_one);
        if self.waiting.iter().find(fits).is_none_or(|first| first.number != ticket.number) {
            return false;
        }
        self.waiting.retain(|other| other.number != ticket.number);
        self.running += 1;
        self.lasting += usize::from(ticket.lasting);
        true
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.state.lock().give_back(&self.bulkhead, self.lasting);
        self.semaphore.changed.notify_all();
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let running: usize = state.queues.values().map(|queue| queue.running).sum();
        let waiting: usize = state.queues.values().map(|queue| queue.waiting.len()).sum();
        write!(f, "{running} of {} for each bulkhead running, {waiting} waiting", self.limit)
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

    fn enter(semaphore: &Arc<Semaphore>, class: Class) -> Permit {
        enter_as(semaphore, &Call::internal("test"), class, None).unwrap()
    }

    fn enter_as(
        semaphore: &Arc<Semaphore>,
        call: &Call,
        class: Class,
        bulkhead: Option<&str>,
    ) -> Result<Permit, CommandError> {
        let bulkhead = bulkhead.map(Bulkhead::from);
        semaphore.enter(&Waiter { call, command: "btrfs", class, bulkhead })
    }

    /// Starts a thread that queues; returns once it stands in the queue.
    fn queue(
        semaphore: &Arc<Semaphore>,
        class: Class,
        name: &'static str,
        entered: &mpsc::Sender<(&'static str, Permit)>,
    ) {
        let before = semaphore.state.lock().next_ticket;
        let (gate_there, entered) = (Arc::clone(semaphore), entered.clone());
        thread::spawn(move || entered.send((name, enter(&gate_there, class))));
        while semaphore.state.lock().next_ticket == before {
            thread::yield_now();
        }
    }

    #[test]
    fn places_are_given_in_order() {
        let semaphore = Semaphore::new(1, NEVER);
        let (sender, entered) = mpsc::channel();
        let held = enter(&semaphore, Class::Change);
        for name in ["first", "second", "third"] {
            queue(&semaphore, Class::Question, name, &sender);
        }
        assert!(entered.try_recv().is_err(), "nobody may enter while the only place is taken");
        drop(held);
        let order: Vec<_> = (0..3).map(|_| entered.recv().unwrap().0).collect();
        assert_eq!(order, ["first", "second", "third"]);
    }

    #[test]
    fn lasting_work_leaves_one_place_to_the_others() {
        let semaphore = Semaphore::new(2, NEVER);
        let (sender, entered) = mpsc::channel();
        let held = enter(&semaphore, Class::Unbounded);
        queue(&semaphore, Class::Lasting, "lasting", &sender);
        queue(&semaphore, Class::Question, "question", &sender);
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
    fn whatever_hangs_in_one_bulkhead_every_place_of_another_is_free() {
        for class in [Class::Question, Class::Unbounded, Class::Lasting] {
            let semaphore = Semaphore::new(3, NEVER);
            let (call, expired) = (Call::internal("test"), Call::new("test", || true));
            let enter_now = |bulkhead, class| enter_as(&semaphore, &expired, class, bulkhead);
            let first = enter_as(&semaphore, &call, class, Some("hanging")).unwrap();
            let mut hanging = vec![enter_now(Some("hanging"), class).unwrap()];
            hanging.push(enter_now(Some("hanging"), Class::Change).unwrap());
            assert!(enter_now(Some("hanging"), Class::Change).is_err(), "it has more places than it may");
            for other in [Some("other"), None] {
                let longest = [Class::Unbounded, Class::Unbounded, Class::Change];
                let taken: Vec<_> = longest.map(|class| enter_now(other, class)).into();
                assert!(taken.iter().all(Result::is_ok), "{class:?} in one bulkhead keeps {other:?} out");
            }
            drop(first);
            drop(enter_now(Some("hanging"), Class::Question).unwrap());
            drop(hanging);
            assert!(semaphore.state.lock().queues.is_empty());
        }
    }

    #[test]
    fn one_place_serves_lasting_work_too() {
        drop(enter(&Semaphore::new(1, NEVER), Class::Unbounded));
    }

    #[test]
    fn who_waits_beyond_its_deadline_gives_up_and_blocks_nobody() {
        let semaphore = Semaphore::new(1, NEVER);
        let held = enter(&semaphore, Class::Change);
        let error =
            enter_as(&semaphore, &Call::new("test", || true), Class::Change, None).map(drop).unwrap_err();
        assert!(matches!(error, CommandError::Expired { .. }), "{error}");
        drop(held);
        drop(enter(&semaphore, Class::Change));
    }

    #[test]
    fn who_has_no_deadline_gives_up_some_time() {
        let semaphore = Semaphore::new(1, Duration::ZERO);
        let held = enter(&semaphore, Class::Change);
        let error = enter_as(&semaphore, &Call::internal("test"), Class::Change, None).map(drop).unwrap_err();
        assert!(matches!(error, CommandError::Expired { .. }), "{error}");
        drop(held);
        drop(enter(&semaphore, Class::Change));
    }

    #[test]
    fn closing_turns_away_those_that_wait() {
        let semaphore = Semaphore::new(1, NEVER);
        let _held = enter(&semaphore, Class::Change);
        let there = Arc::clone(&semaphore);
        let waiting =
            thread::spawn(move || enter_as(&there, &Call::internal("test"), Class::Change, None).map(drop));
        while semaphore.state.lock().queues[&None].waiting.is_empty() {
            thread::yield_now();
        }
        semaphore.close();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, CommandError::Stopping { .. }), "{error}");
    }
}
