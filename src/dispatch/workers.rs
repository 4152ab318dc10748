//! The threads and permits of calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::permits::{Limits, NoPermit, Permits, Want};
use super::pool::Pool;
use crate::dispatch::call::Call;
use crate::dispatch::progress::Bulkhead;
use crate::error::{Error, Result};

/// The fewest workers. With these, one bulkhead may have half of them.
pub const MIN_WORKERS: usize = 4;

/// Workers that one bulkhead leaves to the others.
const SPARE: usize = 2;

/// The least number of calls without storage that may wait: an orchestrator sends several at once.
const QUICK: usize = 64;

/// The threads that calls run on, and how many of them may work at once.
pub struct Workers {
    pool: Pool,
    quick: Pool,
    permits: Arc<Permits>,
    count: usize,
    queue: usize,
}

impl Workers {
    /// With `count` workers, at least [`MIN_WORKERS`], and `queue` calls more that may wait.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(count: usize, queue: usize) -> Result<Self> {
        let count = count.max(MIN_WORKERS);
        let limits = Limits { all: count, each: count - SPARE, lasting: usize::MAX };
        Ok(Self {
            pool: Pool::start("worker", count..=count + queue, count + queue)?,
            quick: Pool::start("quick worker", 1..=1, queue.max(QUICK))?,
            permits: Permits::new(limits),
            count,
            queue,
        })
    }

    /// Runs a call on a thread of its own; one that needs no storage (`is_quick`) on the thread for these.
    ///
    /// # Errors
    /// `Unavailable`: the limit of calls is reached, or the daemon is about to stop.
    pub fn run(&self, is_quick: bool, call: impl FnOnce() + Send + 'static) -> Result<()> {
        if is_quick { self.quick.run(call) } else { self.pool.run(call) }
    }

    /// Waits until the call may work with this bulkhead.
    ///
    /// # Errors
    /// `Timeout`: the client's deadline has passed. `Unavailable`: the daemon stops.
    pub fn begin(&self, call: &Call, bulkhead: Option<Bulkhead>) -> Result<()> {
        let late = || Error::timeout("the call's deadline passed while it waited; nothing was done");
        if call.expired() {
            return Err(late());
        }
        let (is_lasting, is_back, patience) = (false, false, Duration::MAX);
        let want = Want { bulkhead, is_lasting, is_back, step: Some("waiting for a worker"), patience };
        let permit = self.permits.acquire(call, want).map_err(|refused| match refused {
            NoPermit::Expired(_) => late(),
            NoPermit::Closed => {
                Error::unavailable("cephlet is stopping; send the request again when it is back")
            }
        })?;
        call.work_with(permit);
        Ok(())
    }

    /// Refuses one more call of a bulkhead that has `own` of the `all` calls in progress already. A bulkhead
    /// may have as many calls as there are workers, or as there are free places in the queue if these are
    /// more. So a hanging cluster leaves half of the queue free, and a second one leaves a quarter.
    ///
    /// # Errors
    /// `Unavailable`
    pub fn ensure_room(&self, bulkhead: &Bulkhead, own: usize, all: usize) -> Result<()> {
        let free = (self.count + self.queue).saturating_sub(all);
        if own < self.count.max(free) {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "too much to do for {bulkhead}: {own} calls are under way, and the rest of the queue is for others \
             (CEPHLET_QUEUE, {}); send the request again later",
            self.queue
        )))
    }

    /// Ends the pauses of all calls, and those that would begin later.
    pub fn end_pauses(&self) {
        self.permits.end_pauses();
    }

    /// Refuses new calls, and waits until those under way have ended. False if that took longer than
    /// `deadline`. Calls that need no storage go on being served.
    pub fn drain(&self, deadline: Instant) -> bool {
        self.pool.drain(deadline)
    }

    /// How many calls wait for a worker.
    pub fn waiting(&self) -> usize {
        self.permits.load().1
    }

    /// How many calls are under way, and how many of them work.
    pub fn load(&self) -> (usize, usize) {
        (self.pool.jobs(), self.permits.load().0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dispatch::{LockTable, ObjectLocks};
    use crate::error::Kind;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_bulkhead_that_hangs_leaves_half_of_the_queue_to_the_others_and_a_second_one_a_quarter() {
        let workers = Workers::start(4, 256).unwrap();
        let ensure = |own, all| workers.ensure_room(&"cluster".into(), own, all);
        ensure(129, 129).unwrap();
        let refusal = ensure(131, 131).unwrap_err();
        assert_eq!(refusal.kind(), Kind::Unavailable);
        assert!(refusal.message().contains("cluster") && refusal.message().contains("256"), "{refusal}");
        ensure(64, 131 + 64).unwrap();
        assert!(ensure(66, 131 + 66).is_err());
        ensure(3, 1000).expect("as many as there are workers it may have whatever others do");
    }

    #[test]
    fn a_call_that_waits_is_no_worker_until_it_is_back() {
        let workers = Workers::start(4, 1).unwrap();
        let call = Call::internal("test");
        workers.begin(&call, Some("cluster".into())).unwrap();
        let (begin, begun) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                call.wait_for("something", LONG, Duration::from_millis(1), || {
                    assert_eq!(workers.load().1, 1, "it works while it looks");
                    begin.send(()).unwrap();
                    Ok(None::<()>)
                })
            });
            begun.recv().unwrap();
            while workers.load().1 > 0 {
                std::thread::yield_now();
            }
            workers.end_pauses();
            assert_eq!(waiting.join().unwrap().unwrap_err().kind(), Kind::Unavailable);
        });
        assert_eq!(workers.load().1, 1, "what is left to do for it is work");
    }

    #[test]
    fn a_call_that_waits_for_a_lock_beside_its_own_is_no_worker() {
        let workers = Workers::start(4, 1).unwrap();
        let locks = LockTable::<()>::new(4, LONG, |()| false);
        let held = locks.lock(&Call::internal("first"), "image".into()).unwrap();
        let call = Call::internal("second");
        workers.begin(&call, Some("cluster".into())).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| locks.lock(&call, "image".into()).map(drop));
            while workers.load().1 > 0 {
                std::thread::yield_now();
            }
            drop(held);
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(workers.load().1, 1);
    }
}
