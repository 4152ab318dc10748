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

/// A fixed number of permits, given out first come, first served.
///
/// Work without a deadline may hold all permits but one, so that a few long jobs never keep out what ends
/// soon; it then waits aside, and those behind it pass. The same goes for what has a common share: commands
/// of a cluster that hangs keep out neither those of other clusters nor local ones.
pub(super) struct Semaphore {
    limit: usize,
    patience: Duration,
    state: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    running: usize,
    lasting: usize,
    /// Permits held by each share that holds any.
    shares: BTreeMap<Arc<str>, usize>,
    closed: bool,
    next_ticket: u64,
    waiting: VecDeque<Ticket>,
}

#[derive(Clone)]
struct Ticket {
    number: u64,
    lasting: bool,
    share: Option<Arc<str>>,
}

/// Who wants a permit.
pub(super) struct Waiter<'a> {
    pub(super) call: &'a Call,
    pub(super) command: &'a str,
    pub(super) class: Class,
    pub(super) share: Option<&'a Arc<str>>,
}

/// The right to run one command, released when it is dropped.
pub(super) struct Permit {
    semaphore: Arc<Semaphore>,
    lasting: bool,
    share: Option<Arc<str>>,
}

impl Semaphore {
    /// With `limit` permits, for which nobody waits longer than `patience`.
    pub(super) fn new(limit: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self { limit: limit.max(1), patience, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Waits for a permit to run a command.
    pub(super) fn enter(self: &Arc<Self>, waiter: &Waiter<'_>) -> Result<Permit, CommandError> {
        let Waiter { call, command, class, share } = *waiter;
        let started = Instant::now();
        let mut state = self.state.lock();
        let ticket = state.queue(class.is_lasting(), share.cloned());
        while !state.closed && !state.try_admit(&ticket, self.limit) {
            let waited = started.elapsed();
            if call.expired() || waited >= self.patience {
                state.leave(&ticket);
                return Err(CommandError::Expired { command: command.into(), waited });
            }
            call.enter_step(format!("waiting for others to end before {command}"));
            self.changed.wait_for(&mut state, TICK);
        }
        if state.closed {
            state.leave(&ticket);
            return Err(CommandError::Stopping { command: command.into() });
        }
        // The next in the queue may fit as well, and was woken while this one stood before it.
        self.changed.notify_all();
        Ok(Permit { semaphore: Arc::clone(self), lasting: ticket.lasting, share: ticket.share })
    }

    /// Lets nobody in any more; those that wait get an error.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }
}

impl Queue {
    fn queue(&mut self, lasting: bool, share: Option<Arc<str>>) -> Ticket {
        let ticket = Ticket { number: self.next_ticket, lasting, share };
        self.next_ticket += 1;
        self.waiting.push_back(ticket.clone());
        ticket
    }

    /// Takes a permit if `ticket` is the first in the queue that fits.
    fn try_admit(&mut self, ticket: &Ticket, limit: usize) -> bool {
        let all_but_one = limit.saturating_sub(1).max(1);
        let held = |share: &Arc<str>| self.shares.get(share).copied().unwrap_or(0);
        let fits = |candidate: &&Ticket| {
            self.running < limit
                && (!candidate.lasting || self.lasting < all_but_one)
                && candidate.share.as_ref().is_none_or(|share| held(share) < all_but_one)
        };
        if self.waiting.iter().find(fits).is_none_or(|first| first.number != ticket.number) {
            return false;
        }
        self.leave(ticket);
        self.running += 1;
        self.lasting += usize::from(ticket.lasting);
        if let Some(share) = &ticket.share {
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

    fn leave(&mut self, ticket: &Ticket) {
        self.waiting.retain(|other| other.number != ticket.number);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.semaphore.state.lock();
        state.running -= 1;
        state.lasting -= usize::from(self.lasting);
        if let Some(share) = &self.share {
            state.give_back(share);
        }
        drop(state);
        self.semaphore.changed.notify_all();
    }
}

impl fmt::Debug for Semaphore {
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

    fn enter(semaphore: &Arc<Semaphore>, class: Class) -> Permit {
        enter_as(semaphore, &Call::internal("test"), class, None).unwrap()
    }

    fn enter_as(
        semaphore: &Arc<Semaphore>,
        call: &Call,
        class: Class,
        share: Option<&Arc<str>>,
    ) -> Result<Permit, CommandError> {
        semaphore.enter(&Waiter { call, command: "btrfs", class, share })
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
        queue(&semaphore, Class::Breakable, "lasting", &sender);
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
    fn a_share_leaves_one_place_to_the_others() {
        let semaphore = Semaphore::new(3, NEVER);
        let (hanging, other): (Arc<str>, Arc<str>) = ("hanging".into(), "other".into());
        let call = Call::internal("test");
        let first = enter_as(&semaphore, &call, Class::Question, Some(&hanging)).unwrap();
        let _second = enter_as(&semaphore, &call, Class::Question, Some(&hanging)).unwrap();
        let expired = Call::new("test", || true);
        assert!(
            enter_as(&semaphore, &expired, Class::Question, Some(&hanging)).is_err(),
            "it took the last place"
        );
        drop(enter_as(&semaphore, &expired, Class::Change, Some(&other)).unwrap());
        drop(enter_as(&semaphore, &expired, Class::Change, None).unwrap());
        drop(first);
        drop(enter_as(&semaphore, &expired, Class::Question, Some(&hanging)).unwrap());
    }

    #[test]
    fn one_place_serves_a_share_too() {
        let semaphore = Semaphore::new(1, NEVER);
        drop(
            enter_as(&semaphore, &Call::internal("test"), Class::Question, Some(&"cluster".into())).unwrap(),
        );
        assert!(semaphore.state.lock().shares.is_empty());
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
        while semaphore.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
        semaphore.close();
        let error = waiting.join().unwrap().unwrap_err();
        assert!(matches!(error, CommandError::Stopping { .. }), "{error}");
    }
}
