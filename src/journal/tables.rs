//! The journal's content in memory: an ordered set of entries per table, kept as small as the content allows.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use super::format::{self, Bad, CHANGE_HEADER, ChangeRef, LogRecord, Table};

/// A key and its value in one piece of memory: the allocator rounds up to powers of two, so two pieces would
/// take half as much again. The length of the key stands in front.
struct Entry(Box<[u8]>);

/// All tables, and how many bytes they would take on disk.
#[derive(Default)]
pub(super) struct Tables {
    tables: [BTreeSet<Entry>; Table::ALL.len()],
    bytes: u64,
}

/// Where a walk over all tables stands: the table and the last key seen.
#[derive(Default)]
pub(super) struct Position {
    table: usize,
    after: Option<Box<[u8]>>,
}

impl Entry {
    /// The key has passed the limits of the format.
    fn new(key: &str, value: &[u8]) -> Self {
        Self([&(key.len() as u16).to_ne_bytes(), key.as_bytes(), value].concat().into())
    }

    fn split(&self) -> (&[u8], &[u8]) {
        self.0[2..].split_at(usize::from(u16::from_ne_bytes([self.0[0], self.0[1]])))
    }

    /// What came in as a str goes out as one.
    fn key(&self) -> &str {
        std::str::from_utf8(self.split().0).unwrap_or_default()
    }

    /// What it takes in a snapshot, bytes.
    fn size(&self) -> u64 {
        (CHANGE_HEADER + self.0.len() - 2) as u64
    }
}

impl Borrow<[u8]> for Entry {
    fn borrow(&self) -> &[u8] {
        self.split().0
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.split().0.cmp(other.split().0)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl Tables {
    pub(super) fn get(&self, table: Table, key: &str) -> Option<&[u8]> {
        self.table(table).get(key.as_bytes()).map(|entry| entry.split().1)
    }

    /// The entries of a table, in the order of the keys.
    pub(super) fn entries(&self, table: Table) -> impl Iterator<Item = (&str, &[u8])> {
        self.table(table).iter().map(|entry| (entry.key(), entry.split().1))
    }

    pub(super) fn len(&self, table: Table) -> usize {
        self.table(table).len()
    }

    /// What a snapshot of everything would take, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies all changes of a record.
    pub(super) fn apply(&mut self, payload: &[u8]) -> Result<(), Bad> {
        format::changes(payload).try_for_each(|change| change.map(|change| self.apply_one(change)))
    }

    fn apply_one(&mut self, change: ChangeRef<'_>) {
        let table = &mut self.tables[change.table as usize - 1];
        let old = match change.value {
            Some(value) => {
                let entry = Entry::new(change.key, value);
                self.bytes += entry.size();
                table.replace(entry)
            }
            None => table.take(change.key.as_bytes()),
        };
        self.bytes -= old.map_or(0, |old| old.size());
    }

    /// Adds entries behind `position` to `record` until it holds `size` bytes, and moves on. False when
    /// nothing was left.
    pub(super) fn copy_some(&self, position: &mut Position, record: &mut LogRecord, size: usize) -> bool {
        while let Some(table) = self.tables.get(position.table) {
            let from = position.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            for entry in table.range::<[u8], _>((from, Bound::Unbounded)) {
                let (key, value) = entry.split();
                record.add(ChangeRef {
                    table: Table::ALL[position.table],
                    key: entry.key(),
                    value: Some(value),
                });
                if record.payload().len() >= size {
                    position.after = Some(key.into());
                    return true;
                }
            }
            *position = Position { table: position.table + 1, after: None };
        }
        !record.payload().is_empty()
    }

    fn table(&self, table: Table) -> &BTreeSet<Entry> {
        &self.tables[table as usize - 1]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::format::Change;
    use super::*;

    fn tables(changes: &[Change]) -> Tables {
        let mut tables = Tables::default();
        tables.apply(LogRecord::of(changes).unwrap().payload()).unwrap();
        tables
    }

    #[test]
    fn the_size_follows_every_change() {
        let mut tables =
            tables(&[Change::put(Table::Node, "key", "value"), Change::put(Table::Formats, "key", "")]);
        assert_eq!(tables.bytes(), 16 + 11);
        tables.apply(LogRecord::of(&[Change::put(Table::Node, "key", "v")]).unwrap().payload()).unwrap();
        assert_eq!(tables.bytes(), 12 + 11);
        let all = [
            Change::remove(Table::Node, "key"),
            Change::remove(Table::Formats, "key"),
            Change::remove(Table::Node, "?"),
        ];
        tables.apply(LogRecord::of(&all).unwrap().payload()).unwrap();
        assert_eq!(tables.bytes(), 0);
    }

    #[test]
    fn a_walk_in_small_steps_sees_every_entry_once() {
        let changes: Vec<_> =
            (0..30).map(|n| Change::put(Table::ALL[n % 3], format!("key {n:02}"), vec![7; n])).collect();
        let original = tables(&changes);
        for size in [1, 40, 1 << 20] {
            let (mut copy, mut position) = (Tables::default(), Position::default());
            let mut record = LogRecord::empty();
            let mut copied = 0;
            while original.copy_some(&mut position, &mut record, size) {
                copied += format::changes(record.payload()).count();
                copy.apply(record.payload()).unwrap();
                record.clear();
            }
            assert_eq!((copied, copy.bytes()), (30, original.bytes()), "steps of {size} bytes");
            assert!(Table::ALL.into_iter().all(|table| copy.entries(table).eq(original.entries(table))));
        }
    }
}
