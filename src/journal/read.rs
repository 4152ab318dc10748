//! Reading a journal file piece by piece: the file is never in memory as a whole, and a failed read is never
//! its end.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::format::{Bad, FILE_HEADER, FileHeader, RECORD_HEADER, RECORD_MAGIC, RecordHeader};
use crate::error::{Error, Result};

/// How much is read at once, bytes; more only for a longer record.
const WINDOW: usize = 16 << 10;

/// A file and the piece of it that is in memory.
pub(super) struct Reader {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    start: u64,
    held: Vec<u8>,
}

/// What stands at an offset.
pub(super) enum Found<'a> {
    /// The file ends here.
    End,
    /// A whole record.
    LogRecord(RecordHeader, &'a [u8]),
    /// Something else, and what is wrong with it.
    Bad(&'static str),
}

impl Reader {
    pub(super) fn open(disk: &dyn Disk, name: &str) -> Result<Self> {
        let path = disk.path(name);
        let file = disk
            .open(name)
            .map_err(|e| Error::io(format!("open the journal file {}", path.display()), &e))?;
        Ok(Self { path, file, start: 0, held: Vec::new() })
    }

    pub(super) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    pub(super) fn file_header(&mut self) -> Result<Result<FileHeader, Bad>> {
        Ok(FileHeader::decode(self.bytes(0, FILE_HEADER)?))
    }

    /// Whether the file holds more than a file header.
    pub(super) fn has_records(&mut self) -> Result<bool> {
        Ok(self.bytes(0, FILE_HEADER + 1)?.len() > FILE_HEADER)
    }

    pub(super) fn record(&mut self, offset: u64) -> Result<Found<'_>> {
        let header = match self.bytes(offset, RECORD_HEADER)? {
            [] => return Ok(Found::End),
            bytes => RecordHeader::decode(bytes),
        };
        let header = match header {
            Ok(header) => header,
            Err(Bad::Damaged(why)) => return Ok(Found::Bad(why)),
            Err(Bad::Newer) => return Ok(Found::Bad("unknown record header")),
        };
        let payload = self.bytes(offset, header.total())?.get(RECORD_HEADER..).unwrap_or_default();
        if header.matches(payload) {
            Ok(Found::LogRecord(header, payload))
        } else {
            Ok(Found::Bad("wrong payload checksum"))
        }
    }

    /// The first whole record behind `offset` that satisfies `wanted`, wherever it begins.
    pub(super) fn find_record(
        &mut self,
        offset: u64,
        wanted: impl Fn(&RecordHeader) -> bool,
    ) -> Result<Option<u64>> {
        let mut at = offset + 1;
        while let Some(begin) = self.find_magic(at)? {
            at = match self.record(begin)? {
                Found::LogRecord(header, _) if wanted(&header) => return Ok(Some(begin)),
                Found::LogRecord(header, _) => begin + header.total() as u64,
                Found::End | Found::Bad(_) => begin + 1,
            };
        }
        Ok(None)
    }

    fn find_magic(&mut self, mut at: u64) -> Result<Option<u64>> {
        loop {
            let bytes = self.bytes(at, WINDOW)?;
            if let Some(place) = bytes.windows(RECORD_MAGIC.len()).position(|four| four == RECORD_MAGIC) {
                return Ok(Some(at + place as u64));
            }
            if bytes.len() < WINDOW {
                return Ok(None);
            }
            at += (WINDOW - RECORD_MAGIC.len() + 1) as u64;
        }
    }

    /// `length` bytes from `offset`; fewer only where the file ends.
    fn bytes(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let held = offset.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        let skip = match held {
            Some(skip) if skip + length <= self.held.len() => skip,
            _ => {
                self.fill(offset, length.max(WINDOW)).map_err(|e| {
                    Error::io(format!("read the journal file {} at byte {offset}", self.path.display()), &e)
                })?;
                0
            }
        };
        let bytes = &self.held[skip..];
        Ok(&bytes[..length.min(bytes.len())])
    }

    fn fill(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.start = offset;
        self.held.resize(length, 0);
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(offset + filled as u64, &mut self.held[filled..])? {
                0 => break,
                count => filled += count,
            }
        }
        self.held.truncate(filled);
        Ok(())
    }
}
