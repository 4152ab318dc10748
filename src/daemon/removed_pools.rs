//! What `cephlet config` asks of clusters without a daemon.

use super::{command_tool, start_processes};
use crate::backend::ceph::removed;
use crate::clusters::Clusters;
use crate::config::Config;
use crate::dispatch::Call;
use crate::error::Result;
use crate::layout::Layout;

/// The pools that were removed, as the clusters file says: cluster, pool, and whether the cluster agrees.
/// Clusters are asked only where the file names such a pool.
///
/// # Errors
/// Commands cannot be started.
pub fn removed_pools(config: &Config, clusters: &Clusters) -> Result<Vec<[String; 3]>> {
    if clusters.all().iter().all(|cluster| cluster.removed_pools.is_empty()) {
        return Ok(Vec::new());
    }
    let tool = command_tool(config, &Layout::new(config), &start_processes(config)?);
    Ok(removed::states(&tool, &Call::internal("config"), clusters))
}
