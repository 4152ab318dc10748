//! The journal: a small map that survives every crash. It knows nothing of volumes; keys and values are the
//! caller's. It never holds a secret: it lies on a disk, and in backups of that disk.
//!
//! Everything is in memory; the disk has one file, `journal` in the state directory. Its lines are described
//! in `line`, the system calls in `disk`.
//!
//! # On disk, step by step
//!
//! A write (W):
//!
//! - W1. One line with all changes of the call, and with those of earlier notes, is written behind the last
//!   line. The disk keeps room for it (fallocate), and behind it room for removals, which a full disk needs
//!   most. Any other line has to find more room first, or the call gets
//!   [`NoSpace`](crate::error::Kind::NoSpace). After ENOSPC from the write the file is cut back to its former
//!   length, which gives up the kept room; a removal is then written once more. Any other error is fatal.
//! - W2. fdatasync. An error is fatal: after a failed fsync the content of the disk is unknown, and a second
//!   one would answer Ok without having written.
//! - W3. The changes become visible, and the call returns. So no reader sees a written change that a crash
//!   could undo.
//!
//! The next line is written only after W3, so at most the last line of the file can be incomplete.
//!
//! A note is a change that may be lost without harm. It is visible at once and goes into the line of the next
//! write, or of the stop.
//!
//! A rewrite (R), at every start and when the file is more than four times as long as its content:
//!
//! - R1. `journal.new` is made, or emptied, and gets a line for each entry, and its room for removals.
//! - R2. fdatasync of it.
//! - R3. It is renamed to `journal`; fsync of the directory. Both files have the same content, so either may
//!   be found after a crash.
//!
//! Where the disk is full, a rewrite is put off until the file has doubled. Any other error is fatal.
//!
//! After a fatal error the journal takes no more changes, and the daemon ends: only a restart shows the
//! content of the disk.
//!
//! # What a start finds
//!
//! - O1. The file is synced and its cached pages are dropped before it is read. So the writes of a killed
//!   process are durable before they are used, and data that a failed sync has left in memory only is not
//!   seen.
//! - O2. No file: an empty journal.
//! - O3. A last line that is not whole: W1 or W2 was interrupted, and no caller had an answer. It is cut off,
//!   with a warning.
//! - O4. Anything else that is not a whole line is damage. The start is refused, with file and offset.
//! - O5. Another version, or a table that this version does not know: the start is refused, with the advice
//!   to start the cephlet that wrote it.

mod disk;
mod file;
mod line;

#[cfg(test)]
pub(crate) mod ram;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

pub use self::disk::{Disk, DiskFile, RealDisk};

use self::file::{JournalFile, WriteFailure};
use crate::error::{Cause, Error, Result};

/// The table that a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Deletions under way.
    Deletions,
    /// Volumes on this node.
    Volumes,
    /// Renames of images under way.
    Renames,
}

impl Table {
    /// Every table.
    pub const ALL: [Self; 3] = [Self::Deletions, Self::Volumes, Self::Renames];

    /// Its name on disk. It never changes.
    fn word(self) -> &'static str {
        match self {
            Self::Deletions => "deletions",
            Self::Volumes => "volumes",
            Self::Renames => "renames",
        }
    }
}

/// One change of one key. All changes of one call take effect together or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The table that holds the key.
    pub table: Table,
    /// The key.
    pub key: String,
    /// The new value; None removes the key.
    pub value: Option<Value>,
}

impl Change {
    /// Sets `key` to `value`.
    pub fn put(table: Table, key: impl Into<String>, value: Value) -> Self {
        Self { table, key: key.into(), value: Some(value) }
    }

    /// Removes `key`; a missing one stays missing.
    pub fn remove(table: Table, key: impl Into<String>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// The content, in the order of tables and keys.
type Entries = BTreeMap<(Table, String), Value>;

/// Whether a line may use the room that is kept for removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// It may not.
    Free,
    /// It may: it is a removal, or begins one.
    Kept,
}

/// Why the journal in this state directory would be refused at a start; changes nothing.
///
/// # Errors
/// That reason, as from [`Journal::open`].
pub fn check(state_dir: &Path) -> Result<()> {
    file::check(&RealDisk::open(state_dir)?)
}

/// Called once, when the journal fails for good.
type OnFailure = Box<dyn Fn(&Error) + Send + Sync>;

/// A durable map, used from many threads. Reading never waits for the disk.
pub struct Journal {
    /// Held while a line is written. Taken before `content`, never after it.
    file: Mutex<JournalFile>,
    content: RwLock<Content>,
    on_failure: OnFailure,
}

#[derive(Default)]
struct Content {
    entries: Entries,
    /// The size of the file after the last write.
    size: (u64, u64),
    /// Changes that are visible and not written yet.
    notes: Vec<Change>,
    failure: Option<Error>,
}

impl Journal {
    /// Opens the journal on `disk`, or makes an empty one. One process at a time: the caller holds the lock
    /// of the state directory. After a fatal error `on_failure` is called once, from the thread that noticed;
    /// it must not write to the journal.
    ///
    /// # Errors
    /// The disk failed, the journal is damaged, or a later version has written it.
    pub fn open(disk: Arc<dyn Disk>, on_failure: impl Fn(&Error) + Send + Sync + 'static) -> Result<Self> {
        let (file, entries) = JournalFile::open(disk)?;
        let content = Content { entries, size: file.size(), ..Content::default() };
        Ok(Self { file: Mutex::new(file), content: RwLock::new(content), on_failure: Box::new(on_failure) })
    }

