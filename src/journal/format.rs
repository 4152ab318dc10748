//! The bytes of the journal: file headers, records and changes. No I/O and no policy here.
//!
//! All numbers are little-endian.
//!
//! ```text
//! file   = file header, record…
//! file header (32)   = magic "cephletJ" | version u16 | kind u16 | number u64 | first u64
//!                      | crc32 of the 28 bytes before
//! record header (32) = magic u32 | length u32 | sequence u64 | synced u64 | crc32 of the payload
//!                      | crc32 of the 28 bytes before
//! record             = record header, payload of `length` bytes
//! payload            = change…
//! change             = table u8 | 0 remove, 1 put: u8 | key length u16 | value length u32
//!                      | key (UTF-8) | value
//! ```
//!
//! `first` is the sequence number of the first record in a segment; a snapshot carries that of the segment it
//! belongs to. `synced` is the last sequence number known to be on disk when the record was written: it is
//! how recovery tells a tail that was never complete from one that was complete and has been damaged since.
//! The file header keeps its length and place of `version` and checksum in every later version.

use crate::error::{Error, Result};

/// Length of a file's header, bytes.
pub(super) const FILE_HEADER: usize = 32;
/// Length of a record's header, bytes.
pub(super) const RECORD_HEADER: usize = 32;
/// What a record starts with; searched for behind damage.
pub(super) const RECORD_MAGIC: [u8; 4] = *b"\xc3Rj\x9e";
/// A change without its key and value, bytes.
pub(super) const CHANGE_HEADER: usize = 8;
/// The longest payload of a record, bytes: reading one needs a buffer of this size.
pub(super) const MAX_PAYLOAD: usize = 16 << 20;

/// The longest key, bytes.
const MAX_KEY: usize = u16::MAX as usize;
const FILE_MAGIC: [u8; 8] = *b"cephletJ";
const VERSION: u16 = 1;
const REMOVE: u8 = 0;
const PUT: u8 = 1;

/// What a key belongs to. The numbers are those on disk: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Table {
    /// Operations begun: name → intent, step, ID.
    Intents = 1,
    /// What this node has: object → device, staging paths, targets.
    Node = 2,
    /// Devices whose formatting began: a half-made file system must not be taken for somebody's data.
    Formats = 3,
}

impl Table {
    /// Every table, in the order of their numbers.
    pub const ALL: [Table; 3] = [Table::Intents, Table::Node, Table::Formats];

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|table| *table as u8 == number)
    }
}

/// One change of one key. All changes of one call take effect together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The table that holds the key.
    pub table: Table,
    /// At most 65 535 bytes.
    pub key: String,
    /// The new value; `None` removes the key. Never put a secret here: it would lie on a disk.
    pub value: Option<Vec<u8>>,
}

impl Change {
    /// Sets `key` to `value`.
    pub fn put(table: Table, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        Self { table, key: key.into(), value: Some(value.into()) }
    }

    /// Removes `key`; a missing one stays missing.
    pub fn remove(table: Table, key: impl Into<String>) -> Self {
        Self { table, key: key.into(), value: None }
    }
}

/// A change as it lies in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeRef<'a> {
    pub(super) table: Table,
    pub(super) key: &'a str,
    pub(super) value: Option<&'a [u8]>,
}

/// Why bytes could not be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// The bytes are not what was written.
    Damaged(&'static str),
    /// The bytes are whole, but this version does not know what they mean.
    Newer,
}

/// The two kinds of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    Segment = 1,
    Snapshot = 2,
}

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) kind: FileKind,
    pub(super) number: u64,
    pub(super) first: u64,
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(&FILE_MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[12..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        seal(&mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let bytes = sealed(bytes)?;
        if bytes[..8] != FILE_MAGIC {
            return Err(Bad::Damaged("not a journal file"));
        }
        let kind = match (u16_at(bytes, 8), u16_at(bytes, 10)) {
            (VERSION, 1) => FileKind::Segment,
            (VERSION, 2) => FileKind::Snapshot,
            _ => return Err(Bad::Newer),
        };
        Ok(Self { kind, number: u64_at(bytes, 12), first: u64_at(bytes, 20) })
    }
}

/// The beginning of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) length: usize,
    pub(super) sequence: u64,
    pub(super) synced: u64,
    checksum: u32,
}

