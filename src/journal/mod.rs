//! The journal: a small map that survives every crash. It knows nothing of volumes; keys and values are the
//! caller's. No secret is ever given to it: what is in it lies on a disk, and in backups of it.
//!
//! Everything is in memory; the disk holds segments of records (`0000000000000007.log`) and at most one
//! snapshot that counts (`0000000000000007.snapshot`: everything that stood in segments before 7). `format`
//! has the bytes, `disk` the system calls, `recover` what open does, `snapshot` how old segments are dropped.
//!
//! # What is on disk, step by step
//!
//! A write (W), a note (N: the same without W2 and W3):
//!
//! - W1. One record with all changes of the call is written behind the last one, where the disk has kept room
//!   for it (fallocate). Behind it room stays for removals, which a full disk needs most: any other record
//!   has to find more room first, or the call gets [`NoSpace`](crate::error::Kind::NoSpace). On ENOSPC from
//!   the write the file is cut back to where it was, which gives up what was kept; a removal is written once
//!   more then, anything else gets the same answer, and the journal goes on. Any other error poisons it. What
//!   is kept is no part of the file's length, and O6 gives it up as well.
//! - W2. fdatasync of the segment. Whoever comes first does it for all records written by then; the others
//!   wait, and the next of them does it for those written meanwhile. An error poisons: after a failed fsync
//!   nobody knows what is on the disk, and a second one would lie (it answers Ok without having written).
//! - W3. The changes become visible, then the call returns. So nothing is seen that a crash could undo,
//!   except notes: these are visible at once and durable with the next sync; a note never overtakes an
//!   earlier change of the same key.
//!
//! A snapshot (S), when the segments have grown well past what is alive, done by the writer that notices:
//!
//! - S1. No record is written from here to S3. The segment is synced: only a last segment can have a torn
//!   tail.
//! - S2. The next segment, n, is created (O_EXCL, 0600), its header written, fdatasync, fsync of the
//!   directory. Room for removals is kept in it before that.
//! - S3. Records go to n from now on.
//! - S4. `n.snapshot.tmp` is created and all entries are written to it, a piece at a time while writers go
//!   on. It may contain changes that are in n already; applying n to it again gives the same.
//! - S5. fdatasync of the temporary file; then of segment n, so that the snapshot contains nothing that n
//!   could still lose.
//! - S6. Rename to `n.snapshot`, fsync of the directory. From here on the snapshot counts.
//! - S7. Older segments and snapshots are removed. Nothing waits for that to be durable.
//!
//! A full disk where a new file is made, written, synced or renamed gives the snapshot up (in S2 the new
//! segment is removed again, durably), and it is tried again when the log has doubled. Any other error
//! poisons, in S7 it is only logged.
//!
//! # What open finds
//!
//! - O1. The directory is synced first, each file when it is opened, and cached pages are dropped: what a
//!   killed process had written but not synced is made durable before it is believed, and what a failed sync
//!   left in memory only is not seen.
//! - O2. `*.snapshot.tmp`: S4 to S6 were interrupted. Removed; segments before n are all there.
//! - O3. Several snapshots, or segments before the newest: S7 was interrupted. The newest counts, the rest is
//!   removed.
//! - O4. A segment n without `n.snapshot`: S3 to S6 were interrupted or given up. Read like any other.
//! - O5. A last segment without a whole header and without records: S2 was interrupted. Made again.
//! - O6. The last segment ends in something that is not a record: W1 or W2 was interrupted. Cut off, synced,
//!   with a warning; but only if no whole record behind it says that the place had been synced (each record
//!   carries the last sequence number known to be durable). Nobody had been told that anything in the part
//!   that is cut was durable.
//! - O7. Everything else refuses to open, with file and byte: damage before the tail, in a snapshot or in a
//!   segment that is not the last, a missing segment, a record out of order, a table or version of a newer
//!   cephlet.
//! - O8. A read that fails is an I/O error and never the end of a file.
//! - O9. No file at all: a new journal, segment 1 made as in S2.
//!
//! Damage to the very last record cannot be told from a torn one; it is cut as O6 says. Files with other
//! names are left alone.

mod disk;
mod format;
mod log;
mod read;
pub mod records;
mod recover;
mod snapshot;
mod tables;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod full_disk_tests;
#[cfg(test)]
pub(crate) mod ram;
#[cfg(test)]
mod snapshot_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

pub use self::disk::{Disk, DiskFile, RealDisk};
pub use self::format::{Change, Table};

use self::format::{Bad, LogRecord};
use self::log::{Log, Name, Room, WriteFailure, failed};
use self::tables::Tables;
use crate::error::{Cause, Error, Result};

/// Told once, when the journal fails for good.
type OnFailure = Box<dyn Fn(&Error) + Send + Sync>;

