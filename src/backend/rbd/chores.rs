//! What is done beside the calls, by one thread, one thing at a time: purging the trash and sweeping up after a crash.
//!
//! The list is in memory only. After a restart the sweep finds in the clusters what was on it.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Rbd;
use super::copies::DEAD_CLIENT;
use super::tool::{Removed, Spot};
use crate::call::Call;
use crate::error::{Error, Result};

/// Before something that failed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// Bytes of the thread's stack.
const STACK: usize = 256 << 10;

/// Something to do.
#[derive(Clone, Debug)]
pub(super) enum Chore {
    /// Look for what a crash left.
    Sweep,
    /// Delete an image in the trash.
    Purge { spot: Spot, image: String },
    /// Remove a copy that was not finished.
    Remove { spot: Spot, temporary: String },
}

/// What there is to do, and from when on.
#[derive(Debug, Default)]
pub(super) struct Chores {
    due: Mutex<Vec<(Instant, Chore)>>,
    added: Condvar,
}

impl Chores {
    /// Puts a look for what a crash left on the list.
    pub fn sweep(&self) {
        self.add(Instant::now(), Chore::Sweep);
    }

    /// Puts the purge of an image on the list.
    pub fn purge(&self, spot: &Spot, image: &str) {
        self.add_once(Instant::now(), Chore::Purge { spot: spot.clone(), image: image.to_string() });
    }

    /// Puts the removal of a copy on the list: for when the command that had it open counts as its watcher no more.
    pub fn remove(&self, spot: &Spot, temporary: &str) {
        let chore = Chore::Remove { spot: spot.clone(), temporary: temporary.to_string() };
        self.add_once(Instant::now() + DEAD_CLIENT, chore);
    }

    /// The same again is already on the list.
    fn add_once(&self, from: Instant, chore: Chore) {
        let what = chore.to_string();
        if !self.due.lock().iter().any(|(_, known)| known.to_string() == what) {
            self.add(from, chore);
        }
    }

    fn add(&self, from: Instant, chore: Chore) {
        self.due.lock().push((from, chore));
        self.added.notify_all();
    }

    /// Takes what is due from the list, the longest due first.
    fn take(&self) -> Option<Chore> {
        let mut due = self.due.lock();
        let now = Instant::now();
        let first = (0..due.len()).filter(|at| due[*at].0 <= now).min_by_key(|at| due[*at].0)?;
        Some(due.remove(first).1)
    }

    /// How many things there are to do, now or later.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.due.lock().len()
    }

    /// Waits until something may be due.
    fn wait(&self) {
        let mut due = self.due.lock();
        match due.iter().map(|(from, _)| *from).min() {
            Some(next) => drop(self.added.wait_until(&mut due, next)),
            None => self.added.wait(&mut due),
        }
    }
}

impl Rbd {
    /// Starts the thread. It ends with the process, and keeps nothing from ending.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start_background(self: &Arc<Self>) -> std::io::Result<()> {
        let rbd = Arc::downgrade(self);
        let chores = Arc::clone(&self.chores);
        thread::Builder::new().name("rbd-chores".into()).stack_size(STACK).spawn(move || serve(&rbd, &chores)).map(drop)
    }

    /// Does what is due now. What fails is due again later.
    pub(super) fn do_chores(&self) {
        while let Some(chore) = self.chores.take() {
            if let Err(error) = self.do_chore(&chore) {
                log::warn!("{chore}: {error}; it is tried again in {} s", RETRY.as_secs());
                self.chores.add(Instant::now() + RETRY, chore);
            }
        }
    }

    fn do_chore(&self, chore: &Chore) -> Result<()> {
        match chore {
            Chore::Sweep => self.sweep_all(&Call::internal("sweep")),
            Chore::Remove { spot, temporary } => self.drop_temporary(&Call::internal("clean up"), spot, temporary),
            Chore::Purge { spot, image } => self.purge_now(&Call::internal("purge"), spot, image),
        }
    }

    fn purge_now(&self, call: &Call, spot: &Spot, image: &str) -> Result<()> {
        match self.tool.purge(call, spot, image)? {
            Removed::Gone | Removed::Absent => Ok(()),
            Removed::Watched => Err(Error::unavailable("it is in use, or its purge was broken off a moment ago")),
            Removed::HasSnapshots => {
                log::warn!("image {image} in the trash of pool {:?} has snapshots: it is left there", spot.pool);
                Ok(())
            }
        }
    }
}

impl std::fmt::Display for Chore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sweep => f.write_str("sweep the clusters"),
            Self::Remove { spot, temporary } => write!(f, "remove image {temporary} of pool {:?}", spot.pool),
            Self::Purge { spot, image } => write!(f, "purge image {image} from the trash of pool {:?}", spot.pool),
        }
    }
}

fn serve(rbd: &Weak<Rbd>, chores: &Chores) {
    while let Some(rbd) = rbd.upgrade() {
        rbd.do_chores();
        drop(rbd);
        chores.wait();
    }
}
