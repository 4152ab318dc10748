//! What a storage backend must be able to do, in traits that know no protocol and no kind of storage.
//!
//! A backend is its roles: what it is and where things lie ([`Backend`]), the controller's work on volumes
//! ([`Volumes`]), snapshots ([`Snapshots`]) and publications ([`Publisher`]), and the work on a node
//! ([`NodeDriver`]).
//!
//! The caller holds the lock of every object it names and has checked the request; the backend knows where
//! its objects live, answers the same request the same way after a crash at any step, and never leaves a
//! half-made object under a final name. It waits for others by [`Call::wait_for`], so that a call that waits
//! occupies no worker.

pub mod ceph;
pub mod creation_record;
pub mod local;
mod parameters;
pub mod rbd;
pub mod registry;
pub mod replication;
mod size;
pub mod types;

pub use self::registry::Backends;
pub use self::replication::{
    MirroringMode, Promotion, Replicated, Replication, ReplicationHealth, ReplicationInfo, ReplicationRole,
    ReplicationTerms, Schedule,
};
pub use self::types::{
    AttachedImage, Attachment, BegunRenames, BlockDevice, Capacity, Condition, Deleted, Deletion,
    FenceClient, Interrupted, NewSnapshot, NewVolume, NodeContext, Origin, Page, Placement, PlacementRequest,
    Publication, PublishedBy, RecordDeletion, Rename, Served, Service, Snapshot, SnapshotFilter, Traits,
    Unpublished, Volume, WriteDown,
};

use ipnet::IpNet;

use crate::csi::{Capability, Map, SizeRange};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// A kind of storage. What is asked here is answered from memory.
pub trait Backend: Send + Sync {
    /// The first field of its IDs.
    fn name(&self) -> &'static str;

    /// What it is like.
    fn traits(&self) -> Traits;

    /// Whether anybody has set it up, as far as is known now. One that nobody has is not offered, but what is
    /// in use of it can be given up.
    fn is_set_up(&self) -> bool {
        true
    }

    /// Why it cannot do this on this machine, if so; says nothing about the storage. Every Probe asks.
    fn health(&self, service: Service) -> Result<()>;

    /// The topology segments of this node; None where volumes are reachable from everywhere.
    fn topology(&self) -> Option<Map>;

    /// Where a volume that is asked for like this would live. Refuses unknown parameters and unreachable
    /// topologies.
    fn place(&self, request: &PlacementRequest<'_>) -> Result<Placement>;

    /// The place in its one spelling: a cluster may be served under names that others have for it.
    fn canonical(&self, place: &Place) -> Place {
        place.clone()
    }

    /// Whether objects at `place` are served here. An ID of a place that is served nowhere means nothing.
    fn serves(&self, place: &Place) -> Served;

    /// Why a volume cannot be used like this, if so.
    fn supports(&self, capability: &Capability) -> Result<()>;

    /// Cleans up after a crash; called once, before anything else and only by the copy that serves the
    /// controller.
    fn recover(&self) -> Result<()>;

    /// Its volumes.
    fn volumes(&self) -> &dyn Volumes;

    /// Its snapshots.
    fn snapshots(&self) -> &dyn Snapshots;

    /// Who gives its volumes to nodes.
    fn publisher(&self) -> &dyn Publisher;

    /// Who attaches its volumes to this node.
    fn node(&self) -> &dyn NodeDriver;

    /// Who replicates its volumes; None where nobody does.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }
}

/// The volumes of a backend: the controller's work on them.
pub trait Volumes {
    /// The ID with the incarnation that is meant: of one that a caller named without, the volume's own, where
    /// it has one. None: there is no such volume. An ID that has its incarnation is returned without a look.
    fn resolve(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<VolumeId>>;

    /// Whether the source of a copy is locked while the copy is made.
    fn locks_sources(&self) -> bool {
        true
    }

    /// Makes the volume, or finds the one made by the same request.
    fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume>;

    /// Deletes an unused volume by its resolved ID. `record_deletion` is called before the first
    /// change.
    ///
    /// # Errors
    /// [`Kind::HasSnapshots`](crate::error::Kind::HasSnapshots) for a volume whose storage its snapshots
    /// would keep, if they may not outlive it: it stays as it was.
    fn delete(
        &self,
        call: &Call,
        deletion: &Deletion<'_>,
        record_deletion: RecordDeletion<'_>,
    ) -> Result<Deleted>;

    /// Finishes a deletion that a crash interrupted. A volume that is whole may have been reported as present
    /// since, so it stays. Only called where the storage is remote: elsewhere deletions are not recorded.
    fn finish_deletion(&self, _call: &Call, _id: &VolumeId, _secrets: &Secrets) -> Result<Interrupted> {
        Ok(Interrupted::Whole)
    }

    /// Looks a volume up, by object and incarnation.
    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>>;

    /// The same, with the nodes it is published to and its condition, which may take more questions.
    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.find(call, id, secrets)
    }

