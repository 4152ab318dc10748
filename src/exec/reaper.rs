//! Waits for processes that no thread waits for any more: those that could not be killed, and those that must
//! not be.
//!
//! Each is kept with a clone of its call, so that the lock of its volume is freed only when the process is
//! gone.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use log::{error, info};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::process::Process;
use super::semaphore::Permit;
use crate::call::{Bulkhead, Call};

/// A process nobody waits for but the reaper.
pub(super) struct Orphan {
    pub(super) job: Process,
    pub(super) command: String,
    /// Holds the lock of the volume.
    pub(super) call: Call,
    /// With what it is counted.
    pub(super) bulkhead: Option<Bulkhead>,
    /// Kept by healthy work that goes on; what was killed gives its permit back, or a few dead disks would
    /// stop everything.
    pub(super) _permit: Option<Permit>,
}

/// The thread that waits, and the way to it.
pub(super) struct Reaper(Arc<Mailbox>);

struct Mailbox {
    wake: OwnedFd,
    inbox: Mutex<Inbox>,
    /// How many processes it waits for in each bulkhead.
    counts: Mutex<HashMap<Option<Bulkhead>, usize>>,
}

#[derive(Default)]
struct Inbox {
    new: Vec<Orphan>,
    closed: bool,
}

impl Reaper {
    /// Starts the thread now: at the moment of need there might be none to be had.
    pub(super) fn start() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Mailbox { wake, inbox: Mutex::default(), counts: Mutex::default() });
        let there = Arc::clone(&shared);
        thread::Builder::new().name(String::from("reaper")).spawn(move || there.serve())?;
        Ok(Self(shared))
    }

    /// Takes a process over.
    pub(super) fn adopt(&self, orphan: Orphan) {
        *self.0.counts.lock().entry(orphan.bulkhead.clone()).or_default() += 1;
        self.0.inbox.lock().new.push(orphan);
        self.0.wake_up();
    }

    /// How many processes it waits for.
    pub(super) fn count(&self) -> usize {
        self.0.counts.lock().values().sum()
    }

    /// How many of them are of this bulkhead.
    pub(super) fn count_in(&self, bulkhead: &Option<Bulkhead>) -> usize {
        self.0.counts.lock().get(bulkhead).copied().unwrap_or_default()
    }
}

/// The thread ends once its last process is gone.
impl Drop for Reaper {
    fn drop(&mut self) {
        self.0.inbox.lock().closed = true;
        self.0.wake_up();
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} orphans", self.count())
    }
}

impl Mailbox {
    fn wake_up(&self) {
        // EAGAIN: the counter is full, so the thread has been woken already (eventfd(2)).
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn serve(&self) {
        let mut orphans: Vec<Orphan> = Vec::new();
        loop {
            let closed = {
                let mut inbox = self.inbox.lock();
                orphans.append(&mut inbox.new);
                inbox.closed
            };
            if closed && orphans.is_empty() {
                return;
            }
            self.wait(&orphans);
            orphans.retain_mut(|orphan| !self.reap(orphan));
        }
    }

    /// Waits until a process writes or ends, or another one comes.
    fn wait(&self, orphans: &[Orphan]) {
        let of_orphans = orphans.iter().flat_map(|orphan| orphan.job.fds());
        let fds = std::iter::once(self.wake.as_fd()).chain(of_orphans);
        let mut fds: Vec<PollFd<'_>> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        if let Err(errno) = poll(&mut fds, None)
            && errno != rustix::io::Errno::INTR
        {
            error!("the reaper cannot poll {} descriptors: {errno}", fds.len());
            thread::sleep(std::time::Duration::from_secs(1));
        }
        // EAGAIN: nobody has woken it.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    fn reap(&self, orphan: &mut Orphan) -> bool {
        let gone = orphan.job.try_reap();
        if gone {
            self.counts.lock().entry(orphan.bulkhead.clone()).and_modify(|count| *count -= 1);
            let (pid, seconds) = (orphan.job.pid(), orphan.job.elapsed().as_secs());
            info!(
                "call {}: `{}` (process {pid}) has ended after {seconds} s; what it held is free",
                orphan.call.id(),
                orphan.command
            );
        }
        gone
    }
}
