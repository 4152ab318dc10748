//! What a daemon writes to stderr, line by line, with the possibility to wait for a line.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// The log of a daemon over all its lives. Clones are the same log.
#[derive(Clone, Default)]
pub struct Log(Arc<(Mutex<Vec<String>>, Condvar)>);

impl Log {
    /// Reads `stream` into the log until it ends.
    pub fn follow(&self, stream: impl Read + Send + 'static) -> thread::JoinHandle<()> {
        let this = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n') {
                let Ok(line) = line else { return };
                this.push(String::from_utf8_lossy(&line).into_owned());
            }
        })
    }

    fn push(&self, line: String) {
        // Printed at once: a test that is ended at its time limit prints nothing any more.
        if line.contains(" panicked at ") {
            eprintln!("UNSAFE: a daemon: {line}");
        }
        let (lines, grown) = &*self.0;
        lines.lock().expect("no reader panicked").push(line);
        grown.notify_all();
    }

    /// Everything so far.
    pub fn text(&self) -> String {
        self.0.0.lock().expect("no reader panicked").join("\n")
    }

    /// How many lines there are so far.
    pub fn len(&self) -> usize {
        self.0.0.lock().expect("no reader panicked").len()
    }

    /// The lines behind the first `count`.
    pub fn after(&self, count: usize) -> Vec<String> {
        self.0.0.lock().expect("no reader panicked")[count..].to_vec()
    }

    /// All lines so far that contain `part`, but for reminders of calls that are still running.
    pub fn lines_with(&self, part: &str) -> Vec<String> {
        let lines = self.0.0.lock().expect("no reader panicked");
        lines.iter().filter(|line| is_about(line, part)).cloned().collect()
    }

    /// Waits until there are `count` of [`Self::lines_with`] it; gives them.
    pub fn await_lines(&self, part: &str, count: usize) -> Vec<String> {
        self.await_lines_within(PATIENCE, part, count)
    }

    /// The same with another timeout.
    pub fn await_lines_within(&self, time: Duration, part: &str, count: usize) -> Vec<String> {
        let (lines, grown) = &*self.0;
        let found = |lines: &Vec<String>| lines.iter().filter(|line| is_about(line, part)).count() >= count;
        let end = Instant::now() + time;
        let mut held = lines.lock().expect("no reader panicked");
        while !found(&held) {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{part:?} was not logged {count} times:\n{}", held.join("\n"));
            held = grown.wait_timeout(held, left).expect("no reader panicked").0;
        }
        held.iter().filter(|line| is_about(line, part)).cloned().collect()
    }
}

/// Whether a line contains this and is no reminder of a slow call, which may come at any time.
fn is_about(line: &str, part: &str) -> bool {
    line.contains(part) && !line.contains(" still running after ")
}