    /// Up to `limit` volumes (0: all) whose keys follow `after`.
    fn list(&self, call: &Call, after: &str, limit: usize) -> Result<Page<Volume>>;

    /// Room for volumes with these parameters, for these uses, reachable from `topology` if that is said.
    fn capacity(
        &self,
        call: &Call,
        parameters: &Map,
        uses: &[Capability],
        topology: Option<&Map>,
    ) -> Result<Capacity>;

    /// Makes the volume at least as large as asked, never smaller; gives its size.
    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64>;

    /// Changes settings of a volume; without any, only says whether it is there.
    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()>;
}

/// The snapshots of a backend.
pub trait Snapshots {
    /// Takes the snapshot, or finds the one taken by the same request.
    fn create(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot>;

    /// Deletes a snapshot that nobody uses.
    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted>;

    /// As [`Volumes::finish_deletion`].
    fn finish_deletion(&self, _call: &Call, _id: &SnapshotId, _secrets: &Secrets) -> Result<Interrupted> {
        Ok(Interrupted::Whole)
    }

    /// Looks a snapshot up.
    fn find(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>>;

    /// Up to `limit` snapshots (0: all) whose keys follow `after`.
    fn list(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        secrets: &Secrets,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>>;
}

/// Publishes volumes to nodes and unpublishes them: the controller's part of it.
pub trait Publisher {
    /// Records that a node may use the volume, if it is there; gives what that node needs to know.
    fn publish(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map>;

    /// Takes the volume back from a node, or from all.
    fn unpublish(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished>;
}

/// Shuts hosts and networks out of a cluster's storage, by their addresses, and lets them in again.
pub trait Fencing: Send + Sync {
    /// Whether there is a cluster.
    fn is_set_up(&self) -> bool;

    /// The name of the cluster that is meant: the one that was asked for, or the only one there is.
    fn cluster(&self, asked: Option<&str>) -> Result<String>;

    /// Shuts networks out for good. Refuses those that hold addresses of the cluster itself and, unless
    /// `allow_self`, of this host. Networks have no host bits.
    fn fence(
        &self,
        call: &Call,
        cluster: &str,
        networks: &[IpNet],
        allow_self: bool,
        secrets: &Secrets,
    ) -> Result<()>;

    /// Lets networks in again that are shut out as these very networks; others are let in.
    fn unfence(&self, call: &Call, cluster: &str, networks: &[IpNet], secrets: &Secrets) -> Result<()>;

    /// What is shut out for good.
    fn fences(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<IpNet>>;

    /// What has to be fenced to shut this host out.
    fn clients(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<FenceClient>>;
}

/// Attaches volumes to this node.
pub trait NodeDriver {
    /// Attaches the volume to this node, or takes what it was `found` attached as in this call. `write_down`
    /// is called first where the image may be another one than the ID says; all other calls are made with an
    /// ID that has it.
    fn attach(
        &self,
        call: &Call,
        id: &VolumeId,
        found: Option<&Attachment>,
        context: &NodeContext<'_>,
        write_down: WriteDown<'_>,
    ) -> Result<Attachment>;

    /// Writes down that this node has published the volume to itself, for a backend that does not do so as it
    /// attaches the volume. [`NodeDriver::detach`] undoes it.
    fn publish_here(&self, _id: &VolumeId, _publication: &Publication) -> Result<()> {
        Ok(())
    }

    /// What the volume is attached as, asked of the kernel: also when its place is no longer
    /// configured here.
    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>>;

    /// Whether nothing of the volume is attached to this node, not even a device that goes as soon as nobody
    /// has it open.
    fn is_absent(&self, id: &VolumeId) -> Result<bool> {
        Ok(self.attached(id)?.is_none())
    }

    /// Detaches the volume from this node; one that is not attached is detached. What the node
    /// did in the controller's stead is undone, as who the request's secrets say, unless the volume's place
    /// is no longer configured here.
    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()>;

    /// Takes back what was written into the storage of a volume that this node used before it booted.
    fn forget_earlier_boots(&self, _call: &Call, _id: &VolumeId) -> Result<()> {
        Ok(())
    }

    /// Lets the attachment follow the volume's size. One that does so by itself is waited for, until it has
    /// `least` bytes.
    fn grow(&self, call: &Call, id: &VolumeId, attachment: &Attachment, least: u64) -> Result<()>;

    /// Why what the volume is attached as, for this publication, cannot be used as it is wanted now: it can
    /// only fail from now on, as the storage says, or it is not what is meant any more. None also where
    /// nobody can say.
    fn lost(
        &self,
        _call: &Call,
        _id: &VolumeId,
        (_attachment, _attached_for): (&Attachment, &str),
        _wanted: &NodeContext<'_>,
    ) -> Result<Condition> {
        Ok(None)
    }

    /// What is wrong with the attached volume: what the kernel reports without any I/O, and where it knows
    /// nothing, what the storage does.
    fn condition(&self, _call: &Call, _id: &VolumeId) -> Result<Condition> {
        Ok(None)
    }
}
