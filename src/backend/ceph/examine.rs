//! What is not as it should be in whole clusters: their health, what they have shut out for years, and what
//! the user may not do there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::monitor::blocklist::Entry;
use super::monitor::{MonitorClient, question};
use super::{ClusterAccess, reach, read_all};
use crate::backend::finding::{CLOCK_SKEWED, CLUSTER_UNWELL, FENCE_STAYS, PLACE_REFUSED, Trouble};
use crate::backend::within::{Look, found_within};
use crate::backend::{Finding, Reason};
use crate::clock::rfc3339;
use crate::clusters::Clusters;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::secrets::Secrets;

/// How long a look at a cluster may take, and for how long of that it may begin commands.
const PATIENCE: Duration = Duration::from_secs(10);
const WORK: Duration = Duration::from_secs(8);

/// What monitors say of clocks that differ.
const SKEW: &str = "MON_CLOCK_SKEW";

/// `ceph health --format=json`
#[derive(Deserialize)]
struct Health {
    #[serde(default)]
    checks: BTreeMap<String, Check>,
}

#[derive(Deserialize)]
struct Check {
    severity: String,
    summary: Summary,
}

#[derive(Deserialize)]
struct Summary {
    message: String,
}

/// What `look` finds in the clusters that answer and have credentials of their own, in all of them at once.
pub(crate) fn clusters(clusters: &Clusters, look: LookAt) -> Vec<Finding> {
    clusters_within(PATIENCE, clusters, look)
}

/// A look at one cluster.
pub(crate) type LookAt = Arc<dyn Fn(&Call, &ClusterAccess) -> Vec<Finding> + Send + Sync>;

/// Without a quorum, a cluster keeps a command for longer than the client of a call waits for its answer.
fn clusters_within(patience: Duration, clusters: &Clusters, look: LookAt) -> Vec<Finding> {
    let faults = reach::faults(clusters, reach::PATIENCE).into_iter();
    let silent = faults.filter(|(_, fault)| fault.reason == Reason::MonitorsUnreachable);
    let silent: BTreeSet<String> = silent.map(|(name, _)| name).collect();
    let asked = clusters.all().into_iter();
    let asked = asked.filter(|it| it.credentials.is_some() && !silent.contains(&it.name));
    let looks = asked.map(|cluster| {
        let (name, look, until) = (cluster.name.clone(), Arc::clone(&look), Instant::now() + WORK);
        let in_cluster = move || match ClusterAccess::new(Arc::clone(&cluster), &Secrets::default()) {
            // Not the caller's call: a look that hangs would keep what that holds.
            Ok(access) => {
                look(&Call::internal("Examine").only_while(move || Instant::now() < until), &access)
            }
            Err(error) => vec![refused(&cluster.name, &error)],
        };
        (name, Box::new(in_cluster) as Look<_>)
    });
    let late = |name| vec![Finding::new(&CLUSTER_UNWELL, name, "it does not answer: it may have no quorum")];
    let found = found_within(patience, looks).into_iter();
    found.flat_map(|(name, found)| found.unwrap_or_else(|| late(name))).collect()
}

/// The findings in a whole cluster, and those of `look`, which sees the places in it.
pub(crate) fn whole(
    monitors: &MonitorClient<'_>,
    look: impl FnOnce() -> Result<Vec<Finding>>,
) -> Vec<Finding> {
    let parts = [health(monitors), fences(monitors), look()].into_iter();
    let name = &monitors.access.cluster.name;
    parts.flat_map(|part| part.unwrap_or_else(|error| vec![refused(name, &error)])).collect()
}

/// A place that could not be looked at.
pub(crate) fn refused(place: impl Display, error: &Error) -> Finding {
    let is_silent = matches!(error.kind(), Kind::Unavailable | Kind::Timeout);
    Finding::new(if is_silent { &CLUSTER_UNWELL } else { &PLACE_REFUSED }, place, error)
}

/// What the monitors hold for an error, and clocks that differ. Warnings are the operator's of the cluster.
fn health(monitors: &MonitorClient<'_>) -> Result<Vec<Finding>> {
    let output = monitors.ask(Class::Question, &[question("health", None)]);
    let output = output.map_err(|failure| failure.into_error("ask for the health of the cluster"))?;
    let answers = read_all::<Health>("ceph health", &output.stdout)?;
    let checks = answers.into_iter().flat_map(|answer| answer.checks);
    let finding = |(word, check): (String, Check)| {
        let kind: &Trouble = match word.as_str() {
            SKEW => &CLOCK_SKEWED,
            _ if check.severity == "HEALTH_ERR" => &CLUSTER_UNWELL,
            _ => return None,
        };
        let meaning = format!("{word}: {}", check.summary.message);
        Some(Finding::new(kind, &monitors.access.cluster.name, meaning))
    };
    Ok(checks.filter_map(finding).collect())
}

