//! Opening a journal: what each thing that a crash may have left behind means, and what is refused.
//! The numbered rules stand at the top of the module `journal`.

use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{Bad, FILE_HEADER, FileHeader, FileKind};
use super::log::{Log, Name, WriteFailure, failed, write_header};
use super::read::{Found, Reader};
use super::tables::Tables;
use crate::error::{Error, Result};

/// A journal as it was found.
pub(super) struct Recovered {
    pub(super) tables: Tables,
    pub(super) log: Log,
    /// Length of all segments that are needed, bytes.
    pub(super) log_bytes: u64,
}

/// Reads the journal on `disk`, or makes a new one if there is none.
pub(super) fn recover(disk: &dyn Disk) -> Result<Recovered> {
    // What is seen here is built upon, so it must not vanish: names first, each file when it is opened.
    disk.sync_dir()
        .map_err(|e| Error::io(format!("sync the journal directory {}", disk.path("").display()), &e))?;
    let found = Inventory::take(disk)?;
    let mut recovery =
        Recovery { disk, snapshot: None, tables: Tables::default(), last: 0, earlier_bytes: 0 };
    if let Some(number) = found.snapshots.last() {
        recovery.load_snapshot(*number)?;
    }
    let log = recovery.replay_all(&found)?;
    remove_leftovers(disk, recovery.snapshot.unwrap_or(0));
    let log = match log {
        Some(mut log) => {
            let kept = log.keep_room(disk, log.end);
            kept.unwrap_or_else(|error| ::log::warn!("{error}: what removes something may find none, too"));
            log
        }
        None => Log::create(disk, 1, 0).map_err(|(WriteFailure::Full(e) | WriteFailure::Fatal(e))| e)?,
    };
    Ok(Recovered { tables: recovery.tables, log_bytes: recovery.earlier_bytes + log.end, log })
}

/// Removes what is no longer needed once snapshot `number` is durable, and unfinished snapshots. A file that
/// cannot be removed does no harm: it is only reported, and tried again at the next start.
pub(super) fn remove_leftovers(disk: &dyn Disk, number: u64) {
    let names = disk.list().unwrap_or_else(|e| {
        log::warn!("list the journal directory {}: {e}", disk.path("").display());
        Vec::new()
    });
    for name in names.iter().filter_map(|name| Name::parse(name)) {
        let needed = match name {
            Name::Segment(n) | Name::Snapshot(n) => n >= number,
            Name::Unfinished(_) => false,
        };
        if !needed && let Err(e) = disk.remove(&name.to_string()) {
            log::warn!("{}", failed(disk, "remove", name, &e));
        }
    }
}

/// The numbers of the files, ascending.
#[derive(Default)]
struct Inventory {
    snapshots: Vec<u64>,
    segments: Vec<u64>,
}

impl Inventory {
    fn take(disk: &dyn Disk) -> Result<Self> {
        let directory = disk.path("");
        let names = disk
            .list()
            .map_err(|e| Error::io(format!("list the journal directory {}", directory.display()), &e))?;
        let mut found = Self::default();
        for name in names {
            match Name::parse(&name) {
                Some(Name::Snapshot(number)) => found.snapshots.push(number),
                Some(Name::Segment(number)) => found.segments.push(number),
                Some(Name::Unfinished(_)) => {}
                None => log::warn!("{} is no file of the journal: left alone", disk.path(&name).display()),
            }
        }
        found.snapshots.sort_unstable();
        found.segments.sort_unstable();
        Ok(found)
    }
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    snapshot: Option<u64>,
    tables: Tables,
    /// Sequence number of the last record that was applied.
    last: u64,
    /// Length of all segments before the last one, bytes.
    earlier_bytes: u64,
}

