//! Signals become events. SIGTERM and SIGINT: stop, in order; the second one: exit at once. SIGHUP: read the clusters again.

use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use libc::c_int;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::error::{Error, Result};

/// Events that wait to be taken: one reload, as another tells nothing new, and the stop that comes once.
const QUEUE: usize = 2;

const STACK: usize = 128 * 1024;

/// What the daemon is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Finish what was begun, then end.
    Stop,
    /// Read again what may change while the daemon runs.
    Reload,
}

/// Takes over the signals and starts the thread that waits for them. To be called before any other thread is started and before
/// anything is done that a signal must not cut short.
pub fn listen() -> Result<Receiver<Event>> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|cause| Error::io("take over the signals", &cause))?;
    let (events, receiver) = bounded(QUEUE);
    let thread = thread::Builder::new().name("signals".into()).stack_size(STACK);
    thread.spawn(move || serve(signals, &events)).map_err(|cause| Error::io("start the thread for signals", &cause))?;
    Ok(receiver)
}

/// What follows from a signal.
#[derive(Debug, PartialEq, Eq)]
enum Reaction {
    Tell(Event),
    /// End the process with this status.
    Exit(c_int),
}

fn serve(mut signals: Signals, events: &Sender<Event>) {
    let mut stopping = false;
    for signal in signals.forever() {
        match react(signal, &mut stopping) {
            Reaction::Tell(event) => {
                log::info!("{}: {event:?}", low_level::signal_name(signal).unwrap_or("signal"));
                if event == Event::Stop || events.is_empty() {
                    // There is room; it fails only when nobody listens any more.
                    let _ = events.try_send(event);
                }
            }
            Reaction::Exit(status) => {
                log::warn!("asked to stop a second time: exiting at once; unfinished calls are taken up at the next start");
                low_level::exit(status);
            }
        }
    }
}

/// The second request to stop ends the process the way a shell would report the signal.
fn react(signal: c_int, stopping: &mut bool) -> Reaction {
    if signal == SIGHUP {
        return Reaction::Tell(Event::Reload);
    }
    if *stopping {
        return Reaction::Exit(128 + signal);
    }
    *stopping = true;
    Reaction::Tell(Event::Stop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_first_request_stops_and_the_second_exits() {
        let mut stopping = false;
        assert_eq!(react(SIGHUP, &mut stopping), Reaction::Tell(Event::Reload));
        assert_eq!(react(SIGTERM, &mut stopping), Reaction::Tell(Event::Stop));
        assert_eq!(react(SIGHUP, &mut stopping), Reaction::Tell(Event::Reload));
        assert_eq!(react(SIGINT, &mut stopping), Reaction::Exit(130));
        assert_eq!(react(SIGTERM, &mut stopping), Reaction::Exit(143));
    }

    #[test]
    fn signals_arrive_as_events() {
        let events = listen().unwrap();
        for (signal, event) in [(SIGHUP, Event::Reload), (SIGTERM, Event::Stop), (SIGHUP, Event::Reload)] {
            low_level::raise(signal).unwrap();
            assert_eq!(events.recv_timeout(Duration::from_secs(20)), Ok(event));
        }
    }
}