impl RecordHeader {
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, Bad> {
        let bytes = sealed(bytes)?;
        let length = u32_at(bytes, 4) as usize;
        if bytes[..4] != RECORD_MAGIC || length > MAX_PAYLOAD {
            return Err(Bad::Damaged("not a record"));
        }
        Ok(Self {
            length,
            sequence: u64_at(bytes, 8),
            synced: u64_at(bytes, 16),
            checksum: u32_at(bytes, 24),
        })
    }

    /// Header and payload together, bytes.
    pub(super) fn total(&self) -> usize {
        RECORD_HEADER + self.length
    }

    pub(super) fn matches(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && crc32fast::hash(payload) == self.checksum
    }
}

/// A record being made: changes are added, then it is sealed with its numbers.
#[derive(Debug)]
pub(super) struct LogRecord(Vec<u8>);

impl LogRecord {
    pub(super) fn empty() -> Self {
        Self(vec![0; RECORD_HEADER])
    }

    /// A record of all `changes`. Fails with [`crate::error::Kind::Internal`] if a key or the whole is too
    /// long.
    pub(super) fn of(changes: &[Change]) -> Result<Self> {
        let size: usize =
            changes.iter().map(|c| CHANGE_HEADER + c.key.len() + c.value.as_ref().map_or(0, Vec::len)).sum();
        let longest_key = changes.iter().map(|c| c.key.len()).max().unwrap_or(0);
        if size > MAX_PAYLOAD || longest_key > MAX_KEY {
            return Err(Error::internal(format!(
                "too long for the journal: {size} bytes in all, {longest_key} in a key; the limits are \
                 {MAX_PAYLOAD} and {MAX_KEY}"
            )));
        }
        let mut record = Self(Vec::with_capacity(RECORD_HEADER + size));
        record.clear();
        for Change { table, key, value } in changes {
            record.add(ChangeRef { table: *table, key, value: value.as_deref() });
        }
        Ok(record)
    }

    /// Adds a change whose key and value are within the limits.
    pub(super) fn add(&mut self, change: ChangeRef<'_>) {
        let value = change.value.unwrap_or_default();
        self.0.extend([change.table as u8, if change.value.is_some() { PUT } else { REMOVE }]);
        self.0.extend((change.key.len() as u16).to_le_bytes());
        self.0.extend((value.len() as u32).to_le_bytes());
        self.0.extend(change.key.as_bytes());
        self.0.extend(value);
    }

    /// Whether both records change the same key.
    pub(super) fn shares_key(&self, other: &Self) -> bool {
        let keys = |record| changes(record).flatten().map(|change| (change.table, change.key));
        keys(self.payload()).any(|key| keys(other.payload()).any(|other| key == other))
    }

    pub(super) fn payload(&self) -> &[u8] {
        &self.0[RECORD_HEADER..]
    }

    /// Fills in the header and gives the bytes to write.
    pub(super) fn seal(&mut self, sequence: u64, synced: u64) -> &[u8] {
        let (header, payload) = self.0.split_at_mut(RECORD_HEADER);
        header[..4].copy_from_slice(&RECORD_MAGIC);
        header[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&sequence.to_le_bytes());
        header[16..24].copy_from_slice(&synced.to_le_bytes());
        header[24..28].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        seal(header);
        &self.0
    }

    /// Takes all changes out again; the memory is kept.
    pub(super) fn clear(&mut self) {
        self.0.resize(RECORD_HEADER, 0);
    }
}

/// The changes in a payload, one after the other. After an error it ends.
pub(super) fn changes(payload: &[u8]) -> impl Iterator<Item = Result<ChangeRef<'_>, Bad>> {
    let mut rest = payload;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let change = split_change(rest);
        rest = change.as_ref().map_or(&[], |(_, rest)| rest);
        Some(change.map(|(change, _)| change))
    })
}