impl Recovery<'_> {
    /// A snapshot got its name when it was complete and durable, so everything about it must be right.
    fn load_snapshot(&mut self, number: u64) -> Result<()> {
        let name = Name::Snapshot(number);
        let mut reader = Reader::open(self.disk, &name.to_string())?;
        let header = reader.file_header()?.map_err(|bad| self.refuse(name, 0, bad))?;
        self.check_header(name, header)?;
        let (mut offset, mut expected) = (FILE_HEADER as u64, 1);
        loop {
            match reader.record(offset)? {
                Found::LogRecord(header, payload) if header.sequence == expected => {
                    offset += header.total() as u64;
                    expected += 1;
                    if payload.is_empty() {
                        break;
                    }
                    self.tables.apply(payload).map_err(|bad| refuse(self.disk, name, offset, bad))?;
                }
                Found::LogRecord(..) => {
                    return Err(self.refuse(name, offset, Bad::Damaged("record out of order")));
                }
                Found::End => return Err(self.refuse(name, offset, Bad::Damaged("the end is missing"))),
                Found::Bad(why) => return Err(self.refuse(name, offset, Bad::Damaged(why))),
            }
        }
        if !matches!(reader.record(offset)?, Found::End) {
            return Err(self.refuse(name, offset, Bad::Damaged("something follows the end")));
        }
        (self.snapshot, self.last) = (Some(number), header.first - 1);
        Ok(())
    }

    /// Applies every segment that the snapshot does not cover; gives the last one, ready to be appended to.
    fn replay_all(&mut self, found: &Inventory) -> Result<Option<Log>> {
        let first = self.snapshot.unwrap_or(1);
        let needed: Vec<u64> = found.segments.iter().copied().filter(|number| *number >= first).collect();
        if needed.is_empty() && self.snapshot.is_none() {
            return Ok(None);
        }
        // Every number up to the last one found; at least the snapshot's own segment, which was made before
        // the snapshot.
        let last = needed.last().copied().unwrap_or(first);
        if let Some(missing) = (first..=last).find(|number| needed.binary_search(number).is_err()) {
            return Err(self.refuse(Name::Segment(missing), 0, Bad::Damaged("the file is missing")));
        }
        for number in first..last {
            self.earlier_bytes += self.replay(number, false)?.end;
        }
        self.replay(last, true).map(Some)
    }

    /// Applies one segment. Only in the last one may something be wrong, and only at its end.
    fn replay(&mut self, number: u64, is_last: bool) -> Result<Log> {
        let name = Name::Segment(number);
        let mut reader = Reader::open(self.disk, &name.to_string())?;
        match reader.file_header()? {
            Ok(header) => self.check_header(name, header)?,
            Err(Bad::Damaged(_)) if is_last && self.snapshot != Some(number) && !reader.has_records()? => {
                return self.make_again(number, reader.file().clone());
            }
            Err(bad) => return Err(self.refuse(name, 0, bad)),
        }
        let mut offset = FILE_HEADER as u64;
        loop {
            match reader.record(offset)? {
                Found::End => break,
                Found::LogRecord(header, payload) if header.sequence == self.last + 1 => {
                    self.tables.apply(payload).map_err(|bad| refuse(self.disk, name, offset, bad))?;
                    offset += header.total() as u64;
                    self.last += 1;
                }
                Found::LogRecord(..) => {
                    return Err(self.refuse(name, offset, Bad::Damaged("record out of order")));
                }
                Found::Bad(why) if is_last => {
                    self.cut_tail(name, &mut reader, offset, why)?;
                    break;
                }
                Found::Bad(why) => return Err(self.refuse(name, offset, Bad::Damaged(why))),
            }
        }
        Ok(Log::found(number, reader.file().clone(), offset, self.last))
    }

    /// The file must be what its name says and follow on what was read before. A snapshot comes first and
    /// says where the log goes on.
    fn check_header(&self, name: Name, header: FileHeader) -> Result<()> {
        let expected = match name {
            Name::Segment(number) => FileHeader { kind: FileKind::Segment, number, first: self.last + 1 },
            Name::Snapshot(number) | Name::Unfinished(number) => {
                FileHeader { kind: FileKind::Snapshot, number, ..header }
            }
        };
        if header == expected && header.first > 0 {
            return Ok(());
        }
        Err(self.refuse(name, 0, Bad::Damaged("the file does not follow on the one before it")))
    }

    /// A segment whose header was not durable when the machine stopped: no record can have been in it.
    fn make_again(&self, number: u64, file: Arc<dyn DiskFile>) -> Result<Log> {
        let name = Name::Segment(number);
        log::warn!(
            "{} was being made when the machine stopped: made again",
            self.disk.path(&name.to_string()).display()
        );
        file.truncate(0).map_err(|e| failed(self.disk, "cut", name, &e))?;
        write_header(self.disk, &*file, number, self.last)?;
        Ok(Log::found(number, file, FILE_HEADER as u64, self.last))
    }

    /// Cuts what is not a record at the end of the last segment, unless a record behind it proves that it
    /// once was one. Several records may have been written between two syncs, and a disk may keep a later one
    /// and lose an earlier: whole records behind the damage that prove nothing are cut too. Nobody was told
    /// that they were durable.
    fn cut_tail(&self, name: Name, reader: &mut Reader, offset: u64, why: &'static str) -> Result<()> {
        if let Some(proof) = reader.find_record(offset, |header| header.synced > self.last)? {
            log::error!("a record at byte {proof} shows that byte {offset} had been written well");
            return Err(self.refuse(name, offset, Bad::Damaged(why)));
        }
        let path = self.disk.path(&name.to_string());
        log::warn!("{}: the end from byte {offset} on is incomplete ({why}) and is cut off", path.display());
        let file = reader.file();
        file.truncate(offset).map_err(|e| failed(self.disk, "cut", name, &e))?;
        file.sync().map_err(|e| failed(self.disk, "sync", name, &e))
    }

    fn refuse(&self, name: Name, offset: u64, bad: Bad) -> Error {
        refuse(self.disk, name, offset, bad)
    }
}

/// Why the journal cannot be opened, and what can be done.
fn refuse(disk: &dyn Disk, name: Name, offset: u64, bad: Bad) -> Error {
    let path = disk.path(&name.to_string());
    let path = path.display();
    match bad {
        Bad::Newer => Error::internal(format!(
            "the journal file {path} was written by a newer cephlet: start that version"
        )),
        Bad::Damaged(why) => Error::internal(format!(
            "the journal file {path} is damaged at byte {offset}: {why}. What it recorded cannot be trusted. \
             Check the disk; to \
             go on without it, move the journal directory away: operations that were interrupted are then \
             forgotten, volumes \
             are not"
        )),
    }
}