/// A durable map, used from many threads. Everything in it is in memory; reading never waits for the disk.
pub struct Journal {
    disk: Arc<dyn Disk>,
    limits: SnapshotLimits,
    /// Held while a record is written; taken before `state`, never after it.
    log: Mutex<Log>,
    /// Never held during a system call.
    state: Mutex<JournalState>,
    /// A sync ended, or the journal failed.
    progress: Condvar,
    /// Held by the one that takes a snapshot.
    snapshotting: Mutex<()>,
    on_failure: OnFailure,
}

/// When a snapshot is taken and in what steps; tests make these small.
#[derive(Clone, Copy, Debug)]
struct SnapshotLimits {
    /// Never with less than this in the segments, bytes.
    snapshot_floor: u64,
    /// So much of a snapshot is copied at once, bytes.
    chunk: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self { snapshot_floor: 1 << 20, chunk: 16 << 10 }
    }
}

struct JournalState {
    tables: Tables,
    /// Written, not yet visible; in the order of the log.
    pending: VecDeque<Pending>,
    /// The segment to sync.
    file: Arc<dyn DiskFile>,
    number: u64,
    /// Sequence number of the last record written, and of the last one that is durable.
    written: u64,
    synced: u64,
    syncing: bool,
    /// Length of all segments that are needed, bytes.
    log_bytes: u64,
    /// After a snapshot was given up: not again before the log has this length, bytes.
    snapshot_not_before: u64,
    poisoned: Option<Error>,
}

struct Pending {
    sequence: u64,
    visible: Visible,
    record: LogRecord,
}

/// When a change may be seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visible {
    WhenDurable,
    AtOnce,
}

impl Journal {
    /// Opens the journal on `disk`, or makes an empty one if the directory is empty. One process at a time:
    /// the caller holds the lock of the state directory. `on_failure` is called once, from whichever thread
    /// noticed, when the journal fails for good: the daemon has to go down then. It must not write to the
    /// journal.
    ///
    /// Fails if the disk does, if the journal is damaged (the message names file and byte) or was written by
    /// a newer version.
    pub fn open(disk: Arc<dyn Disk>, on_failure: impl Fn(&Error) + Send + Sync + 'static) -> Result<Self> {
        Self::open_with(disk, SnapshotLimits::default(), Box::new(on_failure))
    }

    fn open_with(disk: Arc<dyn Disk>, limits: SnapshotLimits, on_failure: OnFailure) -> Result<Self> {
        let found = recover::recover(&*disk)?;
        let state = JournalState {
            tables: found.tables,
            pending: VecDeque::new(),
            file: found.log.file.clone(),
            number: found.log.number,
            written: found.log.last,
            synced: found.log.last,
            syncing: false,
            log_bytes: found.log_bytes,
            snapshot_not_before: 0,
            poisoned: None,
        };
        let (log, state, snapshotting) = (Mutex::new(found.log), Mutex::new(state), Mutex::new(()));
        Ok(Self { disk, limits, log, state, progress: Condvar::new(), snapshotting, on_failure })
    }

    /// Makes all `changes`, together or not at all. Durable and visible when Ok. After `NoSpace` nothing has
    /// changed; after `Unavailable` the journal has failed, and only a restart tells whether the changes were
    /// kept.
    pub fn write(&self, changes: &[Change]) -> Result<()> {
        self.write_within(changes, Room::of(changes))
    }

    /// The same for what ends with less than there was: it may be written also where the disk is full.
    pub fn write_for_removal(&self, changes: &[Change]) -> Result<()> {
        self.write_within(changes, Room::Kept)
    }

