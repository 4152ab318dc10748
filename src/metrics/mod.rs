//! Numbers about this daemon, in a file that the node exporter of Prometheus reads (CEPHLET_METRICS).
//!
//! There is one set of numbers in a process, as there is one log. Until [`start`]
//! nothing is counted. What can be read at any time is not counted, but read when the file is written.
//!
//! The file shows the state of a daemon that runs: a daemon that stops removes it.

mod file;
mod pace;
mod samples;
mod table;

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use self::file::File;
use self::pace::Pace;

pub use self::samples::Samples;
pub use self::table::*;

/// How long the end of the writer is waited for. Its directory may hang.
const END: Duration = Duration::from_secs(2);

static NUMBERS: OnceLock<Numbers> = OnceLock::new();

#[derive(Default)]
struct Numbers {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    samples: Samples,
    changes: u64,
    /// The writer waits for a change, however long that takes.
    is_idle: bool,
    has_stopped: bool,
}

/// Counts one more.
pub fn count(metric: &Metric, labels: &[&str]) {
    change(|samples| samples.add(metric, labels));
}

/// Counts how long something took.
pub fn observe(metric: &Metric, labels: &[&str], took: Duration) {
    change(|samples| samples.observe(metric, labels, took));
}

/// Sets a number that stays until it is set again.
pub fn set(metric: &Metric, labels: &[&str], value: u64) {
    change(|samples| samples.set(metric, labels, value));
}

/// Something has changed that is read when the file is written.
pub fn touch() {
    change(|_| ());
}

fn change(what: impl FnOnce(&mut Samples)) {
    if let Some(numbers) = NUMBERS.get() {
        numbers.change(|state| what(&mut state.samples));
    }
}

impl Numbers {
    fn change(&self, what: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        what(&mut state);
        state.changes += 1;
        if state.is_idle || state.has_stopped {
            self.wake.notify_one();
        }
    }

    /// The numbers, once they are due to be written; None at the stop.
    fn next(&self, pace: &mut Pace) -> Option<Samples> {
        let mut state = self.state.lock();
        while !state.has_stopped {
            match pace.wait(Instant::now(), state.changes) {
                Some(Duration::ZERO) => {
                    pace.last = Some((Instant::now(), state.changes));
                    return Some(state.samples.clone());
                }
                Some(left) => drop(self.wake.wait_for(&mut state, left)),
                None => {
                    state.is_idle = true;
                    self.wake.wait(&mut state);
                    state.is_idle = false;
                }
            }
        }
        None
    }
}

/// The thread that writes the file. Dropped, it removes the file and ends.
pub struct Writer {
    numbers: &'static Numbers,
    ended: Receiver<()>,
}

/// Counts from now on, and starts the thread that writes the file. `look` adds what is read when the file is
/// written, and tells whether something is under way that may change it: then it is called again, although
/// nothing was counted.
///
/// # Errors
/// No thread is available. A file that cannot be written is a warning in the log.
pub fn start(path: &Path, mut look: impl FnMut(&mut Samples) -> bool + Send + 'static) -> io::Result<Writer> {
    let numbers = NUMBERS.get_or_init(Numbers::default);
    let (end, ended) = channel();
    let (mut file, mut pace) = (File::new(path), Pace::default());
    thread::Builder::new().name("metrics".into()).stack_size(256 << 10).spawn(move || {
        while let Some(mut samples) = numbers.next(&mut pace) {
            let is_under_way = look(&mut samples);
            // A directory may be made, or have room again, while nothing else happens.
            pace.is_restless = !file.write(samples.text()) || is_under_way;
        }
        file.remove();
        drop(end);
    })?;
    Ok(Writer { numbers, ended })
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.numbers.change(|state| state.has_stopped = true);
        // The thread sends nothing: its end of the channel goes with it.
        if self.ended.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
            log::warn!("the file of CEPHLET_METRICS is left as it is: its directory does not answer");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The thread of a writer, without a file: it takes the numbers when they are due.
    #[test]
    fn a_change_wakes_the_writer_and_a_stop_ends_it() {
        let numbers = Numbers::default();
        let (taken, takes) = channel();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (taken, mut pace) = (taken, Pace::default());
                while let Some(samples) = numbers.next(&mut pace) {
                    taken.send(samples.text()).unwrap();
                    // As if it was long ago.
                    pace.last =
                        pace.last.map(|(at, changes)| (at.checked_sub(END * 10).unwrap_or(at), changes));
                }
            });
            assert!(!takes.recv().unwrap().contains("cephlet_fences"), "written at once");
            numbers.change(|state| state.samples.set(&FENCES, &["main"], 3));
            assert!(takes.recv().unwrap().contains("cephlet_fences{cluster=\"main\"} 3\n"));
            while !numbers.state.lock().is_idle {
                thread::yield_now();
            }
            assert!(takes.try_recv().is_err(), "nothing has changed");
            numbers.change(|state| state.has_stopped = true);
            assert!(takes.recv().is_err());
        });
    }
}
