//! The segment that is being written, and the names of the files.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{Change, FILE_HEADER, FileHeader, FileKind, LogRecord};
use crate::error::{Error, Kind, Result};

/// So much room is kept for removals behind what was written last, bytes: for about a thousand. A full disk
/// can only be emptied by removals, and they have to be written down like everything else.
const FOR_REMOVALS: u64 = 256 << 10;

/// So much more is asked for, bytes, so that it is seldom asked for.
const AHEAD: u64 = 4 << 10;

/// Whether a record may be written where room is kept for removals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It leaves that room alone.
    Free,
    /// It is a removal, or the beginning of one.
    Kept,
}

impl Room {
    /// What takes nothing but entries away is a removal.
    pub(super) fn of(changes: &[Change]) -> Self {
        if changes.iter().all(|change| change.value.is_none()) { Self::Kept } else { Self::Free }
    }
}

/// A step of the journal failed.
#[derive(Debug)]
pub(super) enum WriteFailure {
    /// The disk is full; what was begun has been undone and the journal is as it was.
    Full(Error),
    /// It is not known what is on the disk: nothing more may be written.
    Fatal(Error),
}

/// What a file of the journal is, by its name: 16 digits and a suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name {
    /// Records `number`.
    Segment(u64),
    /// Everything that stood in segments before `number`.
    Snapshot(u64),
    /// A snapshot that was never finished.
    Unfinished(u64),
}

impl Name {
    pub(super) fn parse(name: &str) -> Option<Self> {
        let (digits, suffix) = name.split_once('.')?;
        let number = digits.parse().ok()?;
        let parsed = match suffix {
            "log" => Self::Segment(number),
            "snapshot" => Self::Snapshot(number),
            "snapshot.tmp" => Self::Unfinished(number),
            _ => return None,
        };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Segment(number) => write!(f, "{number:016}.log"),
            Self::Snapshot(number) => write!(f, "{number:016}.snapshot"),
            Self::Unfinished(number) => write!(f, "{number:016}.snapshot.tmp"),
        }
    }
}

/// An error of `doing` something to the file `name`.
pub(super) fn failed(disk: &dyn Disk, doing: &str, name: Name, cause: &io::Error) -> Error {
    Error::io(format!("{doing} the journal file {}", disk.path(&name.to_string()).display()), cause)
}

/// The last segment: where it ends and which record it ends with.
pub(super) struct Log {
    pub(super) number: u64,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) end: u64,
    pub(super) last: u64,
    /// Up to where the disk keeps room.
    kept: u64,
}

impl Log {
    /// A segment that was found and ends at `end` with record `last`.
    pub(super) fn found(number: u64, file: Arc<dyn DiskFile>, end: u64, last: u64) -> Self {
        Self { number, file, end, last, kept: end }
    }

    /// Has the disk keep room for records up to `end` and for removals behind that. Fails only on a full
    /// disk: where the file system cannot keep any (NFS, ZFS), each record has to find its own.
    pub(super) fn keep_room(&mut self, disk: &dyn Disk, end: u64) -> Result<()> {
        let needed = end + FOR_REMOVALS;
        if needed <= self.kept {
            return Ok(());
        }
        let keep = |up_to: u64| match self.file.keep_room(self.end, up_to - self.end) {
            Err(e) if Error::io("", &e).kind() == Kind::NoSpace => Err(e),
            _ => Ok(up_to),
        };
        // The last bit of a disk may do, too.
        let kept = keep(needed + AHEAD).or_else(|_| keep(needed));
        self.kept = kept.map_err(|e| failed(disk, "keep room in", Name::Segment(self.number), &e))?;
        Ok(())
    }

