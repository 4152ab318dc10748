//! The fixed-size lock table: one operation at a time on one object, first in, first out; different objects never
//! wait for each other.
//!
//! - A slot belongs to one key while a call holds it or waits for it. The slots are allocated once.
//! - A slot's queue holds tickets. A ticket, in whatever number of queues, is one piece of work: it runs when it
//!   heads all of them. A ticket is appended to all its queues under one mutex, so any two queues agree on their
//!   order, and no two calls wait for each other.
//! - A request that equals the one of the last ticket shares that ticket: the first call of a ticket leads, the
//!   others joined and get its answer. If that answer is one that a repetition may better, the first who joined
//!   leads the next attempt, right behind.
//!
//! A call waits on its thread, and holds no permit meanwhile. The mutex is held for moves in the table only.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::dispatch::call::Call;
use crate::dispatch::key::{Identical, Key, KeySet};
use crate::dispatch::progress::{Progress, TICK};
use crate::error::{Error, Kind, Result};

/// The lock table. `A` is the answer that identical requests share.
pub struct LockTable<A> {
    state: Mutex<Table<A>>,
    patience: Duration,
    is_retryable: fn(&A) -> bool,
}

/// What a call got.
#[derive(Debug)]
pub enum Locked<A: Clone> {
    /// The objects are locked until the guard is dropped.
    Held(Guard<A>),
    /// The same request came earlier, and this is its answer.
    Joined(A),
}

/// A lock that lasts until this is dropped.
pub type Held = Box<dyn Any + Send>;

/// Locks of single objects, for work that no client asked for, and for what a call touches beside the objects
/// that it was asked to work on. A call takes one of these after those of its own objects, and never two.
pub trait ObjectLocks: Send + Sync {
    /// Waits for an object and locks it.
    ///
    /// # Errors
    /// As for [`LockTable::enter`].
    fn lock(&self, call: &Call, key: Key) -> Result<Held>;

    /// Locks an object, unless it is locked; None if it is.
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
        if table.slots.iter().flatten().any(|slot| slot.key == key) {
            return Ok(None);
        }
        table.queue(&key.into(), None, &own)?;
        drop(table);
        let turn = own.turn.lock().take();
        Ok(turn.map(|turn| Box::new(self.locked(turn)) as Held))
    }
}

struct Table<A> {
    slots: Box<[Option<Slot>]>,
    tickets: HashMap<u64, Ticket<A>>,
    next_ticket: u64,
    /// Why nothing is locked any more.
    closed: Option<Error>,
}

struct Slot {
    key: Key,
    queue: VecDeque<u64>,
}

struct Ticket<A> {
    /// The slots in whose queues it stands, in ascending order; at least one.
    seats: Vec<usize>,
    method: &'static str,
    /// What a request must equal to join; none: no request can, or can any more.
    request: Option<Box<dyn Identical>>,
    /// Who has the lock, and since when.
    holder: Option<(Progress, Instant)>,
    /// Before the work starts the first one is its leader; afterwards all have joined.
    waiting: VecDeque<Arc<Waiting<A>>>,
}

/// A call that waits.
struct Waiting<A> {
    progress: Progress,
    turn: Mutex<Option<Turn<A>>>,
    changed: Condvar,
}

enum Turn<A> {
    Go(u64),
    Answer(A),
}

impl<A: Clone> LockTable<A> {
    /// A table of `slots` objects, for which a call waits `patience` at most. `is_retryable` tells the answers
    /// that joined calls do not share but try to better.
    pub fn new(slots: usize, patience: Duration, is_retryable: fn(&A) -> bool) -> Arc<Self> {
        let slots = (0..slots).map(|_| None).collect();
        let state = Table { slots, tickets: HashMap::new(), next_ticket: 0, closed: None };
        Arc::new(Self { state: Mutex::new(state), patience, is_retryable })
    }

    /// Waits for the objects and locks them, or for the answer of the same request.
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
            None => call.rest(move || self.wait_for_turn(call, &own, table)),
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

    /// How many calls wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.state.lock().tickets.values().map(|ticket| ticket.waiting.len()).sum()
    }
}

/// The lock of one operation. It may outlive the answer, as long as the work goes on: keep it in
/// [`Call::hold`].
pub struct Guard<A: Clone> {
    table: Arc<LockTable<A>>,
    ticket: u64,
}

