//! The table itself: slots, queues and who is next. No threads and no clock of its own; whatever is to be
//! said to a call is returned, so that the caller says it with the mutex free.
//!
//! - A slot belongs to one key while anybody holds it or waits for it.
//! - A slot's queue holds tickets. A ticket, in whatever number of queues, is one piece of work: it runs when
//!   it heads all of them. A ticket is appended to all its queues under one mutex, so any two queues agree on
//!   their order and nobody waits in a circle.
//! - Who wants the same answer shares the ticket: the first of them leads, the others joined.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Entry, Holder, Identical, Key, KeySet, Wake};
use crate::call::Progress;
use crate::error::{Error, Kind};

/// What becomes of a call. A wake that goes on gets the number of its ticket.
pub(super) enum Decision {
    Go(u64),
    Refused(Error),
}

/// Calls to be woken, in order.
pub(super) type Effects<A> = Vec<(Wake<A>, Decision)>;

pub(super) struct Table<A: 'static> {
    /// The hash of each slot's key; none: the slot is free. Beside the slots, so that a search reads little
    /// memory.
    hashes: Box<[Option<NonZeroU64>]>,
    slots: Box<[Slot]>,
    free: usize,
    tickets: HashMap<u64, Ticket<A>>,
    next_ticket: u64,
    parked: usize,
}

#[derive(Default)]
struct Slot {
    key: Option<Key>,
    queue: VecDeque<u64>,
}

/// The slots in whose queues a ticket stands, in ascending order; at least one.
type Seats = Arc<[usize]>;

struct Ticket<A: 'static> {
    seats: Seats,
    method: &'static str,
    /// What a request must equal to join; none: nobody can, or can any more.
    request: Option<Box<dyn Identical>>,
    /// Who has the lock, once the ticket heads its queues.
    holder: Option<(Progress, Instant)>,
    /// Parked calls. Before the work starts the first one is its leader; afterwards all have joined.
    waiters: VecDeque<Waiter<A>>,
}

pub(super) struct Waiter<A: 'static> {
    progress: Progress,
    pub(super) wake: Wake<A>,
    since: Instant,
    deadline: Instant,
}

