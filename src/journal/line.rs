//! The lines of the journal. No I/O here.
//!
//! ```text
//! {"journal":1}
//! LENGTH CRC32 {"TABLE":{"KEY":VALUE,…},…}
//! ```
//!
//! The first line is the version. Each later line is one call: LENGTH is the number of bytes of the JSON in
//! decimal, CRC32 their checksum (IEEE, 8 hexadecimal digits), null as a VALUE removes the KEY.

use serde_json::{Map, Value};

use super::{Change, Entries, Table, apply};

/// The first line.
pub(super) const HEADER: &str = "{\"journal\":1}\n";

/// Why a line cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// It is not what was written.
    Damaged,
    /// It is whole, and this version does not know what it means.
    Newer,
}

/// The line of these changes; the last change of a key counts. None if there are no changes.
pub(super) fn encode<'a>(changes: impl Iterator<Item = &'a Change>) -> Option<Vec<u8>> {
    let mut tables = Map::new();
    for Change { table, key, value } in changes {
        let entries = tables.entry(table.word()).or_insert_with(|| Value::Object(Map::new()));
        entries[key] = value.clone().unwrap_or(Value::Null);
    }
    if tables.is_empty() {
        return None;
    }
    let json = Value::Object(tables).to_string();
    Some(format!("{} {:08x} {json}\n", json.len(), crc32fast::hash(json.as_bytes())).into_bytes())
}

/// The header, and a line for each entry.
pub(super) fn encode_all(entries: &Entries) -> Vec<u8> {
    let mut lines = HEADER.as_bytes().to_vec();
    for ((table, key), value) in entries {
        let change = Change::put(*table, key.clone(), value.clone());
        lines.extend(encode([&change].into_iter()).unwrap_or_default());
    }
    lines
}

/// Applies a line, without its line end.
pub(super) fn replay(line: &[u8], entries: &mut Entries) -> Result<(), Bad> {
    let json = checked(line).ok_or(Bad::Damaged)?;
    let Ok(Value::Object(tables)) = serde_json::from_slice(json) else { return Err(Bad::Newer) };
    for (word, changed) in tables {
        let table = Table::ALL.into_iter().find(|table| table.word() == word).ok_or(Bad::Newer)?;
        let Value::Object(changed) = changed else { return Err(Bad::Newer) };
        let changes = changed.into_iter().map(|(key, value)| match value {
            Value::Null => Change::remove(table, key),
            value => Change::put(table, key, value),
        });
        apply(entries, &changes.collect::<Vec<_>>());
    }
    Ok(())
}

/// The JSON of a line that is whole.
fn checked(line: &[u8]) -> Option<&[u8]> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (length, checksum, json) = (parts.next()?, parts.next()?, parts.next()?);
    let number = |text: &[u8], radix| u32::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok();
    let is_whole =
        number(length, 10)? as usize == json.len() && number(checksum, 16)? == crc32fast::hash(json);
    is_whole.then_some(json)
}

/// Whether a whole line begins behind the first byte, even if the line end before it is damaged.
pub(super) fn has_whole_line(bytes: &[u8]) -> bool {
    (1..bytes.len()).any(|start| {
        let rest = &bytes[start..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        rest[0].is_ascii_digit() && end.is_some_and(|end| checked(&rest[..end]).is_some())
    })
}