/// The hosts and networks that are shut out for years: Ceph's own entries end after an hour or a day. An
/// entry of a single client, as cephlet makes them, shuts out no later one.
fn fences(monitors: &MonitorClient<'_>) -> Result<Vec<Finding>> {
    let cluster = &monitors.access.cluster.name;
    let entries = monitors.blocklist()?.into_iter().filter(Entry::lasts_for_years);
    let finding = |entry: Entry| {
        let (network, address, until) = (entry.network?, &entry.address, rfc3339(entry.until));
        let meaning = format!("cluster {cluster:?} has shut out {address} until {until}");
        let found = Finding::new(&FENCE_STAYS, address, meaning);
        Some(if entry.is_lasting() {
            found.mended_by(format!("cephlet fence remove {network} --cluster {cluster}"))
        } else if entry.is_range() {
            found.mended_by(format!("when it uses no volume any more: ceph osd blocklist range rm {address}"))
        } else {
            found
        })
    };
    Ok(entries.filter_map(finding).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;

    use super::*;
    use crate::backend::ceph::Monitors;
    use crate::backend::ceph::monitor::blocklist::Entry;
    use crate::backend::ceph::monitor::fake::FakeMonitors;
    use crate::clusters::{Cluster, Credentials};
    use crate::secrets::Secret;

    fn told(patience: Duration, look: LookAt) -> Vec<(String, String)> {
        let credentials = Some(Credentials { user: "csi".into(), key: Some(Secret::new("c2VjcmV0")) });
        let clusters = Clusters::of([Cluster { credentials, ..Cluster::named("main") }]);
        let found = clusters_within(patience, &clusters, look).into_iter();
        found.map(|it| (it.name, it.mend)).collect()
    }

    fn found(monitors: FakeMonitors) -> Vec<(String, String)> {
        let monitors: Box<dyn Monitors> = Box::new(Arc::new(Mutex::new(monitors)));
        let look =
            move |call: &Call, access: &ClusterAccess| whole(&monitors.of(call, access), || Ok(Vec::new()));
        told(Duration::from_secs(300), Arc::new(look))
    }

    fn unwell(word: &str, severity: &str) -> FakeMonitors {
        let check = serde_json::json!({"severity": severity, "summary": {"message": "as it is"}});
        FakeMonitors { checks: [(word.to_string(), check)].into_iter().collect(), ..Default::default() }
    }

    #[test]
    fn errors_and_clocks_that_differ_are_found_and_other_warnings_are_not() {
        assert_eq!(found(FakeMonitors::default()), []);
        assert_eq!(found(unwell("OSD_NEARFULL", "HEALTH_WARN")), []);
        assert_eq!(found(unwell("MDS_ALL_DOWN", "HEALTH_ERR"))[0].0, "ClusterUnwell:main");
        assert_eq!(found(unwell(SKEW, "HEALTH_WARN"))[0].0, "ClockSkewed:main");
    }

    #[test]
    fn a_cluster_without_a_quorum_is_told_and_not_awaited() {
        let (held, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let hang = move |_: &Call, _: &ClusterAccess| {
            let _ = gate.lock().recv();
            Vec::new()
        };
        let told = told(Duration::from_millis(1), Arc::new(hang));
        assert_eq!(told, [("ClusterUnwell:main".to_string(), "ceph health detail".to_string())]);
        drop(held);
    }

    #[test]
    fn hosts_that_are_shut_out_for_years_are_found_and_how_it_is_let_in_again() {
        let entries = vec![
            Entry::of_address("10.0.0.7:0/1234567", "2126-01-01T00:00:00.000000+0000"),
            Entry::of_address("10.0.0.8:0/0", "2106-02-07T06:28:15.000000+0000"),
            Entry::of_address("10.0.0.6:0/0", "2076-01-01T00:00:00.000000+0000"),
            Entry::of_address("10.0.0.9:0/1", "2026-01-01T00:00:00.000000+0000"),
            Entry::of_range("cidr:10.1.0.0:0/24", "2076-01-01T00:00:00.000000+0000").unwrap(),
        ];
        let told = found(FakeMonitors { entries, ..Default::default() });
        let told: Vec<(&str, &str)> =
            told.iter().map(|(name, mend)| (name.as_str(), mend.as_str())).collect();
        let fence = "cephlet fence remove 10.0.0.8/32 --cluster main";
        let host = "when it uses no volume any more: ceph osd blocklist rm 10.0.0.6:0/0";
        let network = "when it uses no volume any more: ceph osd blocklist range rm 10.1.0.0/24";
        let expected = [
            ("FenceStays:10.0.0.8:0/0", fence),
            ("FenceStays:10.0.0.6:0/0", host),
            ("FenceStays:10.1.0.0/24", network),
        ];
        assert_eq!(told, expected);
    }
}
