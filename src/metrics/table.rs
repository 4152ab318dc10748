//! All metrics, in the order of the file. cephlet-metrics(7) describes them; a test compares.

/// A metric. The values of its labels are words of the code, and names of clusters and backends: they are
/// few, as Prometheus keeps a series for each.
pub struct Metric {
    pub(super) name: &'static str,
    /// `counter`, `gauge` or `histogram`, which is one of durations.
    pub(super) kind: &'static str,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

/// Declares each metric, and the table of all.
macro_rules! metrics {
    ($($id:ident: $kind:ident $name:literal [$($labels:literal),*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub static $id: Metric =
                Metric { name: $name, kind: stringify!($kind), labels: &[$($labels),*], help: $help };
        )*
        pub(super) static METRICS: &[&Metric] = &[$(&$id),*];
    };
}

metrics! {
    BUILD_INFO: gauge "cephlet_build_info" ["version"] "The version of the daemon; always 1.";
    START: gauge "cephlet_start_time_seconds" [] "When the daemon started, in seconds since 1970.";
    CALLS: counter "cephlet_calls_total" ["method", "code"] "Calls that were answered, by gRPC code.";
    CALL_SECONDS: histogram "cephlet_call_seconds" ["method"] "How long calls took until they were answered.";
    CALLS_IN_PROGRESS: gauge "cephlet_calls_in_progress" [] "Calls that are not answered yet.";
    OLDEST_CALL: gauge "cephlet_oldest_call_start_time_seconds" [] "When the oldest call in progress came in.";
    CALLS_WAITING: gauge "cephlet_calls_waiting" ["for"] "Calls in progress that wait, by what they wait for.";
    PERMITS_HELD: gauge "cephlet_permits_held" ["of"] "Calls that work, and processes that run.";
    LOCKS_HELD: gauge "cephlet_locks_held" [] "Objects that are locked or waited for.";
    COMMANDS: counter "cephlet_commands_total" ["cluster", "via"] "Commands that were run, by cluster.";
    COMMAND_FAILURES: counter "cephlet_command_failures_total" ["cluster", "via", "reason"]
        "Commands without a result, by cluster and reason.";
    PROCESSES_LEFT: gauge "cephlet_processes_left_behind" [] "Processes that go on without their call.";
    SESSION_STARTS: counter "cephlet_session_starts_total" [] "Starts of the session with Ceph clusters.";
    SESSION_DEATHS: counter "cephlet_session_deaths_total" [] "Sessions that died with requests under way.";
    FENCES: gauge "cephlet_fences" ["cluster"] "Fences that this daemon has found when it looked last.";
    CLIENTS_SHUT_OUT: counter "cephlet_clients_shut_out_total" ["cluster"]
        "Clients of lost nodes that this daemon has shut out.";
    VOLUMES: gauge "cephlet_volumes" ["backend", "condition"]
        "Volumes in use on this node, by their last known condition.";
    JOURNAL_BYTES: gauge "cephlet_journal_bytes" [] "The size of the journal.";
    JOURNAL_RESERVED: gauge "cephlet_journal_reserved_bytes" [] "Room that the disk keeps for the journal.";
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../packaging/man/cephlet-metrics.7");
    const RULES: &str = include_str!("../../packaging/prometheus/cephlet.rules.yml");

    #[test]
    fn the_page_describes_every_metric() {
        let described: Vec<&str> = PAGE.lines().filter(|line| line.starts_with(".It Va ")).collect();
        let item = |metric: &&Metric| {
            let Metric { name, kind, labels, .. } = metric;
            let labels = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(", ")) };
            format!(".It Va {name} No ({}{labels})", kind)
        };
        assert_eq!(described, METRICS.iter().map(item).collect::<Vec<_>>());
    }

    /// `promtool check metrics` has more such rules.
    #[test]
    fn names_follow_the_conventions() {
        let is_word = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        for Metric { name, kind, labels, help } in METRICS {
            assert!(name.starts_with("cephlet_") && is_word(name), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
            assert!(labels.iter().all(|label| is_word(label) && *label != "le"), "{name}");
            assert!(help.ends_with('.') && !help.contains(['\\', '\n']), "{name}: {help}");
        }
    }

    #[test]
    fn the_rules_ask_for_metrics_that_exist() {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let expressions = RULES.lines().filter(|line| !line.trim_start().starts_with('#'));
        let words = expressions.flat_map(|line| line.split(move |letter| !is_part(letter)));
        let named: Vec<&str> = words.filter(|word| word.starts_with("cephlet_")).collect();
        assert!(named.len() > 10);
        for name in named {
            assert!(METRICS.iter().any(|metric| metric.name == name), "{name}");
        }
    }
}
