//! The file of the journal: reading it at the start, appending to it, and writing it anew.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::line::{self, Bad, HEADER};
use super::{Entries, Room};
use crate::error::{Error, Kind, Result};

/// The journal's name in the state directory.
pub(super) const NAME: &str = "journal";
/// The name of the file that becomes the journal.
pub(super) const NEW: &str = "journal.new";

/// How many bytes are kept for removals behind the last line: room for about a thousand.
const FOR_REMOVALS: u64 = 256 << 10;
/// How many more bytes are reserved at once, so that reservations are rare.
const AHEAD: u64 = 4 << 10;
/// A file of fewer bytes than this is not rewritten.
const SMALL: u64 = 64 << 10;

/// A step of the journal failed.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// The disk is full, and the journal is unchanged.
    Full(Error),
    /// The content of the disk is unknown.
    Fatal(Error),
}

/// The open file.
pub(super) struct JournalFile {
    disk: Arc<dyn Disk>,
    file: Arc<dyn DiskFile>,
    /// Where the last line ends.
    end: u64,
    /// The end of the room that the disk keeps.
    kept: u64,
    /// It is rewritten when it has more bytes than this.
    rewrite_at: u64,
}

fn failed(disk: &dyn Disk, doing: &str, name: &str, cause: &io::Error) -> Error {
    Error::io(format!("{doing} {}", disk.path(name).display()), cause)
}

/// A full disk is not fatal if nothing was changed.
fn full_or_fatal(error: Error) -> WriteFailure {
    match error.kind() {
        Kind::NoSpace => WriteFailure::Full(error),
        _ => WriteFailure::Fatal(error),
    }
}

impl JournalFile {
    /// O1 to O5, and R.
    pub(super) fn open(disk: Arc<dyn Disk>) -> Result<(Self, Entries)> {
        let mut entries = Entries::new();
        let found = match disk.open(NAME) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(Error::precondition(format!(
                    "{} is a directory, as cephlet 0.1 had it: unstage all volumes of this node with that \
                     version, and remove the directory",
                    disk.path(NAME).display()
                )));
            }
            Err(error) => return Err(failed(&*disk, "open the journal", NAME, &error)),
        };
        let end = match &found {
            Some(file) => replay(&*disk, &**file, &mut entries)?,
            None => 0,
        };
        let rewritten = Self::make(&disk, &entries);
        let file = match (rewritten, found) {
            (Ok(file), _) => file,
            // Removals can still be appended to the old file.
            (Err(WriteFailure::Full(error)), Some(file)) => {
                log::warn!("the journal is not written anew now: {error}");
                let mut old = Self { disk, file, end, kept: end, rewrite_at: end.max(SMALL) * 2 };
                old.keep_room(end).unwrap_or_else(|error| log::warn!("removals may find no room: {error}"));
                old
            }
            (Err(WriteFailure::Full(error) | WriteFailure::Fatal(error)), _) => return Err(error),
        };
        Ok((file, entries))
    }

    /// R1 to R3.
    fn make(disk: &Arc<dyn Disk>, entries: &Entries) -> Result<Self, WriteFailure> {
        let lines = line::encode_all(entries);
        let end = lines.len() as u64;
        let make = || {
            let file = disk.create(NEW).map_err(|error| failed(&**disk, "make", NEW, &error))?;
            let rewrite_at = (end * 4).max(SMALL);
            let mut new = Self { disk: Arc::clone(disk), file, end: 0, kept: 0, rewrite_at };
            new.keep_room(end)?;
            new.file.write_at(0, &lines).map_err(|error| failed(&**disk, "write", NEW, &error))?;
            new.file.sync().map_err(|error| failed(&**disk, "sync", NEW, &error))?;
            new.end = end;
            Ok(new)
        };
        let new = make().map_err(full_or_fatal)?;
        disk.rename(NEW, NAME).map_err(|error| full_or_fatal(failed(&**disk, "rename", NEW, &error)))?;
        // From here on a crash may leave either file.
        let synced = disk.sync_dir().map_err(|error| failed(&**disk, "sync the directory of", NAME, &error));
        synced.map_err(WriteFailure::Fatal)?;
        Ok(new)
    }

    /// W1 and W2.
    pub(super) fn append(&mut self, line: &[u8], room: Room) -> Result<(), WriteFailure> {
        let after = self.end + line.len() as u64;
        match self.keep_room(after) {
            Err(full) if room == Room::Free => return Err(WriteFailure::Full(full)),
            _ => {}
        }
        let written = match (self.write(line), room) {
            // btrfs writes the last block to another place: it uses the room that the cut has given up.
            (Err(WriteFailure::Full(_)), Room::Kept) => self.write(line),
            (written, _) => written,
        };
        if matches!(written, Err(WriteFailure::Full(_))) {
            // A failure shows when the room is needed.
            let _ = self.keep_room(self.end);
        }
        written?;
        let synced = self.file.sync().map_err(|error| failed(&*self.disk, "sync the journal", NAME, &error));
        synced.map_err(WriteFailure::Fatal)?;
        self.end = after;
        Ok(())
    }

    /// The bytes of the lines, and of the room that the disk keeps behind them.
    pub(super) fn size(&self) -> (u64, u64) {
        (self.end, self.kept.saturating_sub(self.end))
    }

    /// Whether the file is much longer than its content.
    pub(super) fn is_rewrite_due(&self) -> bool {
        self.end > self.rewrite_at
    }

    /// R, where there is room for it.
    pub(super) fn rewrite(&mut self, entries: &Entries) -> Result<(), WriteFailure> {
        match Self::make(&self.disk, entries) {
            Ok(new) => *self = new,
            Err(WriteFailure::Full(error)) => {
                log::warn!("the journal is written anew later: {error}");
                self.rewrite_at = self.end * 2;
            }
            Err(fatal) => return Err(fatal),
        }
        Ok(())
    }

    /// Reserves room on the disk for lines up to `end`, and for removals behind that. Fails only on a full
    /// disk: if the file system cannot reserve room (NFS, ZFS), each line has to find its own.
    fn keep_room(&mut self, end: u64) -> Result<()> {
        let needed = end + FOR_REMOVALS;
        if needed <= self.kept {
            return Ok(());
        }
        let keep = |up_to: u64| match self.file.keep_room(self.end, up_to - self.end) {
            Err(error) if Error::io("", &error).kind() == Kind::NoSpace => Err(error),
            _ => Ok(up_to),
        };
        // A nearly full disk may still have the room without `AHEAD`.
        let kept = keep(needed + AHEAD).or_else(|_| keep(needed));
        self.kept = kept.map_err(|error| failed(&*self.disk, "keep room in", NAME, &error))?;
        Ok(())
    }

    /// Writes behind the end. On a full disk the part that was written is cut off again, which also gives up
    /// the kept room. If the cut fails, the end of the file is unknown.
    fn write(&mut self, line: &[u8]) -> Result<(), WriteFailure> {
        let Err(error) = self.file.write_at(self.end, line) else { return Ok(()) };
        let error = failed(&*self.disk, "write the journal", NAME, &error);
        if error.kind() != Kind::NoSpace {
            return Err(WriteFailure::Fatal(error));
        }
        self.kept = self.end;
        match self.file.truncate(self.end) {
            Ok(()) => Err(WriteFailure::Full(error)),
            Err(cut) => Err(WriteFailure::Fatal(failed(&*self.disk, "cut", NAME, &cut).context(&error))),
        }
    }
}