impl<A: Clone> Guard<A> {
    /// Gives the answer to the calls that joined, or has the first of them try again. From now on no call joins:
    /// the same request queues.
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
        // It died without an answer.
        table.promote(self.ticket);
        table.remove(self.ticket);
    }
}

impl<A> Waiting<A> {
    fn new(call: &Call) -> Arc<Self> {
        let progress = call.progress().clone();
        Arc::new(Self { progress, turn: Mutex::default(), changed: Condvar::new() })
    }

    fn tell(&self, turn: Turn<A>) {
        *self.turn.lock() = Some(turn);
        self.changed.notify_one();
    }
}

impl<A: Clone> Table<A> {
    /// Joins the last ticket of the queues, or takes one of its own.
    fn queue(
        &mut self,
        keys: &KeySet,
        request: Option<Box<dyn Identical>>,
        own: &Arc<Waiting<A>>,
    ) -> Result<()> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        let seats = self.seats(keys).ok_or_else(|| full(keys, self.slots.len()))?;
        let method = own.progress.method();
        if let Some(ticket) = self.same(&seats, method, request.as_deref()) {
            ticket.waiting.push_back(Arc::clone(own));
            return Ok(());
        }
        let waiting = VecDeque::from([Arc::clone(own)]);
        self.insert(Ticket { seats: seats.clone(), method, request, holder: None, waiting }, None);
        self.advance(seats);
        Ok(())
    }

    /// The slots of the keys, taken if they are new; all or none.
    fn seats(&mut self, keys: &KeySet) -> Option<Vec<usize>> {
        let mut free = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(at, _)| at);
        let find =
            |key: &Key| self.slots.iter().position(|slot| slot.as_ref().is_some_and(|it| it.key == *key));
        let chosen: Option<Vec<(usize, &Key)>> =
            keys.iter().map(|key| find(key).or_else(|| free.next()).map(|at| (at, key))).collect();
        let mut seats = Vec::new();
        for (at, key) in chosen? {
            self.slots[at].get_or_insert_with(|| Slot { key: key.clone(), queue: VecDeque::new() });
            seats.push(at);
        }
        seats.sort_unstable();
        Some(seats)
    }

    fn queue_of(&mut self, seat: usize) -> Option<&mut VecDeque<u64>> {
        self.slots[seat].as_mut().map(|slot| &mut slot.queue)
    }

    /// The last ticket of the queues, if it is one for the very same request.
    fn same(
        &mut self,
        seats: &[usize],
        method: &str,
        request: Option<&dyn Identical>,
    ) -> Option<&mut Ticket<A>> {
        let last = |slot: &Option<Slot>| slot.as_ref().and_then(|slot| slot.queue.back().copied());
        let id = last(&self.slots[*seats.first()?])?;
        let ticket = self.tickets.get_mut(&id)?;
        let is_same = ticket.seats == seats
            && ticket.method == method
            && seats.iter().all(|&seat| last(&self.slots[seat]) == Some(id))
            && ticket.request.as_ref()?.identical(request?);
        is_same.then_some(ticket)
    }

    /// Puts a ticket into its queues: at a position that all of them have, or at the end.
    fn insert(&mut self, ticket: Ticket<A>, position: Option<usize>) {
        let id = self.next_ticket;
        self.next_ticket += 1;
        for &seat in &ticket.seats {
            if let Some(queue) = self.queue_of(seat) {
                queue.insert(position.unwrap_or(queue.len()), id);
            }
        }
        self.tickets.insert(id, ticket);
    }

    /// The calls that joined the work of `ticket` get a ticket of their own, right behind it: it works, so it
    /// heads its queues.
    fn promote(&mut self, ticket: u64) {
        let Some(former) = self.tickets.get_mut(&ticket).filter(|ticket| !ticket.waiting.is_empty()) else {
            return;
        };
        let next = Ticket {
            seats: former.seats.clone(),
            method: former.method,
            request: former.request.take(),
            holder: None,
            waiting: std::mem::take(&mut former.waiting),
        };
        self.insert(next, Some(1));
    }

    fn remove(&mut self, id: u64) {
        let Some(ticket) = self.tickets.remove(&id) else { return };
        for &seat in &ticket.seats {
            if let Some(queue) = self.queue_of(seat) {
                queue.retain(|other| *other != id);
            }
        }
        self.advance(ticket.seats);
    }

    /// A call that waits no more.
    fn forget(&mut self, own: &Arc<Waiting<A>>) {
        let is_own = |ticket: &Ticket<A>| ticket.waiting.iter().any(|other| Arc::ptr_eq(other, own));
        let Some((&id, ticket)) = self.tickets.iter_mut().find(|(_, ticket)| is_own(ticket)) else { return };
        ticket.waiting.retain(|other| !Arc::ptr_eq(other, own));
        if ticket.waiting.is_empty() && ticket.holder.is_none() {
            self.remove(id);
        }
    }

    /// Starts what now heads its queues; gives back slots that no call wants.
    fn advance(&mut self, seats: Vec<usize>) {
        for seat in seats {
            let Some(slot) = &self.slots[seat] else { continue };
            match slot.queue.front().copied() {
                None => self.slots[seat] = None,
                Some(head) if self.heads_all(head) => self.start(head),
                Some(_) => {}
            }
        }
    }

    fn heads_all(&self, id: u64) -> bool {
        let heads = |seat: &usize| self.slots[*seat].as_ref().is_some_and(|it| it.queue.front() == Some(&id));
        self.tickets.get(&id).is_some_and(|ticket| ticket.seats.iter().all(heads))
    }

    /// Gives the lock to the first call of the ticket.
    fn start(&mut self, id: u64) {
        if self.closed.is_some() {
            return;
        }
        let Some(ticket) = self.tickets.get_mut(&id).filter(|ticket| ticket.holder.is_none()) else { return };
        if let Some(leader) = ticket.waiting.pop_front() {
            ticket.holder = Some((leader.progress.clone(), Instant::now()));
            leader.tell(Turn::Go(id));
        }
    }

    fn refusal(&self, own: &Arc<Waiting<A>>, waited: Duration, kind: Kind) -> Error {
        let why = match kind {
            Kind::Timeout => "until the client's deadline passed",
            _ => "the limit of CEPHLET_LOCK_WAIT",
        };
        let is_own = |ticket: &&Ticket<A>| ticket.waiting.iter().any(|other| Arc::ptr_eq(other, own));
        let seat = self.tickets.values().find(is_own).and_then(|ticket| ticket.seats.first());
        let key = seat.and_then(|seat| self.slots[*seat].as_ref()).map(|slot| slot.key.to_string());
        let holder = seat.and_then(|seat| self.blocker(*seat));
        let holder = holder.unwrap_or_else(|| "by others".to_string());
        Error::new(
            kind,
            format!(
                "{} is busy: {holder}; waited {:.1} s, {why}; send the request again when that is done",
                key.unwrap_or_default(),
                waited.as_secs_f32()
            ),
        )
    }

    /// Whose work the queue of a slot waits for in the end: its head may itself be waiting in another queue.
    fn blocker(&self, seat: usize) -> Option<String> {
        let mut id = *self.slots[seat].as_ref()?.queue.front()?;
        loop {
            let ticket = self.tickets.get(&id)?;
            if let Some((progress, since)) = &ticket.holder {
                return Some(describe(progress, since.elapsed()));
            }
            let heads = ticket.seats.iter().filter_map(|&seat| self.slots[seat].as_ref()?.queue.front());
            id = *heads.into_iter().find(|head| **head != id)?;
        }
    }
}

/// "call 7 (NodeStageVolume web) has held it for 1.2 s and has been in step …"
fn describe(progress: &Progress, held: Duration) -> String {
    let (step, age) = progress.current_step();
    let what = [progress.method(), &progress.subject()].join(" ");
    format!(
        "call {} ({}) has held it for {:.1} s and has been in step \"{step}\" for {:.1} s",
        progress.id(),
        what.trim_end(),
        held.as_secs_f32(),
        age.as_secs_f32()
    )
}

fn full(keys: &KeySet, slots: usize) -> Error {
    Error::unavailable(format!(
        "{keys}: all {slots} slots of the lock table are taken by other volumes; send the request again later, or \
         raise CEPHLET_LOCK_SLOTS"
    ))
}

impl<A> fmt::Debug for LockTable<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockTable").finish_non_exhaustive()
    }
}

impl<A: Clone> fmt::Debug for Guard<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