    fn write_within(&self, changes: &[Change], room: Room) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let sequence = self.append(changes, Visible::WhenDurable, room)?;
        self.wait_durable(sequence)?;
        self.snapshot_if_due();
        Ok(())
    }

    /// Makes all `changes` without waiting for the disk: visible when Ok, durable with the next sync, after
    /// all that was written before. For what may be forgotten without harm, like the end of an intent. Errors
    /// as for [`Journal::write`].
    pub fn write_unsynced(&self, changes: &[Change]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        self.append(changes, Visible::AtOnce, Room::of(changes)).map(drop)
    }

    /// Waits until everything noted is durable.
    pub fn sync(&self) -> Result<()> {
        let written = self.state.lock().written;
        self.wait_durable(written)
    }

    /// The value of a key.
    pub fn get(&self, table: Table, key: &str) -> Option<Vec<u8>> {
        self.state.lock().tables.get(table, key).map(<[u8]>::to_vec)
    }

    /// Every entry of a table, in the order of the keys.
    pub fn entries(&self, table: Table) -> Vec<(String, Vec<u8>)> {
        let mut entries = Vec::new();
        self.visit(table, |key, value| entries.push((key.to_owned(), value.to_vec())));
        entries
    }

    /// Shows every entry of a table to `see`, in the order of the keys. Nobody can read or write meanwhile:
    /// `see` is quick and does not use the journal.
    pub fn visit(&self, table: Table, mut see: impl FnMut(&str, &[u8])) {
        self.state.lock().tables.entries(table).for_each(|(key, value)| see(key, value));
    }

    /// The number of entries in a table.
    pub fn len(&self, table: Table) -> usize {
        self.state.lock().tables.len(table)
    }

    /// Whether a table has no entry.
    pub fn is_empty(&self, table: Table) -> bool {
        self.len(table) == 0
    }

    /// Why the journal failed, if it did. It takes no change any more; what is in memory can still be read.
    pub fn poisoned(&self) -> Option<Error> {
        self.state.lock().poisoned.clone()
    }

    /// W1: writes the record and gives its sequence number.
    fn append(&self, changes: &[Change], visible: Visible, room: Room) -> Result<u64> {
        let mut record = LogRecord::of(changes)?;
        let mut log = self.log.lock();
        let synced = self.healthy()?.synced;
        let before = log.end;
        let sequence =
            log.append(&*self.disk, &mut record, synced, room).map_err(|failure| match failure {
                WriteFailure::Full(error) => {
                    error.context("nothing was changed, the disk of the journal is full")
                }
                WriteFailure::Fatal(error) => self.poison(&error),
            })?;
        let mut state = self.state.lock();
        state.written = sequence;
        state.log_bytes += log.end - before;
        let made_visible = state.add(Pending { sequence, visible, record });
        drop(state);
        made_visible.map_err(|bad| self.poison(&misread(bad)))?;
        Ok(sequence)
    }

    /// W2 and W3: waits until record `sequence` is durable and visible; syncs if nobody else is at it.
    fn wait_durable(&self, sequence: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.synced < sequence {
            if let Some(error) = &state.poisoned {
                return Err(error.clone());
            }
            if state.syncing {
                self.progress.wait(&mut state);
            } else {
                state = self.sync_written(state)?;
            }
        }
        Ok(())
    }

    /// One fdatasync for all that has been written by now. The lock is free meanwhile: others write, to be in
    /// the next one. From a failure on it stays taken until the journal is poisoned, or the next writer would
    /// sync again and be told Ok.
    fn sync_written<'a>(
        &'a self,
        mut state: MutexGuard<'a, JournalState>,
    ) -> Result<MutexGuard<'a, JournalState>> {
        state.syncing = true;
        let (file, number, written) = (state.file.clone(), state.number, state.written);
        let synced = MutexGuard::unlocked(&mut state, || file.sync());
        state.syncing = false;
        let made_visible = match synced {
            Ok(()) => state.synced_up_to(written).map_err(misread),
            Err(e) => Err(failed(&*self.disk, "sync", Name::Segment(number), &e)),
        };
        if let Err(error) = made_visible {
            return Err(self.poison_with(state, &error));
        }
        self.progress.notify_all();
        Ok(state)
    }

    /// The state of a journal that has not failed.
    fn healthy(&self) -> Result<MutexGuard<'_, JournalState>> {
        let state = self.state.lock();
        match &state.poisoned {
            Some(error) => Err(error.clone()),
            None => Ok(state),
        }
    }

    /// Takes nothing more, for good; tells the daemon the first time. Gives the error that every caller gets
    /// from now on.
    fn poison(&self, cause: &Error) -> Error {
        self.poison_with(self.state.lock(), cause)
    }

    fn poison_with(&self, mut state: MutexGuard<'_, JournalState>, cause: &Error) -> Error {
        if let Some(first) = &state.poisoned {
            return first.clone();
        }
        let mut error =
            Error::unavailable(format!("the journal has failed and cephlet must be restarted: {cause}"));
        if let Some(errno) = cause.errno() {
            error = error.caused_by(Cause::Errno(errno));
        }
        state.poisoned = Some(error.clone());
        drop(state);
        self.progress.notify_all();
        ::log::error!("{error}");
        (self.on_failure)(&error);
        error
    }
}

impl JournalState {
    /// Takes a record that has been written. A note is applied at once, unless an earlier change of one of
    /// its keys is pending.
    fn add(&mut self, new: Pending) -> Result<(), Bad> {
        if new.visible == Visible::AtOnce
            && !self.pending.iter().any(|earlier| earlier.record.shares_key(&new.record))
        {
            return self.tables.apply(new.record.payload());
        }
        self.pending.push_back(new);
        Ok(())
    }

    /// All records up to `sequence` are durable: they become visible, and so do notes that waited behind
    /// them.
    fn synced_up_to(&mut self, sequence: u64) -> Result<(), Bad> {
        self.synced = sequence;
        while let Some(next) = self.pending.front()
            && (next.sequence <= sequence || next.visible == Visible::AtOnce)
        {
            self.tables.apply(next.record.payload())?;
            self.pending.pop_front();
        }
        Ok(())
    }
}

/// A record made here that cannot be read here: memory and disk would disagree, so it counts as a failure of
/// the journal.
fn misread(bad: Bad) -> Error {
    Error::internal(format!("the journal cannot read its own record: {bad:?}"))
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("directory", &self.disk.path("")).finish_non_exhaustive()
    }
}
