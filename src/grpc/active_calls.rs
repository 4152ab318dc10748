//! The calls in progress: one log line for each when it ends, and another for one that is still running after
//! a while.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use log::Level;
use parking_lot::{Condvar, Mutex};

use crate::dispatch::{Bulkhead, Progress};
use crate::error::Error;
use crate::grpc::status;
use crate::metrics;

/// A call that runs longer than this is logged with the step it is in, again and again.
const SLOW: Duration = Duration::from_secs(30);

/// Whether an rpc needs no storage. Such an rpc has a lane of its own, so that a cluster that hangs never
/// fails a health check. Health checks are frequent, so a success is logged at the debug level only.
pub fn is_quick(method: &str) -> bool {
    let quick = ["Probe", "GetCapabilities", "/NodeGetInfo", "/GetNodeID"];
    method.contains(".Identity/") || quick.iter().any(|end| method.ends_with(end))
}

/// The calls in progress.
#[derive(Debug)]
pub struct ActiveCalls {
    calls: Mutex<BTreeMap<u64, Watched>>,
    slow: Duration,
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// A call, when it came in, and how often it has been reported as slow.
#[derive(Debug)]
struct Watched {
    call: Progress,
    came: SystemTime,
    reports: u32,
}

impl Default for ActiveCalls {
    fn default() -> Self {
        Self { calls: Mutex::default(), slow: SLOW, stopped: Mutex::default(), wake: Condvar::new() }
    }
}

impl ActiveCalls {
    /// Adds a call that came in.
    pub fn began(&self, call: &Progress) {
        let watched = Watched { call: call.clone(), came: SystemTime::now(), reports: 0 };
        self.calls.lock().insert(call.id(), watched);
        metrics::touch();
    }

    /// Removes a call that was answered, counts it, and logs a line: number, method, volume, outcome,
    /// milliseconds.
    pub fn ended(&self, call: &Progress, outcome: Result<(), &Error>) {
        self.calls.lock().remove(&call.id());
        let (id, method, subject) = (call.id(), call.method(), call.subject());
        let age = call.age();
        let (milliseconds, rpc) = (age.as_secs_f64() * 1000.0, method.rsplit('/').next().unwrap_or(method));
        let code = outcome.map_or_else(|error| status::name(error.kind()), |()| "OK");
        metrics::count(&metrics::CALLS, &[rpc, code]);
        metrics::observe(&metrics::CALL_SECONDS, &[rpc], age);
        match outcome {
            Ok(()) if is_quick(method) => log::debug!("{id} {method} {subject} OK {milliseconds:.1} ms"),
            Ok(()) => log::info!("{id} {method} {subject} OK {milliseconds:.1} ms"),
            Err(error) => {
                let level =
                    if error.kind() == crate::error::Kind::Internal { Level::Error } else { Level::Warn };
                log::log!(level, "{id} {method} {subject} {code} {milliseconds:.1} ms: {error}");
            }
        }
    }

    /// How many calls are in progress.
    pub fn in_progress(&self) -> usize {
        self.calls.lock().len()
    }

    /// When the oldest call in progress came in.
    pub fn oldest(&self) -> Option<SystemTime> {
        self.calls.lock().values().next().map(|watched| watched.came)
    }

    /// How many calls in progress belong to this bulkhead, and how many there are in all.
    pub fn count(&self, bulkhead: &Bulkhead) -> (usize, usize) {
        let calls = self.calls.lock();
        let is_own = |watched: &&Watched| watched.call.bulkhead().as_ref() == Some(bulkhead);
        (calls.values().filter(is_own).count(), calls.len())
    }

    /// Starts the thread that reports slow calls; it ends at [`ActiveCalls::stop`].
    pub fn watch(self: &Arc<Self>) -> std::io::Result<thread::JoinHandle<()>> {
        let running = Arc::clone(self);
        thread::Builder::new().name("slow-calls".into()).stack_size(64 * 1024).spawn(move || {
            let mut stopped = running.stopped.lock();
            while !*stopped {
                let (lines, pause) = running.slow_calls();
                lines.iter().for_each(|line| log::warn!("{line}"));
                running.wake.wait_for(&mut stopped, pause);
            }
        })
    }

    /// Ends the watching thread.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    /// A line for each call that has become slow, or is due for another report; and how long until the next
    /// report may be due. A call that comes in meanwhile is not slow before that.
    fn slow_calls(&self) -> (Vec<String>, Duration) {
        let mut pause = self.slow;
        let mut lines = Vec::new();
        for Watched { call, reports, .. } in self.calls.lock().values_mut() {
            let age = call.age();
            if age >= self.slow * (*reports + 1) {
                *reports = (age.as_nanos() / self.slow.as_nanos()) as u32;
                lines.push(slow_line(call, age));
            }
            pause = pause.min(self.slow * (*reports + 1) - age);
        }
        (lines, pause)
    }
}

fn slow_line(call: &Progress, age: Duration) -> String {
    let (step, since) = call.current_step();
    let (id, method, subject) = (call.id(), call.method(), call.subject());
    format!(
        "{id} {method} {subject} still running after {} s: {step} for {} s",
        age.as_secs(),
        since.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dispatch::Call;

    fn running(slow: Duration) -> (ActiveCalls, Call) {
        let running = ActiveCalls { slow, ..ActiveCalls::default() };
        let call = Call::internal("/csi.v1.Node/NodeStageVolume");
        running.began(&call);
        (running, call)
    }

    #[test]
    fn a_young_call_is_not_reported_and_looked_at_again_in_time() {
        let (running, call) = running(SLOW);
        let (lines, pause) = running.slow_calls();
        assert!(lines.is_empty(), "{lines:?}");
        assert!(pause <= SLOW && pause + call.age() >= SLOW, "{pause:?}");
    }

    #[test]
    fn a_slow_call_is_reported_with_its_step_again_and_again() {
        let (running, call) = running(Duration::from_millis(1));
        call.set_subject("volume-1");
        call.enter_step("mkfs.ext4 /dev/loop3");
        for _ in 0..3 {
            let lines = std::iter::repeat_with(|| running.slow_calls().0).find(|lines| !lines.is_empty());
            let said = lines.unwrap_or_default().join("\n");
            let who = format!("{} /csi.v1.Node/NodeStageVolume volume-1 still running after ", call.id());
            assert!(said.starts_with(&who) && said.contains(" s: mkfs.ext4 /dev/loop3"), "{said}");
            assert!(!said.contains('\n'), "{said}");
        }
        running.ended(&call, Ok(()));
        assert!(running.in_progress() == 0 && running.slow_calls().0.is_empty());
    }
}
