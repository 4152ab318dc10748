//! The tasks of a storage backend, as traits that are independent of the protocol and the kind of storage.
//!
//! A backend is divided into roles: its properties and places ([`Backend`]), the controller's work on volumes
//! ([`Volumes`]), snapshots ([`Snapshots`]) and publications ([`Publisher`]), and the work on a node
//! ([`NodeDriver`]).
//!
//! The caller holds the lock of every object it names and has checked the request. The backend knows where
//! its objects live, answers the same request the same way after a crash at any step, and never leaves a
//! half-made object under a final name. It waits for others by [`Call::wait_for`], so that a waiting call
//! occupies no worker.

pub mod ceph;
pub mod cephfs;
mod condition;
pub mod creation_record;
pub mod finding;
pub mod local;
mod parameters;
pub mod rbd;
pub mod registry;
pub mod replication;
mod size;
pub mod types;
pub mod within;

pub use self::condition::{Condition, Fault, Reason};
pub use self::finding::{DeviceHere, Finding};
pub use self::parameters::RootSettings;
pub use self::registry::Backends;
pub use self::replication::{
    MirroringMode, Promotion, Replicated, Replication, ReplicationHealth, ReplicationInfo, ReplicationRole,
    ReplicationTerms, Schedule,
};
pub use self::types::{
    AttachedImage, Attachment, BegunRenames, BlockDevice, Capacity, Deleted, Deletion, FileTree, Interrupted,
    NewSnapshot, NewVolume, NodeContext, Origin, Page, Placement, PlacementRequest, Publication, PublishedBy,
    RecordDeletion, Rename, Served, Service, Snapshot, SnapshotFilter, Traits, Unlisted, Unpublished, Volume,
    WriteDown,
};

use std::path::Path;

use ipnet::IpNet;

use crate::csi::{Capability, Map, SizeRange};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::kernel::ceph::TreeToMount;
use crate::secrets::Secrets;
use crate::sys::mountinfo::Mount;

/// A kind of storage. The methods of this trait answer from memory, unless they say otherwise.
pub trait Backend: Send + Sync {
    /// The first field of its IDs.
    fn name(&self) -> &'static str;

    /// The properties of this kind of storage.
    fn traits(&self) -> Traits;

    /// Whether the backend is set up, as far as is known now. A backend that is not set up is not offered,
    /// but its volumes in use can be given up.
    fn is_set_up(&self) -> bool {
        true
    }

    /// An error if the backend cannot do this on this machine; the storage is not asked. Every Probe asks.
    fn health(&self, service: Service) -> Result<()>;

    /// What is wrong with the storage as a whole, as this node reaches it. Unlike the other methods this one
    /// looks, and may have to wait for the storage: callers give it a thread of its own.
    fn storage_faults(&self, call: &Call) -> Vec<Fault>;

    /// What a controller finds in the storage that is not as it should be, except for the conditions of
    /// volumes. Looks everywhere, but not for long at storage that does not answer.
    fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// The topology segments of this node; None if volumes are reachable from everywhere.
    fn topology(&self) -> Option<Map> {
        None
    }

    /// Where a volume of this request would live. Refuses unknown parameters and unreachable topologies.
    fn place(&self, request: &PlacementRequest<'_>) -> Result<Placement>;

    /// The canonical spelling of the place: a cluster may also be served under names that other sites use.
    fn canonical(&self, place: &Place) -> Place {
        place.clone()
    }

    /// Whether objects at `place` are served here. An ID of a place that is served nowhere means nothing.
    fn serves(&self, place: &Place) -> Served;

    /// An error if a volume cannot be used like this.
    fn supports(&self, capability: &Capability) -> Result<()>;

    /// Cleans up after a crash. Called once, before anything else, and only in the instance that serves the
    /// controller.
    fn recover(&self) -> Result<()>;

    /// The volumes of the backend.
    fn volumes(&self) -> &dyn Volumes;

    /// The snapshots of the backend.
    fn snapshots(&self) -> &dyn Snapshots;

    /// The role that publishes volumes to nodes.
    fn publisher(&self) -> &dyn Publisher;

    /// The role that attaches volumes to this node.
    fn node(&self) -> &dyn NodeDriver;

    /// The role that replicates volumes; None if the backend has no replication.
    fn replication(&self) -> Option<&dyn Replication> {
        None
    }
}

/// A volume by its name, and where to look for it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// What the names of its object have in common: see [`ids::common_object`](crate::ids::common_object).
    pub object: &'a str,
    /// As for a new volume. They name the places to look at.
    pub parameters: &'a Map,
}

