//! The state of the [`LockTable`](super::LockTable): its slots and their queues, and the moves in them.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::dispatch::call::Call;
use crate::dispatch::key::{Identical, Key, KeySet};
use crate::dispatch::progress::Progress;
use crate::error::{Error, Kind, Result};

pub(super) struct Table<A> {
    slots: Box<[Option<Slot>]>,
    pub(super) tickets: HashMap<u64, Ticket<A>>,
    next_ticket: u64,
    /// Why the table gives no more locks; None while it does.
    pub(super) closed: Option<Error>,
}

pub(super) struct Slot {
    key: Key,
    queue: VecDeque<u64>,
}

pub(super) struct Ticket<A> {
    /// The slots in whose queues it stands, in ascending order; at least one.
    seats: Vec<usize>,
    method: &'static str,
    /// A request must equal this one to join. None: no request can join, or no longer.
    pub(super) request: Option<Box<dyn Identical>>,
    /// The call that has the lock, and since when.
    holder: Option<(Progress, Instant)>,
    /// Before the work starts, the first call is the leader; afterwards all have joined.
    pub(super) waiting: VecDeque<Arc<Waiting<A>>>,
}

/// A call that waits.
pub(super) struct Waiting<A> {
    progress: Progress,
    pub(super) turn: Mutex<Option<Turn<A>>>,
    pub(super) changed: Condvar,
}

pub(super) enum Turn<A> {
    Go(u64),
    Answer(A),
}

impl<A> Waiting<A> {
    pub(super) fn new(call: &Call) -> Arc<Self> {
        let progress = call.progress().clone();
        Arc::new(Self { progress, turn: Mutex::default(), changed: Condvar::new() })
    }

    pub(super) fn tell(&self, turn: Turn<A>) {
        *self.turn.lock() = Some(turn);
        self.changed.notify_one();
    }
}

impl<A: Clone> Table<A> {
    pub(super) fn new(slots: usize) -> Self {
        let slots = (0..slots).map(|_| None).collect();
        Self { slots, tickets: HashMap::new(), next_ticket: 0, closed: None }
    }

    /// The slots that are taken.
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    /// Whether a call has this object or waits for it.
    pub(super) fn has(&self, key: &Key) -> bool {
        self.slots().any(|slot| slot.key == *key)
    }

    /// Joins the last ticket of the queues, or takes one of its own.
    pub(super) fn queue(
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

    /// The slots of the keys. New keys take free slots; all or none.
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

    /// The calls that joined the work of `ticket` get a ticket of their own, right behind it. `ticket` is at
    /// work, so it heads its queues.
    pub(super) fn promote(&mut self, ticket: u64) {
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

    pub(super) fn remove(&mut self, id: u64) {
        let Some(ticket) = self.tickets.remove(&id) else { return };
        for &seat in &ticket.seats {
            if let Some(queue) = self.queue_of(seat) {
                queue.retain(|other| *other != id);
            }
        }
        self.advance(ticket.seats);
    }

    /// Removes a call that no longer waits.
    pub(super) fn forget(&mut self, own: &Arc<Waiting<A>>) {
        let is_own = |ticket: &Ticket<A>| ticket.waiting.iter().any(|other| Arc::ptr_eq(other, own));
        let Some((&id, ticket)) = self.tickets.iter_mut().find(|(_, ticket)| is_own(ticket)) else { return };
        ticket.waiting.retain(|other| !Arc::ptr_eq(other, own));
        if ticket.waiting.is_empty() && ticket.holder.is_none() {
            self.remove(id);
        }
    }

    /// Starts the tickets that now head all their queues, and frees the slots with an empty queue.
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

    pub(super) fn refusal(&self, own: &Arc<Waiting<A>>, waited: Duration, kind: Kind) -> Error {
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

    /// The work that the queue of a slot finally waits for: its head may itself be waiting in another queue.
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
