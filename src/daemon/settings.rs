//! The settings that a daemon runs with, as `cephlet config` shows them.

use std::sync::Arc;

use super::numbers;
use super::programs::command_tool;
use super::{open_topology, start_processes};
use crate::backend::ceph::{ClusterTool, Programs, placement};
use crate::clusters::{ClusterEntry, ClusterSource, Clusters};
use crate::config::{BackendName, Config, Setting};
use crate::dispatch::Call;
use crate::error::Result;
use crate::grpc::operator::Settings;
use crate::grpc::proto::cephlet_operator_v1 as wire;
use crate::layout::Layout;
use crate::topology::NodeTopology;

/// The settings that a running daemon reports. Clusters are queried only about pools that were removed.
pub(super) fn in_force(
    config: &Config,
    programs: Programs,
    clusters: &Arc<Clusters>,
    topology: &Arc<NodeTopology>,
) -> Settings {
    let tool = command_tool(config, &Layout::new(config), programs.clone());
    let parts = (config.clone(), Arc::clone(clusters), Arc::clone(topology));
    let (config, clusters, topology) = parts.clone();
    let trouble = programs.clone();
    Settings {
        shown: Arc::new(move |call| {
            describe(call, (&config, &clusters, Ok(&topology)), &tool, programs.session_trouble())
        }),
        troubles: Arc::new(move || {
            let (config, clusters, topology) = &parts;
            let of_session = trouble.session_trouble();
            troubles((config, clusters, Ok(topology)), of_session).into_iter().flatten().collect()
        }),
    }
}

/// The settings that a daemon with this configuration would report.
///
/// # Errors
/// Commands cannot be started.
pub fn check(config: &Config) -> Result<wire::ConfigResponse> {
    let clusters = Clusters::load(ClusterSource::new(config));
    let topology = open_topology(config, &clusters);
    let programs = Programs::new(start_processes(config)?, None);
    let tool = command_tool(config, &Layout::new(config), programs);
    Ok(describe(&Call::internal("config"), (config, &clusters, topology.as_ref()), &tool, None))
}

fn describe(
    call: &Call,
    (config, clusters, topology): (&Config, &Clusters, Result<&NodeTopology, &String>),
    tool: &dyn ClusterTool,
    session_trouble: Option<String>,
) -> wire::ConfigResponse {
    let entries = clusters.entries();
    let domains = topology.map(NodeTopology::domains).unwrap_or_default();
    let troubles = troubles((config, clusters, topology), session_trouble);
    let absence = (entries.is_empty() && !wants_clusters(config)).then(|| clusters.trouble()).flatten();
    let remarks = troubles.into_iter().chain([absence]);
    let tables = vec![
        table("settings", ["variable", "value", "from", "meaning"], config.settings.iter().map(setting)),
        table("domains", ["domain"], domains.into_iter().map(|domain| [domain])),
        table(
            "removed_pools",
            ["cluster", "removed_pool", "state"],
            placement::states_of_removed(tool, call, clusters),
        ),
        table(
            "clusters",
            ["cluster", "monitors", "user", "key", "pools", "namespaces", "state"],
            entries.iter().map(|(name, entry)| cluster(name, entry)),
        ),
        table("remarks", ["remark"], remarks.flatten().map(|remark| [remark])),
    ];
    wire::ConfigResponse { tables, ..Default::default() }
}

/// Whether this configuration is not complete without a cluster.
fn wants_clusters(config: &Config) -> bool {
    let backends = [BackendName::Rbd, BackendName::CephFs];
    let is_named = config.clusters.is_some() || config.ceph.wanted;
    is_named || config.backends.as_ref().is_some_and(|named| backends.iter().any(|it| named.contains(it)))
}

/// What is wrong with files of settings, with the session and with the file of metrics.
pub(super) fn troubles(
    (config, clusters, topology): (&Config, &Clusters, Result<&NodeTopology, &String>),
    of_session: Option<String>,
) -> [Option<String>; 5] {
    let of_labels = topology.map_or_else(|why| Some(why.clone()), NodeTopology::trouble);
    let is_without = wants_clusters(config) && clusters.entries().is_empty();
    let of_clusters = if is_without { clusters.trouble() } else { clusters.file_trouble() };
    [of_labels, clusters.takeover_trouble(), of_clusters, of_session, numbers::trouble(config)]
}

fn table<const N: usize>(
    name: &str,
    columns: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> wire::Table {
    let row = |cells: [String; N]| wire::Row { cells: cells.into(), ..Default::default() };
    wire::Table {
        name: name.to_string(),
        columns: columns.map(str::to_string).into(),
        rows: rows.into_iter().map(row).collect(),
        ..Default::default()
    }
}

fn setting(setting: &Setting) -> [String; 4] {
    let from = if setting.from_environment { "environment" } else { "default" };
    [setting.variable.name, &setting.value, from, setting.variable.meaning].map(str::to_string)
}

/// A row on a cluster: the source of its key, never the key itself, and why the cluster cannot be used.
fn cluster(name: &str, entry: &ClusterEntry) -> [String; 7] {
    let Some(cluster) = &entry.cluster else {
        let state = format!("disabled: {}", entry.trouble.as_deref().unwrap_or_default());
        return [name, "-", "-", "-", "-", "-", &state].map(str::to_string);
    };
    let all_or = |names: String| if names.is_empty() { String::from("all") } else { names };
    let monitors = cluster.monitors_text();
    let monitors = if monitors.is_empty() { "by its ceph.conf" } else { &monitors };
    let user = cluster.credentials.as_ref().map_or("-", |credentials| credentials.user.as_str());
    let state = match (&cluster.credentials, &entry.trouble) {
        (_, Some(why)) => &format!("stays as it was: {why}"),
        (Some(_), None) => "ready",
        (None, None) => {
            "reduced mode: serves requests that bring secrets; no lists, no capacity, no work in the background"
        }
    };
    let (pools, namespaces) = (all_or(cluster.named_pools().join(",")), all_or(cluster.namespaces.join(",")));
    [name, monitors, user, &cluster.key_from, &pools, &namespaces, state].map(str::to_string)
}
