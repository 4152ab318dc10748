//! The threads that calls run on. They start when calls need them and stay for a while. The configuration
//! limits the number of threads and the number of calls; one call more is refused at once.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::{Condvar, Mutex};

use crate::error::{Error, Result};

/// Stack of a thread. The work is shallow: the deepest is the parser of the tools' JSON, which stops at 128
/// levels.
const STACK: usize = 512 * 1024;

/// How long a thread above the least number stays without work.
const IDLE: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce() + Send>;

/// The threads. When the pool is dropped, each thread ends after its job.
pub struct Pool {
    shared: Arc<Shared>,
    jobs: Sender<Job>,
}

struct Shared {
    name: &'static str,
    threads: RangeInclusive<usize>,
    /// The most jobs at once.
    limit: usize,
    waiting: Receiver<Job>,
    state: Mutex<State>,
    /// Notified when no job is left.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// Jobs that were accepted and have not ended.
    jobs: usize,
    is_closed: bool,
}

impl Pool {
    /// Starts the least number of threads. More start while there are more jobs; at most `limit` jobs are
    /// accepted at once.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(name: &'static str, threads: RangeInclusive<usize>, limit: usize) -> Result<Self> {
        let (jobs, waiting) = unbounded();
        let (state, idle) = (Mutex::default(), Condvar::new());
        let least = *threads.start();
        let shared = Arc::new(Shared { name, threads, limit, waiting, state, idle });
        for _ in 0..least {
            shared.state.lock().threads += 1;
            shared
                .spawn()
                .map_err(|cause| Error::io(format_args!("start a thread of the {name}"), &cause))?;
        }
        Ok(Self { shared, jobs })
    }

    /// Runs `job` on one of the threads.
    ///
    /// # Errors
    /// `Unavailable`: `limit` is reached, or the pool is closed. The job is dropped then.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<()> {
        let Shared { state, threads, limit, .. } = &*self.shared;
        let mut state = state.lock();
        if state.is_closed {
            return Err(Error::unavailable(
                "cephlet is shutting down; send the request again when it is back",
            ));
        }
        if state.jobs == *limit {
            return Err(Error::unavailable(format!(
                "too much to do: {limit} calls are under way, which is the limit (CEPHLET_WORKERS and \
                 CEPHLET_QUEUE); send the request again later"
            )));
        }
        if state.jobs >= state.threads && state.threads < *threads.end() {
            state.threads += 1;
            if let Err(cause) = self.shared.spawn() {
                state.threads -= 1;
                return Err(Error::unavailable(format!(
                    "there is no thread for one more call: {cause}; send the request again later"
                )));
            }
        }
        state.jobs += 1;
        drop(state);
        // This cannot fail, as the receiver is in `shared`.
        drop(self.jobs.send(Box::new(job)));
        Ok(())
    }

    /// How many jobs were accepted and have not ended.
    pub fn jobs(&self) -> usize {
        self.shared.state.lock().jobs
    }

    /// Accepts no more jobs, and waits until those that were accepted have ended. False at the deadline.
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut state = self.shared.state.lock();
        state.is_closed = true;
        while state.jobs > 0 {
            if self.shared.idle.wait_until(&mut state, deadline).timed_out() {
                return state.jobs == 0;
            }
        }
        true
    }
}

impl Shared {
    fn spawn(self: &Arc<Self>) -> std::io::Result<()> {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.into()).stack_size(STACK);
        thread.spawn(move || shared.serve()).map(drop)
    }

    /// The loop of a thread.
    fn serve(&self) {
        loop {
            match self.waiting.recv_timeout(IDLE) {
                Ok(job) => {
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        log::error!("a panic was not caught where it should be: this is a defect of cephlet");
                    }
                    let mut state = self.state.lock();
                    state.jobs -= 1;
                    if state.jobs == 0 {
                        self.idle.notify_all();
                    }
                }
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return,
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {
                    let mut state = self.state.lock();
                    // A job that was accepted may be on its way to this thread.
                    if state.threads > *self.threads.start() && state.threads > state.jobs {
                        state.threads -= 1;
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::HashSet;
    use std::sync::mpsc::{channel, sync_channel};

    use super::*;
    use crate::error::Kind;

    const NEVER: Duration = Duration::from_secs(300);

    #[test]
    fn as_many_jobs_go_on_as_may_and_one_more_is_refused() {
        let pool = Pool::start("test", 1..=3, 3).unwrap();
        let (here, arrivals) = channel();
        let (open, gate) = sync_channel::<()>(0);
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..3 {
            let (here, gate) = (here.clone(), Arc::clone(&gate));
            pool.run(move || {
                here.send(thread::current().id()).unwrap();
                gate.lock().recv().unwrap_err();
            })
            .unwrap();
        }
        let threads: HashSet<_> = (0..3).map(|_| arrivals.recv_timeout(NEVER).unwrap()).collect();
        assert_eq!(threads.len(), 3);
        let refused = pool.run(|| ()).unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable);
        assert!(refused.message().contains("CEPHLET_QUEUE"), "{refused}");
        assert!(!pool.drain(Instant::now()));
        drop(open);
        assert!(pool.drain(Instant::now() + NEVER));
        assert!(pool.run(|| ()).unwrap_err().message().contains("shutting down"));
    }

    #[test]
    fn a_panic_ends_no_thread() {
        let pool = Pool::start("test", 1..=1, 1).unwrap();
        let (here, arrivals) = channel();
        for number in 0..20 {
            let here = here.clone();
            while pool.jobs() > 0 {
                thread::yield_now();
            }
            pool.run(move || {
                here.send(number).unwrap();
                assert!(number % 5 != 0, "on purpose");
            })
            .unwrap();
        }
        assert_eq!(
            (0..20).map(|_| arrivals.recv_timeout(NEVER).unwrap()).collect::<Vec<_>>(),
            (0..20).collect::<Vec<_>>()
        );
    }
}
