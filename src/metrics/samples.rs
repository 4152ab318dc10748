//! The numbers, and their text: <https://prometheus.io/docs/instrumenting/exposition_formats/>

use std::collections::BTreeMap;
use std::time::Duration;

use super::table::{METRICS, Metric};

/// The upper bounds of the buckets for durations, in seconds: from an answer out of memory to a copy.
const BUCKETS: [f64; 13] =
    [0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 120.0, 300.0, 600.0, f64::INFINITY];

/// The parts of a histogram behind its buckets.
const SUM: usize = BUCKETS.len();
const COUNT: usize = SUM + 1;

/// The numbers, by metric, labels as they are written, and part of a histogram.
#[derive(Clone, Debug)]
pub struct Samples(BTreeMap<(&'static str, String, usize), f64>);

impl Default for Samples {
    /// Counters without labels are 0: a number that appears as 1 would not look like an increase.
    fn default() -> Self {
        let plain = METRICS.iter().filter(|metric| metric.kind == "counter" && metric.labels.is_empty());
        Self(plain.map(|metric| ((metric.name, String::new(), 0), 0.0)).collect())
    }
}

impl Samples {
    /// Adds one to a counter.
    pub(super) fn add(&mut self, metric: &Metric, labels: &[&str]) {
        *self.value(metric, labels, 0) += 1.0;
    }

    /// Sets a number.
    pub fn set(&mut self, metric: &Metric, labels: &[&str], value: u64) {
        *self.value(metric, labels, 0) = value as f64;
    }

    /// Adds a duration to a histogram. A bucket counts those before it, too.
    pub(super) fn observe(&mut self, metric: &Metric, labels: &[&str], took: Duration) {
        let took = took.as_secs_f64();
        let buckets = BUCKETS.iter().map(|bound| f64::from(u8::from(took <= *bound)));
        for (part, more) in buckets.chain([took, 1.0]).enumerate() {
            *self.value(metric, labels, part) += more;
        }
    }

    fn value(&mut self, metric: &Metric, labels: &[&str], part: usize) -> &mut f64 {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let pairs = metric.labels.iter().zip(labels);
        let labels: Vec<_> = pairs.map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        self.0.entry((metric.name, labels.join(","), part)).or_default()
    }

    /// The numbers as Prometheus reads them.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for Metric { name, kind, help, .. } in METRICS {
            let own = self.0.range((*name, String::new(), 0)..).take_while(|((of, ..), _)| of == name);
            for (at, ((_, labels, part), value)) in own.enumerate() {
                if at == 0 {
                    text += &format!("# HELP {name} {help}\n# TYPE {name} {kind}\n");
                }
                let (suffix, bound) =
                    if *kind == "histogram" { part_of_histogram(*part) } else { Default::default() };
                let labels: Vec<&str> =
                    [labels, bound.as_str()].into_iter().filter(|it| !it.is_empty()).collect();
                let labels =
                    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
                text += &format!("{name}{suffix}{labels} {value}\n");
            }
        }
        text
    }
}

/// The end of its name, and its own label.
fn part_of_histogram(part: usize) -> (&'static str, String) {
    match part {
        SUM => ("_sum", String::new()),
        COUNT => ("_count", String::new()),
        _ if BUCKETS[part].is_infinite() => ("_bucket", String::from("le=\"+Inf\"")),
        _ => ("_bucket", format!("le=\"{}\"", BUCKETS[part])),
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::super::table::*;
    use super::*;

    #[test]
    fn values_of_labels_are_escaped() {
        let mut samples = Samples::default();
        samples.set(&FENCES, &["a\"b\\c\nd"], 1);
        let text = samples.text();
        assert!(text.contains("\ncephlet_fences{cluster=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
    }

    #[test]
    fn each_bucket_counts_those_before_it() {
        let mut samples = Samples::default();
        for milliseconds in [0, 1, 2, 700_000] {
            samples.observe(&CALL_SECONDS, &["Probe"], Duration::from_millis(milliseconds));
        }
        samples.observe(&CALL_SECONDS, &["CreateVolume"], Duration::ZERO);
        let text = samples.text();
        let own: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("cephlet_call_seconds") && line.contains("\"Probe\""))
            .collect();
        let bucket = |bound: &str, count| {
            format!("cephlet_call_seconds_bucket{{method=\"Probe\",le=\"{bound}\"}} {count}")
        };
        assert_eq!(own.len(), BUCKETS.len() + 2, "{own:?}");
        assert_eq!(own[..2], [bucket("0.001", 2), bucket("0.005", 3)]);
        assert_eq!(own[11..13], [bucket("600", 3), bucket("+Inf", 4)]);
        let ends = ["_sum{method=\"Probe\"} 700.003", "_count{method=\"Probe\"} 4"];
        assert_eq!(own[13..], ends.map(|end| format!("cephlet_call_seconds{end}")));
        assert_eq!(text.matches("# TYPE cephlet_call_seconds histogram\n").count(), 1);
    }

    #[test]
    fn a_counter_without_labels_begins_at_0() {
        let text = Samples::default().text();
        assert!(
            text.contains("# TYPE cephlet_session_starts_total counter\ncephlet_session_starts_total 0\n")
        );
        assert!(!text.contains("cephlet_calls_total"), "what has no value has no line");
    }

    #[test]
    fn seconds_since_1970_have_all_their_digits() {
        let mut samples = Samples::default();
        samples.set(&START, &[], 1_795_240_879);
        assert!(samples.text().contains("\ncephlet_start_time_seconds 1795240879\n"));
    }
}
