//! Commands and their failures are counted by the cluster that they are for.

use super::Why;
use crate::dispatch::Bulkhead;
use crate::metrics::{self, COMMAND_FAILURES, COMMANDS};

/// Counts a command that was run `via` a process, a helper or the session.
pub fn count_command<T>(via: &str, bulkhead: Option<&Bulkhead>, outcome: &Result<T, Why>) {
    let cluster = cluster(bulkhead);
    metrics::count(&COMMANDS, &[cluster, via]);
    if let Err(why) = outcome {
        metrics::count(&COMMAND_FAILURES, &[cluster, via, reason(why)]);
    }
}

/// The cluster of a bulkhead, whose name may say in front what is done there: `rbd:main`, `fences of main`.
fn cluster(bulkhead: Option<&Bulkhead>) -> &str {
    match bulkhead.map(AsRef::as_ref) {
        // What follows is the node.
        Some(name) if name.starts_with("local:") => "local",
        Some(name) => name.rsplit([':', ' ']).next().unwrap_or(name),
        None => "",
    }
}

fn reason(why: &Why) -> &'static str {
    match why {
        Why::Failed { .. } => "status",
        Why::TimedOut { .. } | Why::StillRunning(_) | Why::NoAnswer(_) => "timeout",
        Why::NotFound { .. }
        | Why::NotStarted(_)
        | Why::TooBusy(_)
        | Why::Expired(_)
        | Why::FormerRuns(..) => "not_started",
        Why::Signaled { .. } | Why::Died | Why::StatusLost(_) => "died",
        Why::TooMuchOutput(_) => "output",
        Why::Stopping => "stopping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_one_name_in_all_bulkheads() {
        for (bulkhead, name) in [
            ("main", "main"),
            ("rbd:main", "main"),
            ("fences of main", "main"),
            ("local:a:b c", "local"),
            ("all", "all"),
        ] {
            assert_eq!(cluster(Some(&bulkhead.into())), name);
        }
        assert_eq!(cluster(None), "");
    }
}
