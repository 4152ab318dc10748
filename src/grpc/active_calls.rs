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
use crate::jobs::JobQueue;
use crate::metrics;

/// A call or job that runs longer than this is logged with the step it is in, again and again.
const SLOW: Duration = Duration::from_secs(30);

/// Whether an rpc needs no storage. Such an rpc has a lane of its own, so that a cluster that hangs never
/// fails a health check. Health checks are frequent, so a success is logged at the debug level only.
pub fn is_quick(method: &str) -> bool {
    let quick = ["Probe", "GetCapabilities", "/NodeGetInfo", "/GetNodeID", ".Operator/Jobs"];
    method.contains(".Identity/") || quick.iter().any(|end| method.ends_with(end))
}

/// The calls in progress.
pub struct ActiveCalls {
    calls: Mutex<BTreeMap<u64, Watched>>,
    jobs: Arc<JobQueue>,
    slow: Duration,
    stopped: Mutex<bool>,
    wake: Condvar,
}

/// A call, and when it came in.
#[derive(Debug)]
struct Watched {
    call: Progress,
    came: SystemTime,
}

impl ActiveCalls {
    /// None yet, beside the jobs of this queue.
    pub fn beside(jobs: Arc<JobQueue>) -> Self {
        Self { calls: Mutex::default(), jobs, slow: SLOW, stopped: Mutex::default(), wake: Condvar::new() }
    }

    /// The calls and the background jobs in progress, the oldest first.
    fn all(&self) -> Vec<Progress> {
        let mut all: Vec<Progress> = self.calls.lock().values().map(|watched| watched.call.clone()).collect();
        all.extend(self.jobs.under_way());
        all.sort_by_key(Progress::id);
        all
    }

    /// The same without those that need no storage.
    pub fn under_way(&self) -> Vec<Progress> {
        let mut all = self.all();
        all.retain(|one| !is_quick(one.method()));
        all
    }

    /// Adds a call that came in.
    pub fn began(&self, call: &Progress) {
        let watched = Watched { call: call.clone(), came: SystemTime::now() };
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

    /// A line for each call or job that has become slow, or is due for another report; and how long until the
    /// next report may be due. One that begins meanwhile is not slow before that.
    fn slow_calls(&self) -> (Vec<String>, Duration) {
        let mut pause = self.slow;
        let mut lines = Vec::new();
        for call in self.all() {
            let age = call.age();
            if call.is_due(self.slow) {
                lines.push(slow_line(&call, age));
            }
            pause =
                pause.min(self.slow - Duration::from_nanos((age.as_nanos() % self.slow.as_nanos()) as u64));
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
        let running = ActiveCalls { slow, ..ActiveCalls::beside(Arc::default()) };
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
        call.come_to(12);
        for _ in 0..3 {
            let lines = std::iter::repeat_with(|| running.slow_calls().0).find(|lines| !lines.is_empty());
            let said = lines.unwrap_or_default().join("\n");
            let who = format!("{} /csi.v1.Node/NodeStageVolume volume-1 still running after ", call.id());
            assert!(
                said.starts_with(&who) && said.contains(" s: mkfs.ext4 /dev/loop3 (12 %) for "),
                "{said}"
            );
            assert!(!said.contains('\n'), "{said}");
        }
        running.ended(&call, Ok(()));
        assert!(running.in_progress() == 0 && running.slow_calls().0.is_empty());
    }
}
