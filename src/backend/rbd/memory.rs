//! What a daemon remembers of its clusters.

use crate::backend::ReplicationTerms;
use crate::backend::ceph::cache::{Brief, Cache};
use crate::backend::ceph::domains::{Choice, DomainPools};
use crate::backend::ceph::health::Health;
use crate::backend::ceph::locations::Locations;
use crate::backend::rbd::image::record::RecordCache;
use crate::backend::rbd::snapshot::cache::SnapshotCache;
use crate::backend::rbd::tool::PoolOptions;
use crate::backend::replication::Schedule;
use crate::secrets::Secrets;

/// What is remembered of the clusters. Forgetting costs a few processes, never a wrong answer.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub records: RecordCache,
    /// Volumes that were deleted, or found absent: a repeated deletion then looks before it writes.
    pub deleted: Cache<String, ()>,
    pub snapshots: SnapshotCache,
    /// What retained images were called as volumes, by their ids: that never changes.
    pub former_names: Cache<String, String>,
    /// How many parents an image has at most, by its id. It is fewer where somebody has flattened one of them
    /// since.
    pub parent_counts: Cache<String, usize>,
    pub locations: Locations,
    pub domains: DomainPools,
    /// Where topology has placed volumes, by the keys of their locks.
    pub placed: Cache<String, Choice>,
    pub health: Health,
    /// The secrets of the requests that published volumes, by the volumes' keys: for requests that take them
    /// back and bring none.
    pub published_with: Cache<String, Secrets>,
    /// Clients that are daemons of rbd-mirror, by cluster and client: they stay that.
    pub mirror_daemons: Cache<(String, String), ()>,
    /// The schedules of mirrored images, by their ids.
    pub schedules: Brief<Option<Schedule>>,
    /// The options of pools.
    pub pool_options: Brief<PoolOptions>,
    /// Images that this daemon has enabled the replication of, by their ids, to the end and like this.
    pub enabled: Brief<ReplicationTerms>,
    /// Images that this daemon has promoted to the end, schedule and all, by their ids, and the schedules
    /// that were asked for then.
    pub scheduled: Brief<Option<Schedule>>,
    /// Pools that can be mirrored, and those of which nothing is, as they begin their keys.
    pub mirrored: Brief<()>,
    pub unmirrored: Brief<()>,
    /// Volumes that are copied anew, by their keys.
    pub resyncs: Brief<()>,
}
