//! What a daemon remembers of its clusters.

use crate::backend::ReplicationTerms;
use crate::backend::ceph::cache::{Brief, Cache};
use crate::backend::ceph::claim::FirstSeen;
use crate::backend::ceph::domains::{Choice, DomainPools};
use crate::backend::ceph::health::Health;
use crate::backend::ceph::locations::Locations;
use crate::backend::rbd::image::record::RecordCache;
use crate::backend::rbd::snapshot::cache::SnapshotCache;
use crate::backend::rbd::tool::PoolOptions;
use crate::backend::replication::Schedule;
use crate::secrets::Secrets;

/// What is remembered of the clusters. Forgetting costs a few commands, and never data: an unpublish request
/// without secrets is refused, and the deletion of a volume that is being copied anew may find it absent.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub records: RecordCache,
    /// Volumes that were deleted, or found absent: a repeated deletion then looks before it writes.
    pub deleted: Cache<String, ()>,
    pub snapshots: SnapshotCache,
    pub claims: FirstSeen,
    /// The names that retained images had as volumes, by their ids. They never change.
    pub former_names: Cache<String, String>,
    pub locations: Locations,
    pub domains: DomainPools,
    /// Where topology has placed volumes, by the keys of their locks.
    pub placed: Cache<String, Choice>,
    pub health: Health,
    /// The secrets of the requests that published volumes, by the volumes' keys: for unpublish requests
    /// without secrets.
    pub published_with: Cache<String, Secrets>,
    /// Clients that are daemons of rbd-mirror, by cluster and client. This never changes.
    pub mirror_daemons: Cache<(String, String), ()>,
    /// The schedules of mirrored images, by their ids.
    pub schedules: Brief<Option<Schedule>>,
    /// The options of pools.
    pub pool_options: Brief<PoolOptions>,
    /// Images whose replication this daemon has enabled completely, by their ids, with the terms.
    pub enabled: Brief<ReplicationTerms>,
    /// Images that this daemon has promoted completely, schedule included, by their ids, with the schedules
    /// of the requests.
    pub scheduled: Brief<Option<Schedule>>,
    /// Pools whose images can be mirrored, and pools without a mirrored image, by the prefix of their keys.
    pub mirrored: Brief<()>,
    pub unmirrored: Brief<()>,
    /// Volumes that are being copied anew, by their keys.
    pub resyncs: Brief<()>,
}
