//! The log: lines on standard error. The journal has its own clock and wants a priority (sd-daemon(3)); everybody else gets the
//! time in UTC and the level's name.

use std::io::Write;
use std::time::SystemTime;

use log::{Level, Record};

use crate::clock;

/// Starts logging what `filter` (env_logger's syntax, already checked) lets through.
pub fn start(filter: &str, to_journal: bool) {
    let format = if to_journal { journal_line } else { plain_line };
    env_logger::Builder::new().parse_filters(filter).format(move |out, record| writeln!(out, "{}", format(record))).init();
}

fn plain_line(record: &Record<'_>) -> String {
    format!("{} {:<5} {}", clock::rfc3339(SystemTime::now()), record.level(), record.args())
}

fn journal_line(record: &Record<'_>) -> String {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    format!("<{priority}>{}", record.args())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journal_gets_priorities_and_others_get_the_time() {
        let line = |format: fn(&Record<'_>) -> String| {
            format(&Record::builder().level(Level::Warn).args(format_args!("volume x: gone")).build())
        };
        assert_eq!(line(journal_line), "<4>volume x: gone");
        let plain = line(plain_line);
        assert!(plain.starts_with("20") && plain.ends_with("Z WARN  volume x: gone"), "{plain}");
    }
}
