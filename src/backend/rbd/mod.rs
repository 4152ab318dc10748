//! The RBD backend: volumes that are images of a Ceph cluster.
//!
//! The cluster is the truth. What is needed to answer a request again lies in it:
//!
//! | what | where |
//! |---|---|
//! | a volume | image `csi-vol-<32 hex>`, from the name in the request; its id is the incarnation |
//! | how it was asked for | `cephlet.request` in the image's metadata |
//! | a snapshot | snapshot `csi-snap-<16 hex>` of its source |
//! | the name of a snapshot | a lock on the object `cephlet.snap.<16 hex>`, whose cookie is the source's id |
//! | to which nodes a volume is given | locks on the image's header: cookie = node |
//! | a copy that is being made | image `csi-tmp-…`, renamed when it is whole |
//! | a deleted volume whose snapshots live on | image `csi-held-<id>` |

mod image;
mod jobs;
mod lanes;
mod locations;
mod names;
pub mod node;
mod parameters;
mod placement;
mod publish;
mod snapshot;
pub mod tool;

#[cfg(test)]
pub(crate) mod tests;

pub use self::parameters::{LIMITS, PARAMETERS};

use std::sync::Arc;
use std::time::Duration;

use self::image::gone::Gone;
use self::image::inspect::Recent;
use self::image::records::Records;
use self::image::temporaries::InProgress;
use self::jobs::Chores;
use self::jobs::flatten::Depths;
use self::jobs::preempt::Flattenings;
use self::locations::Pools;
use self::node::Mapper;
use self::snapshot::Shots;
use self::tool::RbdTool;
use super::{
    Attachment, Backend, Begin, Capacity, Condition, Deleted, Deletion, NewSnapshot, NewVolume, NodeContext,
    NodeDriver, Page, PlacementRequest, Publication, PublishedBy, Publisher, Served, Service, Snapshot,
    SnapshotFilter, Snapshots, Traits, Unpublished, Volume, Volumes,
};
use crate::backend::parameters::check_file_system;
use crate::call::Call;
use crate::clusters::Clusters;
use crate::csi::{Access, Capability, Map, SizeRange};
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// The first field of IDs.
const NAME: &str = "rbd";
/// What ending a command takes that has used up its time.
const KILL: Duration = Duration::from_secs(5);
/// Far longer than a snapshot takes once its name is claimed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Volumes in Ceph clusters.
pub struct Rbd {
    clusters: Arc<Clusters>,
    tool: Arc<dyn RbdTool>,
    mapper: Mapper,
    node: String,
    /// Tells the temporary images of this controller from those of others: the same after a restart, whatever
    /// was lost.
    tag: String,
    records: Records,
    pools: Pools,
    recent: Recent,
    gone: Gone,
    temporaries: InProgress,
    chores: Arc<Chores>,
    shots: Shots,
    depths: Depths,
    flattenings: Flattenings,
    /// How long another controller's claim to a name is watched before it counts as dead.
    patience: Duration,
    /// What a command may take, and may wait for its turn: CEPHLET_TOOL_TIMEOUT.
    tool_timeout: Duration,
}

impl std::fmt::Debug for Rbd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rbd").field("clusters", &self.clusters).finish_non_exhaustive()
    }
}

impl Rbd {
    /// The volumes of `clusters`, reached through `tool`, for the node `node`. `tag` is 8 hexadecimal digits
    /// that no other controller of these clusters has, and that this one has again after a restart. No
    /// command of `tool` takes longer than `tool_timeout`, nor waits for longer before.
    pub fn new(
        clusters: Arc<Clusters>,
        tool: Arc<dyn RbdTool>,
        mapper: Mapper,
        node: &str,
        tag: &str,
        tool_timeout: Duration,
    ) -> Self {
        Self {
            clusters,
            tool,
            mapper,
            node: node.to_string(),
            tag: tag.to_string(),
            records: Records::default(),
            pools: Pools::default(),
            recent: Recent::default(),
            gone: Gone::default(),
            temporaries: InProgress::default(),
            chores: Arc::default(),
            shots: Shots::default(),
            depths: Depths::default(),
            flattenings: Flattenings::default(),
            patience: PATIENCE,
            tool_timeout,
        }
    }
}

impl Rbd {
    /// From asking for a command that changes something to its end: it waits for its turn, and then runs, for
    /// CEPHLET_TOOL_TIMEOUT each at most.
    fn longest_command(&self) -> Duration {
        2 * self.tool_timeout + KILL
    }
}