impl<A: 'static> Table<A> {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            hashes: vec![None; slots].into(),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: slots,
            tickets: HashMap::new(),
            next_ticket: 0,
            parked: 0,
        }
    }

    /// How many calls wait.
    pub(super) fn parked(&self) -> usize {
        self.parked
    }

    /// Joins the last ticket of the queue, or takes one of its own. `patience`: how long the call may wait
    /// from `now`.
    pub(super) fn enter(&mut self, entry: Entry<A>, patience: Duration, now: Instant) -> Effects<A> {
        let progress = entry.call.progress().clone();
        let Some(seats) = self.seats(&entry.keys) else {
            return vec![(entry.wake, Decision::Refused(full(&entry.keys, self.slots.len())))];
        };
        let waiter = Waiter { progress, wake: entry.wake, since: now, deadline: now + patience };
        let method = waiter.progress.method();
        self.parked += 1;
        if let Some(ticket) = self.same(&seats, method, entry.joinable.as_deref()) {
            ticket.waiters.push_back(waiter);
            return Vec::new();
        }
        let waiters = VecDeque::from([waiter]);
        self.insert(
            Ticket { seats: seats.clone(), method, request: entry.joinable, holder: None, waiters },
            None,
        );
        self.advance(&seats, now)
    }

    /// The work of a ticket has its answer: nobody can join any more. Gives the calls that joined, to be
    /// answered; or none of them if the first is to lead the next attempt (`hand_over`).
    pub(super) fn answered(&mut self, ticket: u64, hand_over: bool) -> VecDeque<Waiter<A>> {
        if hand_over {
            self.promote(ticket);
        }
        let Some(ticket) = self.tickets.get_mut(&ticket) else { return VecDeque::new() };
        ticket.request = None;
        self.parked -= ticket.waiters.len();
        std::mem::take(&mut ticket.waiters)
    }

    /// The work of a ticket is over and the next one has its turn. Who joined and got no answer tries again,
    /// first in line.
    pub(super) fn leave(&mut self, ticket: u64, now: Instant) -> Effects<A> {
        self.promote(ticket);
        match self.remove(ticket) {
            Some(seats) => self.advance(&seats, now),
            None => Vec::new(),
        }
    }

    /// Refuses the calls that have waited too long or whose clients have given up.
    pub(super) fn expire(&mut self, now: Instant) -> Effects<A> {
        let mut effects = Vec::new();
        for (id, call, error) in self.overdue(now) {
            let Some(ticket) = self.tickets.get_mut(&id) else { continue };
            let Some(at) = ticket.waiters.iter().position(|waiter| waiter.progress.id() == call) else {
                continue;
            };
            if let Some(waiter) = ticket.waiters.remove(at) {
                self.parked -= 1;
                effects.push((waiter.wake, Decision::Refused(error)));
            }
            if ticket.holder.is_none() && ticket.waiters.is_empty() {
                effects.extend(self.leave(id, now));
            }
        }
        effects
    }

    /// Refuses every call that waits.
    pub(super) fn refuse_all(&mut self, error: &Error) -> Effects<A> {
        let waiters = self.tickets.values_mut().flat_map(|ticket| ticket.waiters.drain(..));
        let effects: Effects<A> =
            waiters.map(|waiter| (waiter.wake, Decision::Refused(error.clone()))).collect();
        self.parked = 0;
        let unheld: Vec<u64> =
            self.tickets.iter().filter(|(_, ticket)| ticket.holder.is_none()).map(|(id, _)| *id).collect();
        for id in unheld {
            self.remove(id);
        }
        effects
    }

    /// When the first call has waited too long; none if nobody waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.tickets.values().flat_map(|ticket| &ticket.waiters).map(|waiter| waiter.deadline).min()
    }

    /// The work that is going on, for the log and the operator.
    #[cfg(test)]
    pub(super) fn holders(&self, now: Instant) -> Vec<Holder> {
        let running = self.tickets.values().filter_map(|ticket| ticket.holder.as_ref());
        running.map(|(progress, since)| Self::describe(progress, now - *since)).collect()
    }

    fn describe(progress: &Progress, held: Duration) -> Holder {
        let (step, step_age) = progress.current_step();
        let (call, method, subject) = (progress.id(), progress.method(), progress.subject());
        Holder { call, method, subject, held, step, step_age }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let hash = Some(key.hash());
        (0..self.slots.len())
            .find(|&slot| self.hashes[slot] == hash && self.slots[slot].key.as_ref() == Some(key))
    }

    /// The slots of the keys, taken if they are new; all or none.
    fn seats(&mut self, keys: &KeySet) -> Option<Seats> {
        let found: Vec<Option<usize>> = keys.iter().map(|key| self.find(key)).collect();
        if found.iter().filter(|slot| slot.is_none()).count() > self.free {
            return None;
        }
        let slots = keys.iter().zip(found).map(|(key, slot)| slot.or_else(|| self.claim(key)));
        let mut seats = slots.collect::<Option<Vec<usize>>>()?;
        seats.sort_unstable();
        Some(seats.into())
    }

    fn claim(&mut self, key: &Key) -> Option<usize> {
        let slot = self.hashes.iter().position(Option::is_none)?;
        self.hashes[slot] = Some(key.hash());
        self.slots[slot].key = Some(key.clone());
        self.free -= 1;
        Some(slot)
    }

    /// The last ticket of the queues, if it is one for the very same request.
    fn same(
        &mut self,
        seats: &Seats,
        method: &str,
        request: Option<&dyn Identical>,
    ) -> Option<&mut Ticket<A>> {
        let last = *self.slots[*seats.first()?].queue.back()?;
        if seats.iter().any(|&seat| self.slots[seat].queue.back() != Some(&last)) {
            return None;
        }
        let ticket = self.tickets.get_mut(&last)?;
        let equal =
            ticket.seats == *seats && ticket.method == method && ticket.request.as_ref()?.identical(request?);
        equal.then_some(ticket)
    }

    /// Puts a ticket into its queues: at a position that all of them have, or at the end.
    fn insert(&mut self, ticket: Ticket<A>, position: Option<usize>) {
        let id = self.next_ticket;
        self.next_ticket += 1;
        for &seat in &*ticket.seats {
            let queue = &mut self.slots[seat].queue;
            queue.insert(position.unwrap_or(queue.len()), id);
        }
        self.tickets.insert(id, ticket);
    }

    /// Who joined the work of `ticket` gets a ticket of their own, right behind it: it works, so it heads its
    /// queues.
    fn promote(&mut self, ticket: u64) {
        let Some(former) = self.tickets.get_mut(&ticket).filter(|ticket| !ticket.waiters.is_empty()) else {
            return;
        };
        let next = Ticket {
            seats: former.seats.clone(),
            method: former.method,
            request: former.request.take(),
            holder: None,
            waiters: std::mem::take(&mut former.waiters),
        };
        self.insert(next, Some(1));
    }

    fn remove(&mut self, id: u64) -> Option<Seats> {
        let ticket = self.tickets.remove(&id)?;
        for &seat in &*ticket.seats {
            self.slots[seat].queue.retain(|other| *other != id);
        }
        Some(ticket.seats)
    }

    /// Starts what now heads its queues; gives slots back that nobody wants.
    fn advance(&mut self, seats: &[usize], now: Instant) -> Effects<A> {
        let mut effects = Vec::new();
        let mut seats = seats.to_vec();
        while let Some(seat) = seats.pop() {
            let Some(&head) = self.slots[seat].queue.front() else {
                self.give_back(seat);
                continue;
            };
            if self.heads_all(head) && !self.start(head, now, &mut effects) {
                seats.extend(self.remove(head).iter().flat_map(|seats| seats.iter()));
            }
        }
        effects
    }

    fn heads_all(&self, id: u64) -> bool {
        let Some(ticket) = self.tickets.get(&id) else { return false };
        ticket.seats.iter().all(|&seat| self.slots[seat].queue.front() == Some(&id))
    }

    /// Gives the lock to the first call of the ticket that still wants it; false if none does.
    fn start(&mut self, id: u64, now: Instant, effects: &mut Effects<A>) -> bool {
        let Some(ticket) = self.tickets.get_mut(&id) else { return false };
        while ticket.holder.is_none() {
            let Some(waiter) = ticket.waiters.pop_front() else { return false };
            self.parked -= 1;
            if waiter.progress.expired() {
                effects.push((waiter.wake, Decision::Refused(late(&waiter.progress))));
                continue;
            }
            ticket.holder = Some((waiter.progress, now));
            effects.push((waiter.wake, Decision::Go(id)));
        }
        true
    }

    fn give_back(&mut self, seat: usize) {
        if self.hashes[seat].take().is_some() {
            self.slots[seat].key = None;
            // Busy volumes must not leave their queues' memory in slots that others will use.
            self.slots[seat].queue.shrink_to(4);
            self.free += 1;
        }
    }

    /// Ticket, call and verdict of everybody who has waited long enough.
    fn overdue(&self, now: Instant) -> Vec<(u64, u64, Error)> {
        let mut overdue = Vec::new();
        for (&id, ticket) in &self.tickets {
            for waiter in &ticket.waiters {
                let expired = waiter.progress.expired();
                if expired || waiter.deadline <= now {
                    overdue.push((id, waiter.progress.id(), self.refusal(id, ticket, waiter, expired, now)));
                }
            }
        }
        overdue
    }

    fn refusal(&self, id: u64, ticket: &Ticket<A>, waiter: &Waiter<A>, expired: bool, now: Instant) -> Error {
        let waited = (now - waiter.since).as_secs_f32();
        let (kind, why) = match expired {
            true => (Kind::Timeout, "until the client's deadline passed"),
            false => (Kind::Busy, "the limit of CEPHLET_LOCK_WAIT"),
        };
        let key = ticket.seats.first().and_then(|&seat| self.slots[seat].key.as_ref());
        let key = key.map(Key::to_string).unwrap_or_default();
        let Some(holder) = self.blocker(id, now) else {
            return Error::new(
                kind,
                format!("{key} is busy: waited {waited:.1} s, {why}; send the request again"),
            );
        };
        let wish = "send the request again when that is done";
        Error::new(kind, format!("{key} is busy: {holder}; waited {waited:.1} s, {why}; {wish}"))
    }

    /// Whose work a ticket waits for in the end: the head of one of its queues may itself be waiting in
    /// another one.
    fn blocker(&self, mut id: u64, now: Instant) -> Option<Holder> {
        loop {
            let ticket = self.tickets.get(&id)?;
            if let Some((progress, since)) = &ticket.holder {
                return Some(Self::describe(progress, now - *since));
            }
            let mut heads = ticket.seats.iter().filter_map(|&seat| self.slots[seat].queue.front());
            id = *heads.find(|head| **head != id)?;
        }
    }
}

fn full(keys: &KeySet, slots: usize) -> Error {
    Error::unavailable(format!(
        "{keys}: all {slots} slots of the lock table are taken by other volumes; send the request again \
         later, or raise CEPHLET_LOCK_SLOTS"
    ))
}

fn late(call: &Progress) -> Error {
    let (method, subject) = (call.method(), call.subject());
    Error::new(
        Kind::Timeout,
        format!("{method} {subject}: the client's deadline passed before its turn came; nothing was done"),
    )
}
