//! Taking a snapshot, so that old segments can go. The steps S1 to S7 stand at the top of the module
//! `journal`.

use std::io;

use super::format::{FILE_HEADER, FileHeader, FileKind, LogRecord};
use super::log::{Log, Name, WriteFailure, failed};
use super::recover::remove_leftovers;
use super::tables::Position;
use super::{Journal, JournalState};
use crate::error::{Error, Kind, Result};

/// What a snapshot stands in for.
struct Covered {
    /// Its number and that of the segment behind it.
    number: u64,
    /// Sequence number of the first record in that segment.
    first: u64,
    /// Length of all segments before, bytes.
    bytes: u64,
}

impl Journal {
    /// Takes a snapshot if the log has grown well past what is alive and nobody else is at it. The caller's
    /// own changes are durable already, so a failure is not the caller's; it is in the log, or the journal is
    /// poisoned.
    pub(super) fn snapshot_if_due(&self) {
        if !self.snapshot_due(&self.state.lock()) {
            return;
        }
        let Some(_only_one) = self.snapshotting.try_lock() else { return };
        match self.take_snapshot() {
            Ok(()) => {}
            Err(WriteFailure::Full(error)) => {
                let mut state = self.state.lock();
                state.snapshot_not_before = 2 * state.log_bytes;
                drop(state);
                ::log::warn!("the disk of the journal is full: old segments stay for now: {error}");
            }
            Err(WriteFailure::Fatal(error)) => drop(self.poison(&error)),
        }
    }

    fn snapshot_due(&self, state: &JournalState) -> bool {
        let allowed =
            (2 * state.tables.bytes()).max(self.limits.snapshot_floor).max(state.snapshot_not_before);
        state.log_bytes > allowed
    }

    fn take_snapshot(&self) -> Result<(), WriteFailure> {
        let covered = self.next_segment()?;
        let (unfinished, name) = (Name::Unfinished(covered.number), Name::Snapshot(covered.number));
        self.write_unfinished(&covered)
            .map_err(|e| self.give_up(unfinished, failed(&*self.disk, "write", unfinished, &e)))?;
        self.sync().map_err(WriteFailure::Fatal)?;
        self.disk
            .rename(&unfinished.to_string(), &name.to_string())
            .map_err(|e| self.give_up(unfinished, failed(&*self.disk, "rename", unfinished, &e)))?;
        self.disk
            .sync_dir()
            .map_err(|e| WriteFailure::Fatal(failed(&*self.disk, "sync the directory of", name, &e)))?;
        remove_leftovers(&*self.disk, covered.number);
        let mut state = self.state.lock();
        state.log_bytes -= covered.bytes;
        state.snapshot_not_before = 0;
        Ok(())
    }

    /// S1 to S3: records go to a new segment. Not after a failure: the old one may end in half a record, and
    /// then has to stay the last.
    fn next_segment(&self) -> Result<Covered, WriteFailure> {
        let mut log = self.log.lock();
        drop(self.healthy().map_err(WriteFailure::Fatal)?);
        self.wait_durable(log.last).map_err(WriteFailure::Fatal)?;
        let next = Log::create(&*self.disk, log.number + 1, log.last)?;
        let mut state = self.state.lock();
        let covered = Covered { number: next.number, first: next.last + 1, bytes: state.log_bytes };
        state.log_bytes += next.end;
        state.number = next.number;
        state.file = next.file.clone();
        *log = next;
        Ok(covered)
    }

    /// S4 and the first half of S5. An empty record marks the end.
    fn write_unfinished(&self, covered: &Covered) -> io::Result<()> {
        let file = self.disk.create(&Name::Unfinished(covered.number).to_string())?;
        let header = FileHeader { kind: FileKind::Snapshot, number: covered.number, first: covered.first };
        file.write_at(0, &header.encode())?;
        let (mut offset, mut sequence) = (FILE_HEADER as u64, 1);
        let (mut record, mut position) = (LogRecord::empty(), Position::default());
        loop {
            record.clear();
            let more = self.state.lock().tables.copy_some(&mut position, &mut record, self.limits.chunk);
            let bytes = record.seal(sequence, 0);
            file.write_at(offset, bytes)?;
            if !more {
                return file.sync();
            }
            offset += bytes.len() as u64;
            sequence += 1;
        }
    }

    /// The unfinished snapshot is not part of the journal yet, so on a full disk it can simply be dropped.
    fn give_up(&self, unfinished: Name, error: Error) -> WriteFailure {
        if error.kind() != Kind::NoSpace {
            return WriteFailure::Fatal(error);
        }
        if let Err(e) = self.disk.remove(&unfinished.to_string()) {
            ::log::warn!("{}", failed(&*self.disk, "remove", unfinished, &e));
        }
        WriteFailure::Full(error)
    }
}
