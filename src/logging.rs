//! The log: lines on standard error. The journal has its own clock and expects a priority (sd-daemon(3)); a
//! line for any other reader begins with the time in UTC and the level's name.

use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use log::{Level, Record};

use crate::clock;

/// Starts logging what `filter` (env_logger's syntax, already checked) lets through. `journal` is the stream
/// that leads to the journal, if a service manager names one.
pub fn start(filter: &str, journal: Option<&Path>) {
    let format = if journal.is_some_and(is_standard_error) { journal_line } else { plain_line };
    env_logger::Builder::new()
        .parse_filters(filter)
        .format(move |out, record| writeln!(out, "{}", format(record)))
        .init();
    log_panics();
}

/// Logs every panic with its place and its thread, before the code that catches it goes on.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        log::error!("a defect of cephlet: thread \"{}\" {panic}", thread.name().unwrap_or("without a name"));
    }));
}

/// Whether standard error is the stream `device:inode` (systemd.exec(5), $JOURNAL_STREAM). The variable alone
/// is no proof: a task of a Nomad agent inherits the agent's variable, but its own output goes to a file.
fn is_standard_error(stream: &Path) -> bool {
    let stat = rustix::fs::fstat(std::io::stderr());
    stat.is_ok_and(|stat| stream.as_os_str() == format!("{}:{}", stat.st_dev, stat.st_ino).as_str())
}

fn plain_line(record: &Record<'_>) -> String {
    format!("{} {:<5} {}", clock::rfc3339(SystemTime::now()), record.level(), one_line(record))
}

/// The message on one line. Text from a tool or a client must not look like a log line of cephlet.
fn one_line(record: &Record<'_>) -> String {
    let text = record.args().to_string();
    if text.contains(char::is_control) { text.chars().flat_map(visible).collect() } else { text }
}

fn visible(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let plain = (!letter.is_control()).then_some(letter);
    escaped.into_iter().flatten().chain(plain)
}

fn journal_line(record: &Record<'_>) -> String {
    let priority = match record.level() {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    format!("<{priority}>{}", one_line(record))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_stream_that_standard_error_is_leads_to_the_journal() {
        use std::os::unix::fs::MetadataExt;
        let stderr = std::fs::metadata("/proc/self/fd/2").expect("standard error is open");
        assert!(is_standard_error(Path::new(&format!("{}:{}", stderr.dev(), stderr.ino()))));
        assert!(!is_standard_error(Path::new(&format!("{}:{}", stderr.dev(), stderr.ino() + 1))));
    }

    #[test]
    fn a_message_stays_on_its_line() {
        let line = journal_line(
            &Record::builder().level(Level::Info).args(format_args!("a\n<0>b\u{1b}[31m")).build(),
        );
        assert_eq!(line, "<6>a\\n<0>b\\u{1b}[31m");
    }

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