impl Rbd {
    fn ready(&self) -> Result<()> {
        self.clusters.trouble().map_or(Ok(()), |why| Err(Error::precondition(why)))
    }
}

impl Backend for Rbd {
    fn name(&self) -> &'static str {
        NAME
    }

    /// The nodes of a publication are locks on every single image: two processes each.
    fn traits(&self) -> Traits {
        Traits { is_remote: true, lists_published_nodes: false }
    }

    fn health(&self, service: Service) -> Result<()> {
        self.ready()?;
        match service {
            Service::Any => Ok(()),
            Service::Controller => self.tool.usable(),
            Service::Node => self.mapper.usable(),
        }
    }

    fn topology(&self) -> Option<Map> {
        None
    }

    fn place(&self, request: &PlacementRequest<'_>) -> Result<Place> {
        self.place_for(request.parameters, request.mutable_parameters)
    }

    fn serves(&self, place: &Place) -> Served {
        match self.clusters.find(&place.cluster) {
            Ok(None) => Served::Nowhere,
            Ok(Some(_)) | Err(_) => Served::Here,
        }
    }

    fn supports(&self, capability: &Capability) -> Result<()> {
        check_file_system(capability)?;
        match &capability.access {
            Access::Mount { .. } if capability.mode.is_multi_node() && !capability.mode.is_read_only() => {
                Err(Error::invalid(format!(
                    "a file system on an RBD image breaks when two nodes have it mounted and one writes, so \
                     the access mode {:?} is not \
                 possible: use it as a block volume, or a CephFS volume",
                    capability.mode
                )))
            }
            _ => Ok(()),
        }
    }

    fn recover(&self) -> Result<()> {
        self.sweep();
        Ok(())
    }

    fn volumes(&self) -> &dyn Volumes {
        self
    }

    fn snapshots(&self) -> &dyn Snapshots {
        self
    }

    fn publisher(&self) -> &dyn Publisher {
        self
    }

    fn node(&self) -> &dyn NodeDriver {
        self
    }
}

impl Volumes for Rbd {
    fn resolve(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<VolumeId>> {
        self.resolve_volume(call, id, secrets)
    }

    fn create(&self, call: &Call, new: &NewVolume, begin: Begin<'_>) -> Result<Volume> {
        self.create_volume(call, new, begin)
    }

    fn delete(&self, call: &Call, deletion: &Deletion<'_>, begin: Begin<'_>) -> Result<Deleted> {
        self.delete_volume(call, deletion, begin)
    }

    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.find_volume(call, id, secrets)
    }

    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.inspect_volume(call, id, secrets)
    }

    fn list(&self, call: &Call, after: &str, limit: usize) -> Result<Page<Volume>> {
        self.list_volumes(call, after, limit)
    }

    fn capacity(&self, call: &Call, parameters: &Map) -> Result<Capacity> {
        self.room_for(call, parameters)
    }

    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64> {
        self.expand_volume(call, id, size, secrets)
    }

    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()> {
        self.modify_volume(call, id, parameters, secrets)
    }
}

impl Snapshots for Rbd {
    fn create(&self, call: &Call, new: &NewSnapshot, begin: Begin<'_>) -> Result<Snapshot> {
        self.take_snapshot(call, new, begin)
    }

    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        self.drop_snapshot(call, id, secrets)
    }

    fn find(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>> {
        self.look_up_snapshot(call, id, secrets)
    }

    fn list(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        self.snapshots_after(call, filter, after, limit)
    }
}

impl Publisher for Rbd {
    fn publish(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map> {
        self.publish_volume(call, id, publication, secrets)
    }

    fn unpublish(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished> {
        self.unpublish_volume(call, id, node, secrets)
    }
}

impl NodeDriver for Rbd {
    fn attach(&self, call: &Call, id: &VolumeId, context: &NodeContext<'_>) -> Result<Attachment> {
        self.attach_volume(call, id, context).map(Attachment::Block)
    }

    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>> {
        Ok(self.device_of(id)?.map(Attachment::Block))
    }

    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()> {
        self.detach_volume(call, id, published, secrets)
    }

    fn grow(&self, call: &Call, id: &VolumeId, _attachment: &Attachment, least: u64) -> Result<()> {
        self.refresh_device(call, id, least)
    }

    fn condition(&self, id: &VolumeId) -> Result<Condition> {
        self.condition_of_device(id)
    }
}
