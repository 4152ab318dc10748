//! The free space of pools.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{MonitorClient, question};
use crate::backend::ceph::read;
use crate::error::Result;
use crate::exec::Class;

/// How long the manager may need to count a new pool, and how often to look.
const COUNTED_WITHIN: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);

/// The space that is left in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Usable bytes: copies subtracted, and within the quota.
    pub available: u64,
    /// The pool takes no more writes.
    pub full: bool,
}

/// `ceph df detail --format=json`
#[derive(Deserialize)]
struct Usage {
    pools: Vec<PoolUsage>,
}

#[derive(Deserialize)]
struct PoolUsage {
    name: String,
    stats: PoolStats,
}

/// Sizes in bytes, copies subtracted; a quota of 0 means none.
#[derive(Deserialize)]
struct PoolStats {
    max_avail: u64,
    stored: u64,
    #[serde(default)]
    objects: u64,
    #[serde(default)]
    quota_bytes: u64,
    #[serde(default)]
    quota_objects: u64,
}

impl PoolStats {
    fn free_space(&self) -> FreeSpace {
        let within_quota =
            if self.quota_bytes == 0 { u64::MAX } else { self.quota_bytes.saturating_sub(self.stored) };
        let objects_used_up = self.quota_objects > 0 && self.objects >= self.quota_objects;
        let available = if objects_used_up { 0 } else { self.max_avail.min(within_quota) };
        FreeSpace { available, full: available == 0 }
    }
}

impl MonitorClient<'_> {
    /// The free space in every pool, by name.
    pub fn free_spaces(&self) -> Result<BTreeMap<String, FreeSpace>> {
        self.usage("the pools")
    }

    /// The free space in one pool; None if there is no such pool.
    pub fn free_space(&self, pool: &str) -> Result<Option<FreeSpace>> {
        let look = || Ok(self.usage(&format!("pool {pool}"))?.get(pool).copied());
        match look()? {
            None if self.has_pool(pool)? => {
                self.call.wait_for("the manager to count a new pool", COUNTED_WITHIN, PAUSE, look)
            }
            found => Ok(found),
        }
    }

    /// Whether the pool exists: the manager counts a new one seconds later.
    fn has_pool(&self, pool: &str) -> Result<bool> {
        let output = self.ask(Class::Question, &[question("osd pool ls", None)]);
        let output = output.map_err(|failure| failure.into_error("list the pools"))?;
        Ok(read::<Vec<String>>("ceph osd pool ls", &output.stdout)?.iter().any(|it| it == pool))
    }

    /// `ceph df detail`: one process shows space, use and quotas of all pools. max_avail is 0 if OSDs are
    /// full.
    fn usage(&self, of: &str) -> Result<BTreeMap<String, FreeSpace>> {
        let output = self.ask(Class::Question, &[question("df", Some("detail"))]);
        let output = output.map_err(|failure| failure.into_error(format!("look for free space in {of}")))?;
        let usage = read::<Usage>("ceph df", &output.stdout)?;
        Ok(usage.pools.into_iter().map(|pool| (pool.name, pool.stats.free_space())).collect())
    }
}