    /// Makes all `changes`, together or not at all. Durable and visible when Ok. After `NoSpace` nothing has
    /// changed; after `Unavailable` the journal has failed.
    pub fn write(&self, changes: &[Change]) -> Result<()> {
        let is_removal = changes.iter().all(|change| change.value.is_none());
        self.write_within(changes, if is_removal { Room::Kept } else { Room::Free })
    }

    /// The same for changes that remove something in the end: they may use the room for removals.
    pub fn write_for_removal(&self, changes: &[Change]) -> Result<()> {
        self.write_within(changes, Room::Kept)
    }

    /// Makes changes that may be lost without harm: visible now, durable with the next write.
    pub fn note(&self, changes: &[Change]) {
        let mut content = self.content.write();
        apply(&mut content.entries, changes);
        content.notes.extend_from_slice(changes);
    }

    /// Makes all notes durable.
    pub fn sync(&self) -> Result<()> {
        self.write_within(&[], Room::Kept)
    }

    /// The value of a key.
    pub fn get(&self, table: Table, key: &str) -> Option<Value> {
        self.content.read().entries.get(&(table, key.to_string())).cloned()
    }

    /// Every entry of a table, in the order of the keys.
    pub fn entries(&self, table: Table) -> Vec<(String, Value)> {
        let content = self.content.read();
        let of_table = content.entries.iter().filter(|((of, _), _)| *of == table);
        of_table.map(|((_, key), value)| (key.clone(), value.clone())).collect()
    }

    /// The bytes of the file, and of the room that the disk keeps behind them.
    pub fn size(&self) -> (u64, u64) {
        self.content.read().size
    }

    /// Why the journal failed, if it did. What is in memory can still be read.
    pub fn poisoned(&self) -> Option<Error> {
        self.content.read().failure.clone()
    }

    fn write_within(&self, changes: &[Change], room: Room) -> Result<()> {
        let mut file = self.file.lock();
        let (line, noted) = {
            let content = self.content.read();
            if let Some(failure) = &content.failure {
                return Err(failure.clone());
            }
            // A note that came before must not overtake this call's change of the same key.
            (line::encode(content.notes.iter().chain(changes)), content.notes.len())
        };
        let Some(line) = line else { return Ok(()) };
        let appended = file.append(&line, room);
        self.content.write().size = file.size();
        appended.map_err(|failure| self.failed(failure))?;
        let mut content = self.content.write();
        content.notes.drain(..noted);
        // A note that was made meanwhile is later than this call.
        apply(&mut content.entries, changes);
        let Content { entries, notes, .. } = &mut *content;
        apply(entries, notes);
        if !file.is_rewrite_due() {
            return Ok(());
        }
        // Readers do not wait for the disk: only `file` is locked meanwhile.
        let entries = entries.clone();
        drop(content);
        let rewritten = file.rewrite(&entries);
        self.content.write().size = file.size();
        // `content` is unlocked again: a failure is recorded in it.
        rewritten.map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: WriteFailure) -> Error {
        match failure {
            WriteFailure::Full(error) => {
                error.context("nothing was changed, the disk of the journal is full")
            }
            WriteFailure::Fatal(cause) => self.poison(&cause),
        }
    }

    /// Makes the journal refuse changes from now on. Returns the error that every later caller gets.
    fn poison(&self, cause: &Error) -> Error {
        let mut error =
            Error::unavailable(format!("the journal has failed and cephlet must be restarted: {cause}"));
        if let Some(errno) = cause.errno() {
            error = error.caused_by(Cause::Errno(errno));
        }
        self.content.write().failure = Some(error.clone());
        log::error!("{error}");
        (self.on_failure)(&error);
        error
    }
}

fn apply(entries: &mut Entries, changes: &[Change]) {
    for Change { table, key, value } in changes {
        match value {
            Some(value) => drop(entries.insert((*table, key.clone()), value.clone())),
            None => drop(entries.remove(&(*table, key.clone()))),
        }
    }
}