/// The volumes of a backend: the controller's work on them.
pub trait Volumes {
    /// The ID with its incarnation, which is looked up if the ID has none and the backend knows incarnations.
    /// None if there is no such volume. An ID with an incarnation is returned without a look.
    fn resolve(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<VolumeId>>;

    /// The volumes of this name, in the places that the parameters name, or else where a volume without
    /// parameters would be made.
    ///
    /// # Errors
    /// `InvalidArgument`: the parameters are not for this backend.
    fn named(&self, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>>;

    /// Whether the source of a copy is locked while the copy is made.
    fn locks_sources(&self) -> bool {
        true
    }

    /// Makes the volume, or finds the one made by the same request.
    fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume>;

    /// Deletes an unused volume by its resolved ID. A backend that
    /// [records deletions](Traits::records_deletions) calls `record_deletion` before the first change.
    ///
    /// # Errors
    /// [`Kind::HasSnapshots`](crate::error::Kind::HasSnapshots) if snapshots would keep the volume's storage
    /// and may not outlive the volume: it stays as it was.
    fn delete(
        &self,
        call: &Call,
        deletion: &Deletion<'_>,
        record_deletion: RecordDeletion<'_>,
    ) -> Result<Deleted>;

    /// Finishes a deletion that a crash interrupted. A whole volume may have been reported as present since
    /// then, so it stays. Only called for a backend that records deletions.
    fn finish_deletion(&self, _call: &Call, _id: &VolumeId, _secrets: &Secrets) -> Result<Interrupted> {
        Ok(Interrupted::Whole)
    }

    /// Looks a volume up, by object and incarnation.
    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>>;

    /// Like `find`, plus the nodes it is published to and its condition, which may take more questions.
    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.find(call, id, secrets)
    }

    /// Up to `limit` volumes (0: all) whose keys follow `after`. `unlisted` decides about each place that
    /// cannot be listed: a list without the volumes of that place would say that they are gone.
    fn list(
        &self,
        call: &Call,
        after_and_limit: (&str, usize),
        unlisted: Unlisted<'_>,
    ) -> Result<Page<Volume>>;

    /// The name in the request that made a listed volume, if that can be learnt without a process.
    fn name(&self, _call: &Call, _id: &VolumeId) -> Result<Option<String>> {
        Ok(None)
    }

    /// The key of a volume in lists.
    fn list_key(&self, id: &VolumeId) -> String {
        id.key()
    }

    /// Room for volumes with these parameters and uses, reachable from `topology` if that is given.
    fn capacity(
        &self,
        call: &Call,
        parameters: &Map,
        uses: &[Capability],
        topology: Option<&Map>,
    ) -> Result<Capacity>;

    /// Makes the volume at least as large as asked, never smaller; returns its size.
    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64>;

    /// Changes settings of a volume; without parameters, only checks that the volume exists.
    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()>;
}

/// The snapshots of a backend.
pub trait Snapshots {
    /// Takes the snapshot, or finds the one taken by the same request.
    fn create(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot>;

    /// Deletes an unused snapshot.
    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted>;

    /// Like [`Volumes::finish_deletion`].
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

/// Publishes volumes to nodes and unpublishes them: the controller's part.
pub trait Publisher {
    /// Records that a node may use the volume, if the volume exists; returns what that node needs to know.
    /// The node is one that [`refuse_node`](crate::ids::refuse_node) admits: other names are those of other
    /// locks.
    fn publish(
        &self,
        call: &Call,
        id: &VolumeId,
        publication: &Publication,
        secrets: &Secrets,
    ) -> Result<Map>;

    /// Takes the volume back from a node, or from all nodes.
    fn unpublish(
        &self,
        call: &Call,
        id: &VolumeId,
        node: Option<&str>,
        secrets: &Secrets,
    ) -> Result<Unpublished>;
}

/// This host as a cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceClient {
    /// The cluster's own ID.
    pub id: String,
    /// The addresses from which this host reaches the cluster.
    pub addresses: Vec<IpNet>,
}

/// Shuts hosts and networks out of a cluster's storage, by their addresses, and lets them in again.
pub trait Fencing: Send + Sync {
    /// Whether a cluster is set up.
    fn is_set_up(&self) -> bool;

