//! The segment that is being written, and the names of the files.

use std::io;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{FILE_HEADER, FileHeader, FileKind, LogRecord};
use crate::error::{Error, Kind, Result};

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
}

impl Log {
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
        write_header(disk, &*file, number, last)?;
        disk.sync_dir().map_err(|e| failed(disk, "sync the directory of", name, &e))?;
        Ok(Self { number, file, end: FILE_HEADER as u64, last })
    }

    /// Appends `record`, not yet durable, and gives its sequence number. A full disk is a normal thing: the
    /// part that was written is cut off again, and as nobody waited for it and nothing behind it exists, the
    /// journal is as it was. If even that fails, or for any other error, the end of the file is unknown.
    pub(super) fn append(
        &mut self,
        disk: &dyn Disk,
        record: &mut LogRecord,
        synced: u64,
    ) -> Result<u64, WriteFailure> {
        let name = Name::Segment(self.number);
        let bytes = record.seal(self.last + 1, synced);
        if let Err(e) = self.file.write_at(self.end, bytes) {
            let error = failed(disk, "write", name, &e);
            if error.kind() != Kind::NoSpace {
                return Err(WriteFailure::Fatal(error));
            }
            self.file
                .truncate(self.end)
                .map_err(|e| WriteFailure::Fatal(failed(disk, "cut", name, &e).context(&error)))?;
            return Err(WriteFailure::Full(error));
        }
        self.end += bytes.len() as u64;
        self.last += 1;
        Ok(self.last)
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
