//! Waits for processes that no call waits for any more: those that could not be killed, and those that must
//! not be. Each has a thread of its own, as there are few of them.
//!
//! Each is kept with a clone of its call, so that the lock of its volume is freed only when the process is
//! gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use log::info;
use parking_lot::Mutex;

use super::process::Process;
use crate::dispatch::{Bulkhead, Call, Permit};

/// The stack of the waiting thread, which reads what the process writes, and logs a line.
const STACK: usize = 128 * 1024;

/// A process that goes on without its call.
pub(super) struct Orphan {
    pub(super) job: Process,
    pub(super) command: String,
    /// Holds the lock of the volume, unless the process changes nothing.
    pub(super) call: Call,
    /// The bulkhead in which it is counted.
    pub(super) bulkhead: Option<Bulkhead>,
    /// Healthy work that goes on keeps its permit. A killed process gives it back, or a few dead disks would
    /// stop all commands.
    pub(super) _permit: Option<Permit>,
}

/// How many such processes there are in each bulkhead.
#[derive(Clone, Default)]
pub(super) struct Reaper(Arc<Mutex<HashMap<Option<Bulkhead>, usize>>>);

impl Reaper {
    /// Takes a process over. If no thread is available, waits for its end here.
    pub(super) fn adopt(&self, orphan: Orphan) {
        *self.0.lock().entry(orphan.bulkhead.clone()).or_default() += 1;
        let slot = Arc::new(Mutex::new(Some(orphan)));
        let (this, taken) = (self.clone(), Arc::clone(&slot));
        let thread = thread::Builder::new().name(String::from("reaper")).stack_size(STACK);
        let wait = move || {
            let orphan = taken.lock().take();
            orphan.into_iter().for_each(|orphan| this.wait(orphan));
        };
        if thread.spawn(wait).is_err() {
            let orphan = slot.lock().take();
            orphan.into_iter().for_each(|orphan| self.wait(orphan));
        }
    }

    /// How many processes are waited for.
    pub(super) fn count(&self) -> usize {
        self.0.lock().values().sum()
    }

    /// How many of them belong to this bulkhead.
    pub(super) fn count_in(&self, bulkhead: &Option<Bulkhead>) -> usize {
        self.0.lock().get(bulkhead).copied().unwrap_or_default()
    }

    fn wait(&self, mut orphan: Orphan) {
        orphan.job.wait(None, None, &orphan.call);
        orphan.job.reap();
        let mut counts = self.0.lock();
        counts.entry(orphan.bulkhead.clone()).and_modify(|count| *count -= 1);
        counts.retain(|_, count| *count > 0);
        drop(counts);
        info!(
            "call {}: `{}` (process {}) has ended after {} s; what it held is free",
            orphan.call.id(),
            orphan.command,
            orphan.job.pid(),
            orphan.job.elapsed().as_secs()
        );
    }
}