    /// The name of the requested cluster, or of the only one there is.
    fn cluster(&self, asked: Option<&str>) -> Result<String>;

    /// Shuts networks out for good. Refuses networks that contain addresses of monitors, OSDs or the
    /// active manager and, unless `allow_self`, of this host. Networks have no host bits.
    fn fence(
        &self,
        call: &Call,
        cluster: &str,
        networks: &[IpNet],
        allow_self: bool,
        secrets: &Secrets,
    ) -> Result<()>;

    /// Lifts the fences of exactly these networks; a network without a fence is no error.
    fn unfence(&self, call: &Call, cluster: &str, networks: &[IpNet], secrets: &Secrets) -> Result<()>;

    /// All networks that are shut out for good.
    fn fences(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<IpNet>>;

    /// The addresses that must be fenced to shut this host out.
    fn clients(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<FenceClient>>;
}

/// Attaches volumes to this node.
pub trait NodeDriver {
    /// Attaches the volume to this node, or returns its attachment `found` in this call if that is usable.
    /// `write_down` is called first if the image may differ from the incarnation in the ID; all other methods
    /// get an ID with the written image.
    fn attach(
        &self,
        call: &Call,
        id: &VolumeId,
        found: Option<&Attachment>,
        context: &NodeContext<'_>,
        write_down: WriteDown<'_>,
    ) -> Result<Attachment>;

    /// Records that this node has published the volume to itself, for a backend that does not record it while
    /// attaching. [`NodeDriver::detach`] undoes it.
    fn publish_here(&self, _id: &VolumeId, _publication: &Publication) -> Result<()> {
        Ok(())
    }

    /// Mounts a tree of files on an existing directory, which is no mount point.
    fn mount(&self, _call: &Call, tree: &TreeToMount, _at: &Path) -> Result<()> {
        Err(Error::internal(format!("this backend mounts no trees of files, such as {tree}")))
    }

    /// The present attachment of the volume, from the kernel: also if its place is no longer configured here.
    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>>;

    /// Whether nothing of the volume is attached to this node, not even a device that disappears once it is
    /// closed.
    fn is_absent(&self, id: &VolumeId) -> Result<bool> {
        Ok(self.attached(id)?.is_none())
    }

    /// Detaches the volume from this node; a volume that is not attached counts as detached. If the node
    /// published the volume to itself, that is undone with the request's secrets, unless the volume's place
    /// is no longer configured here.
    fn detach(&self, call: &Call, id: &VolumeId, published: PublishedBy, secrets: &Secrets) -> Result<()>;

    /// Whether a mount is one of the attached image, as the kernel alone tells: its own mount point may have
    /// been unmounted by hand.
    fn is_mount_of(&self, _id: &VolumeId, _mount: &Mount) -> bool {
        false
    }

    /// The devices of the backend's volumes on this node, also those that cephlet did not attach, unless they
    /// may be in use by another cephlet.
    fn devices(&self) -> Result<Vec<DeviceHere>> {
        Ok(Vec::new())
    }

    /// Removes what this node wrote into the storage of a volume that it used before it booted.
    fn forget_earlier_boots(&self, _call: &Call, _id: &VolumeId) -> Result<()> {
        Ok(())
    }

    /// Lets the attachment follow the volume's size. If it follows by itself, the call waits until it has
    /// `least` bytes.
    fn grow(&self, call: &Call, id: &VolumeId, attachment: &Attachment, least: u64) -> Result<()>;

    /// Why an attachment, made for this publication, cannot be used as it is wanted now: either the storage
    /// says that its I/O can only fail from now on, or it is not the wanted image any more. None also if the
    /// storage cannot tell.
    fn lost(
        &self,
        _call: &Call,
        _id: &VolumeId,
        (_attachment, _attached_for): (&Attachment, &str),
        _wanted: &NodeContext<'_>,
    ) -> Result<Option<String>> {
        Ok(None)
    }

    /// What is wrong with the attached volume: what the kernel reports without any I/O, and if the kernel
    /// reports nothing, what the storage reports.
    fn condition(&self, _call: &Call, _id: &VolumeId) -> Result<Condition> {
        Ok(None)
    }
}
