//! Signals and other reasons to end, as events in one queue.

use std::io;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator;

/// Something the daemon must react to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// End in good order (SIGTERM, SIGINT). A second one ends the process at once.
    Stop,
    /// Reload the files of clusters and topology (SIGHUP).
    Reload,
    /// The daemon cannot go on, for this reason: it could no longer keep what it acknowledges.
    Fatal(String),
}

/// The queue of events.
#[derive(Debug)]
pub struct Signals {
    events: Receiver<Event>,
    sender: EventSender,
}

/// Puts events into the queue from elsewhere.
#[derive(Clone, Debug)]
pub struct EventSender(Sender<Event>);

impl EventSender {
    /// Ends the daemon for this reason: it could no longer keep what it acknowledges.
    pub fn fatal(&self, reason: String) {
        // There is no receiver only when the daemon is ending anyway.
        let _ = self.0.send(Event::Fatal(reason));
    }
}

impl Signals {
    /// Takes the signals over. Call it before any other thread is started.
    pub fn register() -> io::Result<Self> {
        let (sender, events) = unbounded();
        let mut signals = iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let queue = sender.clone();
        thread::Builder::new().name("signals".into()).stack_size(64 * 1024).spawn(move || {
            let mut stopping = false;
            for signal in signals.forever() {
                let event = if signal == SIGHUP { Event::Reload } else { Event::Stop };
                if event == Event::Stop && stopping {
                    log::warn!("told to end a second time: ending at once; volumes stay mounted");
                    // The default action ends the process with the signal, so that the parent sees why.
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                stopping |= event == Event::Stop;
                let _ = queue.send(event);
            }
        })?;
        Ok(Self { events, sender: EventSender(sender) })
    }

    /// Waits for the next event; None if none comes within `time`.
    pub fn next_within(&self, time: Duration) -> Option<Event> {
        match self.events.recv_timeout(time) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
        }
    }

    /// A sender, for other sources of events.
    pub fn sender(&self) -> EventSender {
        self.sender.clone()
    }
}
