//! Whether a cluster lets volumes work: clients that it has shut out, pools that are full. Answers that hold
//! for all volumes of a pool are remembered for a moment: orchestrators ask about one volume after the other.

use std::time::Duration;

use crate::backend::ceph::cache::Cache;
use crate::backend::ceph::monitor::blocklist::Entry;
use crate::backend::ceph::placement::PoolRef;
use crate::backend::ceph::{ClusterTool, FreeSpace};
use crate::backend::{Condition, Fault, Reason};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids;

const REMEMBERED: Duration = Duration::from_secs(10);

/// A pool is nearly full for a volume if less than this part (1/20) of the volume's size is left.
const NEARLY_FULL: u64 = 20;

/// Answers that were asked for one volume and hold for others.
#[derive(Debug)]
pub(crate) struct Health {
    /// By cluster and pool.
    free_space: Cache<String, FreeSpace>,
    /// By cluster.
    blocklists: Cache<String, Vec<Entry>>,
}

impl Default for Health {
    fn default() -> Self {
        Self { free_space: Cache::for_at_most(REMEMBERED), blocklists: Cache::for_at_most(REMEMBERED) }
    }
}

impl Health {
    /// The first of these clients that the cluster has shut out.
    pub fn find_blocked(
        &self,
        tool: &dyn ClusterTool,
        call: &Call,
        at: &PoolRef,
        clients: &[&str],
    ) -> Result<Option<String>> {
        if clients.is_empty() {
            return Ok(None);
        }
        let ask = || tool.monitors().of(call, &at.access).blocklist();
        let blocklist = self.blocklists.get_or_ask(at.access.cluster.name.clone(), ask)?;
        let is_blocked = |client: &&&str| blocklist.iter().any(|entry| entry.covers(client));
        Ok(clients.iter().find(is_blocked).map(ToString::to_string))
    }

    /// What is wrong with the space in `pool`, for a volume of `size` bytes.
    pub fn shortage(
        &self,
        tool: &dyn ClusterTool,
        call: &Call,
        at: &PoolRef,
        (pool, size): (&str, u64),
    ) -> Result<Condition> {
        let cluster = &at.access.cluster.name;
        let key = [cluster, pool].map(ids::encode).join(":");
        let space = self.free_space.get_or_ask(key, || tool.free_space(call, at, pool))?;
        let what_to_do = "add storage, raise its quota, or delete what is not needed";
        let (reason, how) = if space.full {
            (Reason::PoolFull, "full and takes no more writes".to_string())
        } else if space.available < size / NEARLY_FULL {
            (Reason::PoolNearlyFull, format!("nearly full, {} bytes are left", space.available))
        } else {
            return Ok(None);
        };
        let detail = format!("pool {pool:?} of cluster {cluster:?} is {how}: {what_to_do}");
        Ok(Some(Fault::new(reason, detail)))
    }
}
