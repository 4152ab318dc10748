//! What a command prints: text for people or JSON for programs, and remarks on the side.

use serde::Serialize;
use serde_json::Value;

/// The units of sizes, from the largest.
const UNITS: [(&str, u64); 5] =
    [("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

/// The outcome of a command.
#[derive(Debug)]
pub struct Report {
    /// For people; empty if there is nothing to say.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// Remarks for people, on stderr.
    pub notes: Vec<String>,
    /// Advice, on stderr if that is a terminal.
    pub hint: Option<String>,
    /// The exit status: not 0 if a part is missing.
    pub status: u8,
}

impl Report {
    /// A report of `text` for people and `data` for programs.
    pub fn new(text: impl Into<String>, data: &impl Serialize) -> Self {
        // Only maps with keys other than text do not become JSON, and cephlet has none.
        let json = serde_json::to_value(data).unwrap_or_default();
        Self { text: text.into(), json, notes: Vec::new(), hint: None, status: 0 }
    }

    /// The same report with a remark.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// What goes to stdout.
    pub fn rendered(&self, json: bool) -> String {
        match json {
            true => format!("{:#}\n", self.json),
            false if self.text.is_empty() => String::new(),
            false => format!("{}\n", self.text.trim_end_matches('\n')),
        }
    }
}

/// Rows below a header, aligned. Nothing at all if there are no rows.
pub fn table(header: &[&str], rows: &[impl AsRef<[String]>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let header: Vec<String> = header.iter().map(ToString::to_string).collect();
    let lines = || std::iter::once(header.as_slice()).chain(rows.iter().map(AsRef::as_ref));
    let width = |column| {
        lines().filter_map(|row| row.get(column)).map(|cell: &String| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    lines().map(|row| aligned(row, &widths)).collect::<Vec<_>>().join("\n")
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_string()
}

/// Names and values, one pair a line, the values aligned. Pairs without a value are left out.
pub fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
    let present = pairs.iter().filter(|(_, value)| !value.is_empty());
    let lines = present.map(|(name, value)| format!("{:width$}  {value}", format!("{name}:")));
    lines.collect::<Vec<_>>().join("\n")
}

/// A size for people: exact where it is a whole number of a unit, else with one digit behind the point,
/// rounded down.
pub fn human(bytes: i64) -> String {
    let Ok(size) = u64::try_from(bytes) else { return bytes.to_string() };
    match UNITS.iter().find(|(_, unit)| size >= *unit) {
        None => format!("{size} B"),
        Some((name, unit)) if size.is_multiple_of(*unit) => format!("{} {name}", size / unit),
        Some((name, unit)) => format!("{}.{} {name}", size / unit, size % unit * 10 / unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(cells: [&str; 3]) -> [String; 3] {
        cells.map(str::to_string)
    }

    #[test]
    fn tables_are_aligned_and_have_no_blanks_at_the_end() {
        let rows = [row(["local:n::v1:a", "1 GiB", ""]), row(["x", "10.5 GiB", "here"])];
        assert_eq!(
            table(&["ID", "SIZE", "PUBLISHED"], &rows),
            "ID             SIZE      PUBLISHED\n\
             local:n::v1:a  1 GiB\n\
             x              10.5 GiB  here"
        );
    }

    #[test]
    fn a_table_without_rows_is_nothing() {
        assert_eq!(table(&["ID"], &Vec::<[String; 1]>::new()), "");
    }

    #[test]
    fn fields_are_aligned_and_empty_ones_left_out() {
        let pairs = [("id", "x".to_string()), ("source", String::new()), ("published", "n1".to_string())];
        assert_eq!(fields(&pairs), "id:         x\npublished:  n1");
    }

    #[test]
    fn sizes_for_people_are_never_larger_than_they_are() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) - 1, "9.9 GiB"),
            (i64::MAX, "8191.9 PiB"),
            (-1, "-1"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn a_report_is_text_or_json() {
        let report = Report::new("one", &json!({"id": "x"}));
        assert_eq!(report.rendered(false), "one\n");
        assert_eq!(report.rendered(true), "{\n  \"id\": \"x\"\n}\n");
        assert_eq!(Report::new("", &json!([])).rendered(false), "");
        assert_eq!(Report::new("", &json!([])).rendered(true), "[]\n");
    }
}