    /// Makes segment `number`, which begins after record `last`. When this returns, the segment is there for
    /// good, so that no record in it can be lost with its name. On a full disk the half-made file is removed
    /// again, durably: if it came back after a crash, records that were meanwhile added to the segment before
    /// it would no longer be in the last one.
    pub(super) fn create(disk: &dyn Disk, number: u64, last: u64) -> Result<Self, WriteFailure> {
        Self::try_create(disk, number, last).map_err(|error| {
            if error.kind() != Kind::NoSpace {
                return WriteFailure::Fatal(error);
            }
            let removed = match disk.remove(&Name::Segment(number).to_string()) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                _ => disk.sync_dir(),
            };
            match removed {
                Ok(()) => WriteFailure::Full(error),
                Err(e) => WriteFailure::Fatal(
                    failed(disk, "undo a write to", Name::Segment(number), &e).context(error),
                ),
            }
        })
    }

    fn try_create(disk: &dyn Disk, number: u64, last: u64) -> Result<Self> {
        let name = Name::Segment(number);
        let file = disk.create(&name.to_string()).map_err(|e| failed(disk, "create", name, &e))?;
        let mut log = Self::found(number, file, 0, last);
        log.keep_room(disk, FILE_HEADER as u64)?;
        write_header(disk, &*log.file, number, last)?;
        disk.sync_dir().map_err(|e| failed(disk, "sync the directory of", name, &e))?;
        log.end = FILE_HEADER as u64;
        Ok(log)
    }

    /// Appends `record`, not yet durable, and gives its sequence number. A full disk is a normal thing: the
    /// journal is as it was then, as nobody waited for the part that was cut off again, and nothing behind it
    /// exists.
    pub(super) fn append(
        &mut self,
        disk: &dyn Disk,
        record: &mut LogRecord,
        synced: u64,
        room: Room,
    ) -> Result<u64, WriteFailure> {
        let bytes = record.seal(self.last + 1, synced);
        match self.keep_room(disk, self.end + bytes.len() as u64) {
            Err(full) if room == Room::Free => return Err(WriteFailure::Full(full)),
            _ => {}
        }
        let written = match (self.write(disk, bytes), room) {
            // btrfs writes the last block anew elsewhere, in the room that the cut has given up.
            (Err(WriteFailure::Full(_)), Room::Kept) => self.write(disk, bytes),
            (written, _) => written,
        };
        if matches!(written, Err(WriteFailure::Full(_))) {
            // Whether that succeeds shows when it is needed.
            let _ = self.keep_room(disk, self.end);
        }
        written?;
        self.end += bytes.len() as u64;
        self.last += 1;
        Ok(self.last)
    }

    /// Writes behind the end. On a full disk the part that was written is cut off again, and with it goes the
    /// room that was kept. If even that fails, or for any other error, the end of the file is unknown.
    fn write(&mut self, disk: &dyn Disk, bytes: &[u8]) -> Result<(), WriteFailure> {
        let name = Name::Segment(self.number);
        let Err(e) = self.file.write_at(self.end, bytes) else { return Ok(()) };
        let error = failed(disk, "write", name, &e);
        if error.kind() != Kind::NoSpace {
            return Err(WriteFailure::Fatal(error));
        }
        self.kept = self.end;
        match self.file.truncate(self.end) {
            Ok(()) => Err(WriteFailure::Full(error)),
            Err(e) => Err(WriteFailure::Fatal(failed(disk, "cut", name, &e).context(&error))),
        }
    }
}

/// Writes the header of segment `number` and makes it durable.
pub(super) fn write_header(disk: &dyn Disk, file: &dyn DiskFile, number: u64, last: u64) -> Result<()> {
    let name = Name::Segment(number);
    let header = FileHeader { kind: FileKind::Segment, number, first: last + 1 }.encode();
    file.write_at(0, &header).map_err(|e| failed(disk, "write", name, &e))?;
    file.sync().map_err(|e| failed(disk, "sync", name, &e))
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn only_our_own_spelling_is_a_name() {
        for name in [Name::Segment(1), Name::Snapshot(20), Name::Unfinished(u64::MAX)] {
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        for other in [
            "1.log",
            "+000000000000001.log",
            "0000000000000001.log~",
            "0000000000000001",
            "lost+found",
            ".log",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
