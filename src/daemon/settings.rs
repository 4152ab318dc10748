//! The settings that a daemon runs with, as `cephlet config` shows them.

use std::sync::Arc;

use super::{command_tool, start_processes};
use crate::backend::ceph::{ClusterTool, removed};
use crate::clusters::{Cluster, ClusterEntry, ClusterSource, Clusters};
use crate::config::{Config, Setting};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::Processes;
use crate::grpc::operator::Settings;
use crate::grpc::proto::cephlet_operator_v1 as wire;
use crate::layout::Layout;
use crate::topology::NodeTopology;

/// What a running daemon says of its settings. Clusters are asked only about pools that were removed.
pub(super) fn in_force(
    config: &Config,
    processes: &Arc<Processes>,
    clusters: &Arc<Clusters>,
    topology: &Arc<NodeTopology>,
) -> Settings {
    let tool = command_tool(config, &Layout::new(config), processes);
    let (config, clusters, topology) = (config.clone(), Arc::clone(clusters), Arc::clone(topology));
    Arc::new(move |call| describe(call, &config, &clusters, Ok(&topology), &tool))
}

/// What a daemon with this configuration would say.
///
/// # Errors
/// Commands cannot be started.
pub fn check(config: &Config) -> Result<wire::ConfigResponse> {
    let clusters = Clusters::load(ClusterSource::new(config));
    let Config { name, topology, crush_location, .. } = config;
    let topology = NodeTopology::load(name, topology, crush_location.clone(), clusters.takeover());
    let tool = command_tool(config, &Layout::new(config), &start_processes(config)?);
    Ok(describe(&Call::internal("config"), config, &clusters, topology.as_ref(), &tool))
}

fn describe(
    call: &Call,
    config: &Config,
    clusters: &Clusters,
    topology: Result<&NodeTopology, &String>,
    tool: &dyn ClusterTool,
) -> wire::ConfigResponse {
    let entries = clusters.entries();
    let (domains, of_labels) = match topology {
        Ok(node) => (node.domains(), node.trouble()),
        Err(why) => (Vec::new(), Some(why.clone())),
    };
    let of_clusters = if entries.is_empty() { clusters.trouble() } else { clusters.file_trouble() };
    let removed = removed::states(tool, call, clusters).into_iter();
    let removed = removed.map(|[cluster, pool, state]| wire::RemovedPool {
        cluster,
        pool,
        state,
        ..Default::default()
    });
    wire::ConfigResponse {
        settings: config.describe().iter().map(setting).collect(),
        domains,
        removed_pools: removed.collect(),
        clusters: entries.into_iter().map(cluster).collect(),
        remarks: [of_labels, clusters.takeover_trouble(), of_clusters].into_iter().flatten().collect(),
        ..Default::default()
    }
}

fn setting(setting: &Setting) -> wire::Setting {
    wire::Setting {
        name: setting.name.to_string(),
        value: setting.value.clone(),
        is_from_environment: setting.from_environment,
        meaning: setting.meaning.to_string(),
        ..Default::default()
    }
}

fn cluster((name, entry): (String, ClusterEntry)) -> wire::Cluster {
    let ClusterEntry { cluster, trouble, .. } = entry;
    let Some(cluster) = cluster else {
        let state = format!("disabled: {}", trouble.unwrap_or_default());
        return wire::Cluster { name, state, ..Default::default() };
    };
    let Cluster { credentials, key_from, namespaces, .. } = &*cluster;
    let state = match (&credentials, trouble) {
        (_, Some(why)) => format!("stays as it was: {why}"),
        (Some(_), None) => "ready".to_string(),
        (None, None) => {
            "reduced mode: serves requests that bring secrets; no lists, no capacity, no work in \
                         the background"
                .to_string()
        }
    };
    wire::Cluster {
        name,
        monitors: cluster.monitors_text(),
        user: credentials.as_ref().map(|it| it.user.clone()).unwrap_or_default(),
        key_from: key_from.clone(),
        pools: cluster.named_pools().into_iter().map(str::to_string).collect(),
        namespaces: namespaces.clone(),
        state,
        ..Default::default()
    }
}