/// The first change of `bytes` and what follows it.
fn split_change(bytes: &[u8]) -> Result<(ChangeRef<'_>, &[u8]), Bad> {
    const SHORT: Bad = Bad::Damaged("a change ends too early");
    let (header, rest) = bytes.split_at_checked(CHANGE_HEADER).ok_or(SHORT)?;
    let (key, rest) = rest.split_at_checked(usize::from(u16_at(header, 2))).ok_or(SHORT)?;
    let (value, rest) = rest.split_at_checked(u32_at(header, 4) as usize).ok_or(SHORT)?;
    let table = Table::from_number(header[0]).ok_or(Bad::Newer)?;
    let key = std::str::from_utf8(key).map_err(|_| Bad::Damaged("a key is not UTF-8"))?;
    let value = match header[1] {
        PUT => Some(value),
        REMOVE => None,
        _ => return Err(Bad::Newer),
    };
    Ok((ChangeRef { table, key, value }, rest))
}

/// Puts the checksum of all that stands before it into the last four bytes.
fn seal(header: &mut [u8]) {
    let (body, checksum) = header.split_at_mut(header.len() - 4);
    checksum.copy_from_slice(&crc32fast::hash(body).to_le_bytes());
}

/// The header, if it is whole and its checksum holds.
fn sealed(header: &[u8]) -> Result<&[u8], Bad> {
    if header.len() != FILE_HEADER {
        return Err(Bad::Damaged("incomplete header"));
    }
    let body = &header[..FILE_HEADER - 4];
    if crc32fast::hash(body) == u32_at(header, FILE_HEADER - 4) {
        Ok(body)
    } else {
        Err(Bad::Damaged("wrong header checksum"))
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let written = [
            Change::put(Table::Intents, "csi-vol-1", "creating"),
            Change::put(Table::Node, "", ""),
            Change::remove(Table::Formats, "größe"),
        ];
        let mut record = LogRecord::of(&written).unwrap();
        let bytes = record.seal(7, 5).to_vec();
        let header = RecordHeader::decode(&bytes[..RECORD_HEADER]).unwrap();
        assert_eq!((header.sequence, header.synced, header.total()), (7, 5, bytes.len()));
        assert!(header.matches(&bytes[RECORD_HEADER..]));
        let read: Vec<Change> = changes(record.payload())
            .map(|change| change.unwrap())
            .map(|c| Change { table: c.table, key: c.key.into(), value: c.value.map(Into::into) })
            .collect();
        assert_eq!(read, written);
    }

    #[test]
    fn no_changed_bit_of_a_header_goes_unseen() {
        let mut record = LogRecord::of(&[Change::put(Table::Node, "k", "v")]).unwrap();
        let bytes = record.seal(1, 0).to_vec();
        let file = FileHeader { kind: FileKind::Segment, number: 3, first: 9 };
        assert_eq!(FileHeader::decode(&file.encode()), Ok(file));
        for bit in 0..RECORD_HEADER * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordHeader::decode(&flipped[..RECORD_HEADER]).is_err(), "record header, bit {bit}");
            let mut flipped = file.encode();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(FileHeader::decode(&flipped), Err(Bad::Damaged(_))), "file header, bit {bit}");
        }
    }

    #[test]
    fn what_a_later_version_wrote_is_told_from_damage() {
        let mut header = FileHeader { kind: FileKind::Snapshot, number: 1, first: 1 }.encode();
        header[8] = 2;
        seal(&mut header);
        assert_eq!(FileHeader::decode(&header), Err(Bad::Newer));
        let record = LogRecord::of(&[Change::put(Table::Node, "k", "v")]).unwrap();
        for (place, value) in [(0, 4), (1, 2)] {
            let mut payload = record.payload().to_vec();
            payload[place] = value;
            assert_eq!(changes(&payload).next(), Some(Err(Bad::Newer)));
        }
    }

    #[test]
    fn a_payload_cut_anywhere_is_an_error_and_never_a_panic() {
        let record = LogRecord::of(&[Change::put(Table::Node, "key", "value")]).unwrap();
        for length in 1..record.payload().len() {
            let read: Vec<_> = changes(&record.payload()[..length]).collect();
            assert_eq!(read, [Err(Bad::Damaged("a change ends too early"))], "length {length}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long_key = "k".repeat(1 << 16);
        assert!(LogRecord::of(&[Change::remove(Table::Node, long_key)]).is_err());
        assert!(LogRecord::of(&[Change::put(Table::Node, "k", vec![0; MAX_PAYLOAD])]).is_err());
    }
}
