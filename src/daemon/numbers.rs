//! The daemon's numbers (CEPHLET_METRICS): what is read when their file is written.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::Config;
use crate::dispatch::{LockTable, Workers};
use crate::error::{Error, Result};
use crate::exec::Processes;
use crate::grpc::active_calls::ActiveCalls;
use crate::grpc::bridge::Answer;
use crate::metrics::{self, Samples, Writer};
use crate::volume::Operations;

/// Counts from now on, and keeps the file, if one is wanted.
///
/// # Errors
/// No thread is available.
pub(super) fn start(
    config: &Config,
    (workers, locks, running): (&Arc<Workers>, &Arc<LockTable<Answer>>, &Arc<ActiveCalls>),
    (processes, operations): (&Arc<Processes>, &Arc<Operations>),
) -> Result<Option<Writer>> {
    let Some(path) = &config.metrics else { return Ok(None) };
    let (workers, locks, running) = (Arc::clone(workers), Arc::clone(locks), Arc::clone(running));
    let (processes, operations) = (Arc::clone(processes), Arc::clone(operations));
    let started = unix_seconds(SystemTime::now());
    // Nothing here waits for storage.
    let look = move |samples: &mut Samples| {
        let (in_progress, for_worker, for_lock) = (running.in_progress(), workers.waiting(), locks.waiting());
        let (under_way, working) = workers.load();
        let for_event = under_way.saturating_sub(working + for_worker + for_lock);
        let ([commands, helpers], for_command, left_behind) = processes.load();
        let locked = locks.locked_objects();
        for (metric, labels, count) in [
            (&metrics::BUILD_INFO, [env!("CARGO_PKG_VERSION")].as_slice(), 1),
            (&metrics::CALLS_IN_PROGRESS, &[], in_progress),
            (&metrics::CALLS_WAITING, &["command"], for_command),
            (&metrics::CALLS_WAITING, &["event"], for_event),
            (&metrics::CALLS_WAITING, &["lock"], for_lock),
            (&metrics::CALLS_WAITING, &["worker"], for_worker),
            (&metrics::PERMITS_HELD, &["command"], commands),
            (&metrics::PERMITS_HELD, &["helper"], helpers),
            (&metrics::PERMITS_HELD, &["worker"], working),
            (&metrics::LOCKS_HELD, &[], locked),
            (&metrics::PROCESSES_LEFT, &[], left_behind),
        ] {
            samples.set(metric, labels, count as u64);
        }
        let oldest = running.oldest().map(|came| (&metrics::OLDEST_CALL, unix_seconds(came)));
        let (bytes, reserved) = operations.journal.size();
        let journal = [(&metrics::JOURNAL_BYTES, bytes), (&metrics::JOURNAL_RESERVED, reserved)];
        for (metric, value) in journal.into_iter().chain([(&metrics::START, started)]).chain(oldest) {
            samples.set(metric, &[], value);
        }
        for ((backend, condition), count) in operations.volumes_here() {
            samples.set(&metrics::VOLUMES, &[&backend, condition], count);
        }
        in_progress + commands + helpers + for_command + locked + left_behind > 0
    };
    metrics::start(path, look).map(Some).map_err(|error| Error::io("start a thread", &error))
}

/// Why the file cannot be written, if that is certain before.
pub(super) fn trouble(config: &Config) -> Option<String> {
    let directory = config.metrics.as_ref()?.parent()?;
    (!directory.is_dir()).then(|| {
        format!(
            "CEPHLET_METRICS: {} is no directory, so nothing is written: make it, or name the directory that the \
             node exporter reads (its option --collector.textfile.directory)",
            directory.display()
        )
    })
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
