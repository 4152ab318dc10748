//! The fixed-size lock table: one operation at a time on one object, first in, first out; different objects
//! never wait for each other.
//!
//! - A slot belongs to one key while a call holds it or waits for it. The slots are allocated once.
//! - A slot's queue holds tickets. A ticket, in one queue or in several, is one piece of work: it runs when
//!   it heads all of them. A ticket is appended to all its queues under one mutex, so any two queues agree on
//!   their order, and no two calls wait for each other.
//! - A request that equals the one of the last ticket shares that ticket: the first call of a ticket leads,
//!   the others joined and get its answer. If a repetition may get a better answer, the first call that
//!   joined leads the next attempt, right behind.
//!
//! A call waits on its thread, and holds no permit meanwhile. The mutex is held for moves in the table only.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use crate::dispatch::call::Call;
use crate::dispatch::key::{Identical, Key, KeySet};
use crate::dispatch::progress::TICK;
use crate::dispatch::tickets::{Table, Turn, Waiting};
use crate::error::{Error, Kind, Result};

/// The lock table. `A` is the answer that identical requests share.
pub struct LockTable<A> {
    state: Mutex<Table<A>>,
    patience: Duration,
    is_retryable: fn(&A) -> bool,
}

/// The outcome of [`LockTable::enter`].
pub enum Locked<A: Clone> {
    /// The objects are locked until the guard is dropped.
    Held(Guard<A>),
    /// The same request came earlier, and this is its answer.
    Joined(A),
}

impl<A: Clone> LockTable<A> {
    /// A table of `slots` objects, for which a call waits `patience` at most. `is_retryable` tells which
    /// answers joined calls do not share but retry.
    pub fn new(slots: usize, patience: Duration, is_retryable: fn(&A) -> bool) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(Table::new(slots)), patience, is_retryable })
    }

    /// Waits for the objects and locks them, or waits for the answer of the same request.
    ///
    /// # Errors
    /// `Busy` after the patience, naming the holder, its step and their ages; `Timeout` when the client's
    /// deadline has passed; `Unavailable` when the table is full or closed.
    pub fn enter(
        self: &Arc<Self>,
        call: &Call,
        keys: &KeySet,
        request: Option<Box<dyn Identical>>,
    ) -> Result<Locked<A>> {
        let own = Waiting::new(call);
        let mut table = self.state.lock();
        table.queue(keys, request, &own)?;
        let turn = own.turn.lock().take();
        match turn {
            Some(turn) => Ok(self.locked(turn)),
            None => {
                log::debug!("call {}: waits behind another for the same object", call.id());
                call.rest(move || self.wait_for_turn(call, &own, table))
            }
        }
    }

    fn locked(self: &Arc<Self>, turn: Turn<A>) -> Locked<A> {
        match turn {
            Turn::Go(ticket) => Locked::Held(Guard { table: Arc::clone(self), ticket }),
            Turn::Answer(answer) => Locked::Joined(answer),
        }
    }

    fn wait_for_turn(
        self: &Arc<Self>,
        call: &Call,
        own: &Arc<Waiting<A>>,
        mut table: MutexGuard<'_, Table<A>>,
    ) -> Result<Locked<A>> {
        let begun = Instant::now();
        loop {
            if let Some(turn) = own.turn.lock().take() {
                return Ok(self.locked(turn));
            }
            let waited = begun.elapsed();
            let refusal = match (&table.closed, call.expired(), waited >= self.patience) {
                (Some(error), ..) => Some(error.clone()),
                (None, true, _) => Some(table.refusal(own, waited, Kind::Timeout)),
                (None, false, true) => Some(table.refusal(own, waited, Kind::Busy)),
                (None, false, false) => None,
            };
            if let Some(error) = refusal {
                table.forget(own);
                return Err(error);
            }
            own.changed.wait_for(&mut table, TICK.min(self.patience - waited));
        }
    }

    /// Refuses all calls that wait, and all later ones.
    pub fn close(&self, error: Error) {
        let mut table = self.state.lock();
        table.closed = Some(error);
        let waiting = table.tickets.values().flat_map(|ticket| &ticket.waiting);
        waiting.for_each(|waiting| {
            waiting.changed.notify_one();
        });
    }

    /// How many objects are locked or waited for.
    pub fn locked_objects(&self) -> usize {
        self.state.lock().slots().count()
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.state.lock().tickets.values().map(|ticket| ticket.waiting.len()).sum()
    }
}

/// A lock that lasts until this is dropped.
pub type Held = Box<dyn Any + Send>;

/// Locks of single objects, for work without a client, and for objects that a call touches beside those of
/// its request. A call takes such a lock after the locks of its own objects, and never two of them.
pub trait ObjectLocks: Send + Sync {
    /// Waits for an object and locks it.
    ///
    /// # Errors
    /// As for [`LockTable::enter`].
    fn lock(&self, call: &Call, key: Key) -> Result<Held>;

    /// Locks an object; None if a call holds it or waits for it.
    ///
    /// # Errors
    /// `Unavailable` when the table is full or closed.
    fn try_lock(&self, call: &Call, key: Key) -> Result<Option<Held>>;
}

impl<A: Clone + Send + 'static> ObjectLocks for Arc<LockTable<A>> {
    fn lock(&self, call: &Call, key: Key) -> Result<Held> {
        match self.enter(call, &key.into(), None)? {
            Locked::Held(guard) => Ok(Box::new(guard)),
            Locked::Joined(_) => Err(Error::internal("a request that cannot join has joined")),
        }
    }

    fn try_lock(&self, call: &Call, key: Key) -> Result<Option<Held>> {
        let own = Waiting::new(call);
        let mut table = self.state.lock();
        if table.has(&key) {
            return Ok(None);
        }
        table.queue(&key.into(), None, &own)?;
        let turn = own.turn.lock().take();
        Ok(turn.and_then(|turn| match self.locked(turn) {
            Locked::Held(guard) => Some(Box::new(guard) as Held),
            Locked::Joined(_) => None,
        }))
    }
}

/// The lock of one operation. It may outlive the answer, as long as the work goes on: keep it in
/// [`Call::hold`].
pub struct Guard<A: Clone> {
    table: Arc<LockTable<A>>,
    ticket: u64,
}

impl<A: Clone> Guard<A> {
    /// Gives the answer to the calls that joined, or makes the first of them try again. From now on no call
    /// joins: the same request queues.
    pub fn answer(&self, answer: &A) {
        let tries_again = (self.table.is_retryable)(answer);
        let mut table = self.table.state.lock();
        if tries_again {
            table.promote(self.ticket);
        }
        let Some(ticket) = table.tickets.get_mut(&self.ticket) else { return };
        ticket.request = None;
        for waiting in std::mem::take(&mut ticket.waiting) {
            waiting.tell(Turn::Answer(answer.clone()));
        }
    }
}

impl<A: Clone> Drop for Guard<A> {
    fn drop(&mut self) {
        let mut table = self.table.state.lock();
        // If the call ended without an answer, the calls that joined try again.
        table.promote(self.ticket);
        table.remove(self.ticket);
    }
}
