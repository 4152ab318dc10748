//! The calls in progress: one log line for each when it ends, and another for one that is still running after a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use log::Level;
use parking_lot::{Condvar, Mutex};

use crate::call::Progress;
use crate::error::Error;
use crate::grpc::status;

/// A call that runs longer than this is logged with the step it is in, again and again.
const SLOW: Duration = Duration::from_secs(30);

/// Rpcs asked so often that a success is not worth a line at the usual level.
const CHATTY: [&str; 3] = ["/Probe", "Capabilities", "/NodeGetInfo"];

/// The calls in progress.
#[derive(Debug, Default)]
pub struct Running {
    calls: Mutex<BTreeMap<u64, Progress>>,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Running {
    /// A call came in.
    pub fn began(&self, call: &Progress) {
        self.calls.lock().insert(call.id(), call.clone());
    }

    /// A call was answered. Its line in the log: number, method, volume, outcome, milliseconds.
    pub fn ended(&self, call: &Progress, outcome: Result<(), &Error>) {
        self.calls.lock().remove(&call.id());
        let (id, method, subject) = (call.id(), call.method(), call.subject());
        let milliseconds = call.age().as_secs_f64() * 1000.0;
        match outcome {
            Ok(()) if CHATTY.iter().any(|chatty| method.ends_with(chatty)) => {
                log::debug!("{id} {method} {subject} OK {milliseconds:.1} ms");
            }
            Ok(()) => log::info!("{id} {method} {subject} OK {milliseconds:.1} ms"),
            Err(error) => {
                let level = if error.kind() == crate::error::Kind::Internal { Level::Error } else { Level::Warn };
                log::log!(level, "{id} {method} {subject} {} {milliseconds:.1} ms: {error}", status::name(error.kind()));
            }
        }
    }

    /// How many calls are in progress.
    pub fn len(&self) -> usize {
        self.calls.lock().len()
    }

    /// Whether no call is in progress.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts the thread that reports slow calls; it ends at [`Running::stop`].
    pub fn watch(self: &Arc<Self>) -> std::io::Result<thread::JoinHandle<()>> {
        let running = Arc::clone(self);
        thread::Builder::new().name("slow-calls".into()).stack_size(64 * 1024).spawn(move || {
            let mut stopped = running.stopped.lock();
            while !*stopped {
                running.wake.wait_for(&mut stopped, SLOW);
                running.report();
            }
        })
    }

    /// Ends the watching thread.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    fn report(&self) {
        let slow: Vec<Progress> = self.calls.lock().values().filter(|call| call.age() >= SLOW).cloned().collect();
        for call in slow {
            let (step, since) = call.current_step();
            let (id, method, subject) = (call.id(), call.method(), call.subject());
            log::warn!(
                "{id} {method} {subject} still running after {} s: {step} for {} s",
                call.age().as_secs(),
                since.as_secs()
            );
        }
    }
}
