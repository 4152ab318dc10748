//! The journal's content in memory: an ordered map per table, kept as small as the content allows.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::format::{self, Bad, CHANGE_HEADER, ChangeRef, Record, Table};

type Map = BTreeMap<Box<str>, Box<[u8]>>;

/// All tables, and how many bytes they would take on disk.
#[derive(Debug, Default)]
pub(super) struct Tables {
    maps: [Map; Table::ALL.len()],
    bytes: u64,
}

/// Where a walk over all tables stands: the table and the last key seen.
#[derive(Debug, Default)]
pub(super) struct Position {
    table: usize,
    after: Option<Box<str>>,
}

impl Tables {
    pub(super) fn table(&self, table: Table) -> &Map {
        &self.maps[table as usize - 1]
    }

    /// What a snapshot of everything would take, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Applies all changes of a record.
    pub(super) fn apply(&mut self, payload: &[u8]) -> Result<(), Bad> {
        format::changes(payload).try_for_each(|change| Ok(self.apply_one(change?)))
    }

    fn apply_one(&mut self, change: ChangeRef<'_>) {
        let map = &mut self.maps[change.table as usize - 1];
        let size = |value: &[u8]| (CHANGE_HEADER + change.key.len() + value.len()) as u64;
        let old = match change.value {
            // The key's memory stays when only the value changes.
            Some(value) => match map.get_mut(change.key) {
                Some(place) => Some(std::mem::replace(place, value.into())),
                None => map.insert(change.key.into(), value.into()),
            },
            None => map.remove(change.key),
        };
        self.bytes += change.value.map_or(0, size);
        self.bytes -= old.as_deref().map_or(0, size);
    }

    /// Adds entries behind `position` to `record` until it holds `size` bytes, and moves on. False when nothing was left.
    pub(super) fn copy_some(&self, position: &mut Position, record: &mut Record, size: usize) -> bool {
        while let Some(map) = self.maps.get(position.table) {
            let from = position.after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            for (key, value) in map.range::<str, _>((from, Bound::Unbounded)) {
                record.add(ChangeRef { table: Table::ALL[position.table], key, value: Some(value) });
                if record.payload().len() >= size {
                    position.after = Some(key.clone());
                    return true;
                }
            }
            *position = Position { table: position.table + 1, after: None };
        }
        !record.payload().is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::format::Change;
    use super::*;

    fn tables(changes: &[Change]) -> Tables {
        let mut tables = Tables::default();
        tables.apply(Record::of(changes).unwrap().payload()).unwrap();
        tables
    }

    #[test]
    fn the_size_follows_every_change() {
        let mut tables = tables(&[Change::put(Table::Node, "key", "value"), Change::put(Table::Formats, "key", "")]);
        assert_eq!(tables.bytes(), 16 + 11);
        tables.apply(Record::of(&[Change::put(Table::Node, "key", "v")]).unwrap().payload()).unwrap();
        assert_eq!(tables.bytes(), 12 + 11);
        let all = [Change::remove(Table::Node, "key"), Change::remove(Table::Formats, "key"), Change::remove(Table::Node, "?")];
        tables.apply(Record::of(&all).unwrap().payload()).unwrap();
        assert_eq!(tables.bytes(), 0);
    }

    #[test]
    fn a_walk_in_small_steps_sees_every_entry_once() {
        let changes: Vec<_> = (0..30).map(|n| Change::put(Table::ALL[n % 3], format!("key {n:02}"), vec![7; n])).collect();
        let original = tables(&changes);
        for size in [1, 40, 1 << 20] {
            let (mut copy, mut position) = (Tables::default(), Position::default());
            let mut record = Record::empty();
            let mut copied = 0;
            while original.copy_some(&mut position, &mut record, size) {
                copied += format::changes(record.payload()).count();
                copy.apply(record.payload()).unwrap();
                record.clear();
            }
            assert_eq!((copied, copy.bytes()), (30, original.bytes()), "steps of {size} bytes");
            assert_eq!(copy.maps, original.maps);
        }
    }
}