/// Why a start would be refused; changes nothing.
pub(super) fn check(disk: &dyn Disk) -> Result<()> {
    match disk.open(NAME) {
        Ok(file) => read(disk, &*file, &mut Entries::new()).map(drop),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(disk, "open the journal", NAME, &error)),
    }
}

/// Reads the journal and returns the end of its last whole line. An incomplete line behind it is cut off.
fn replay(disk: &dyn Disk, file: &dyn DiskFile, entries: &mut Entries) -> Result<u64> {
    let (end, is_torn) = read(disk, file, entries)?;
    if is_torn {
        cut(disk, file, end)?;
    }
    Ok(end)
}

/// The end of the last whole line, and whether an incomplete one follows.
fn read(disk: &dyn Disk, file: &dyn DiskFile, entries: &mut Entries) -> Result<(u64, bool)> {
    let bytes = file.read().map_err(|error| failed(disk, "read the journal", NAME, &error))?;
    let Some(lines) = bytes.strip_prefix(HEADER.as_bytes()) else {
        let is_newer = bytes.starts_with(b"{\"journal\":");
        return Err(refusal(disk, 0, if is_newer { Bad::Newer } else { Bad::Damaged }));
    };
    let mut end = HEADER.len();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n").ok_or(Bad::Damaged).and_then(|line| line::replay(line, entries));
        match whole {
            Ok(()) => end += line.len(),
            Err(Bad::Damaged) if !line::has_whole_line(&bytes[end..]) => return Ok((end as u64, true)),
            Err(bad) => return Err(refusal(disk, end, bad)),
        }
    }
    Ok((end as u64, false))
}

/// O3.
fn cut(disk: &dyn Disk, file: &dyn DiskFile, end: u64) -> Result<()> {
    let path = disk.path(NAME);
    log::warn!("{}: the last line, at byte {end}, is incomplete and is cut off", path.display());
    file.truncate(end).map_err(|error| failed(disk, "cut", NAME, &error))?;
    file.sync().map_err(|error| failed(disk, "sync the journal", NAME, &error))
}

/// Why the journal cannot be opened, and what can be done.
fn refusal(disk: &dyn Disk, offset: usize, bad: Bad) -> Error {
    let path = disk.path(NAME);
    let path = path.display();
    match bad {
        Bad::Newer => {
            Error::precondition(format!("{path} was written by a later cephlet: start that version"))
        }
        Bad::Damaged => Error::internal(format!(
            "{path} is damaged at byte {offset}, so what it says cannot be trusted: check the disk. To go on \
             without it, move it away: volumes stay as they are, and those in use on this node are found again \
             when they are unpublished"
        )),
    }
}
