//! Pools that were removed with all their contents. The operator lists them in the clusters file
//! (`removed_pools`): a missing pool that is not listed is a configuration error, and its volumes do not
//! count as absent. The entry counts only while the cluster reports that there is no such pool.

use std::sync::Arc;

use crate::backend::ceph::{ClusterAccess, ClusterTool, PoolRef};
use crate::clusters::{Cluster, Clusters};
use crate::dispatch::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// Whether the pool was removed: the operator lists it, and the cluster has no pool of that name.
///
/// # Errors
/// The cluster does not answer whether it has the pool.
pub(crate) fn is_removed(tool: &dyn ClusterTool, call: &Call, at: &PoolRef) -> Result<bool> {
    let cluster = &at.access.cluster;
    if !cluster.removed_pools.contains(&at.pool) {
        return Ok(false);
    }
    let is_there = tool.has_pool(call, at)?;
    if is_there {
        log::warn!("cluster {:?}: pool {:?} {IS_THERE}", cluster.name, at.pool);
    }
    Ok(!is_there)
}

const IS_THERE: &str = "is there: that it is among `removed_pools` in the clusters file is ignored";

/// The state of each pool that the operator lists as removed: cluster, pool, state.
pub(crate) fn states(tool: &dyn ClusterTool, call: &Call, clusters: &Clusters) -> Vec<[String; 3]> {
    let pools = |cluster: Arc<Cluster>| {
        let removed = cluster.removed_pools.clone();
        removed.into_iter().map(move |pool| (Arc::clone(&cluster), pool))
    };
    let state = |(cluster, pool): (Arc<Cluster>, String)| {
        let name = cluster.name.clone();
        let state = match state(tool, call, cluster, &pool) {
            Ok(true) => String::from(IS_THERE),
            Ok(false) => String::from("is not there: what was in it counts as deleted"),
            Err(error) => format!("not known: {error}"),
        };
        [name, pool, state]
    };
    clusters.all().into_iter().flat_map(pools).map(state).collect()
}

fn state(tool: &dyn ClusterTool, call: &Call, cluster: Arc<Cluster>, pool: &str) -> Result<bool> {
    let access = ClusterAccess::new(cluster, &Secrets::default())?;
    tool.has_pool(call, &PoolRef { access, pool: pool.to_string(), namespace: String::new() })
}
