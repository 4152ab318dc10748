//! What a storage backend must be able to do, in one trait that knows no protocol and no kind of storage.
//!
//! The caller holds the lock of every object it names and has checked the request; the backend knows where
//! its objects live, answers the same request the same way after a crash at any step, and never leaves a
//! half-made object under a final name.

pub mod ceph;
pub mod creation_record;
pub mod local;
mod parameters;
pub mod rbd;
pub mod registry;
pub mod types;

pub use self::registry::Backends;
pub use self::types::{
    Begin, BeginWith, Capacity, Condition, Deleted, Deletion, Device, NewSnapshot, NewVolume, NodeContext,
    Origin, Part, Publication, Snapshot, SnapshotFilter, Unpublished, Volume,
};

use crate::call::Call;
use crate::csi::{Capability, Map, SizeRange, TopologyRequirement};
use crate::error::Result;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// A kind of storage.
pub trait Backend: Send + Sync {
    /// The first field of its IDs.
    fn name(&self) -> &'static str;

    /// Why nothing can work at all, if so. Asked by every Probe: answers from memory.
    fn ready(&self) -> Result<()>;

    /// Why volumes can neither be made nor be given to nodes here, if so. Looks at this machine alone, not at
    /// the storage.
    fn can_manage(&self) -> Result<()> {
        self.ready()
    }

    /// Why no volume can be attached to this node, if so. Looks at this machine alone, not at the storage.
    fn can_attach(&self) -> Result<()>;

    /// The topology segments of this node; None where volumes are reachable from everywhere.
    fn topology(&self) -> Option<Map>;

    /// Where a volume with these parameters would live. Refuses unknown parameters and unreachable
    /// topologies; touches nothing.
    fn placement(&self, parameters: &Map, mutable: &Map, topology: &TopologyRequirement) -> Result<Place>;

    /// Whether an ID of this backend could be one of this set-up's objects; others do not exist.
    fn knows(&self, place: &Place) -> bool;

    /// Whether the storage is reached through a network, and so may not answer for a while.
    fn is_elsewhere(&self) -> bool {
        false
    }

    /// The node whose controller serves objects at `place`, if that is not this one.
    fn home(&self, _place: &Place) -> Option<String> {
        None
    }

    /// Why a volume cannot be used like this, if so.
    fn supports(&self, capability: &Capability) -> Result<()>;

    /// Makes the volume, or finds the one made by the same request. `begin` is called before the first
    /// change.
    fn create(&self, call: &Call, new: &NewVolume, begin: Begin<'_>) -> Result<Volume>;

    /// Deletes a volume that nobody uses. `begin` is called with the ID as it is meant, before the first
    /// change.
    ///
    /// # Errors
    /// [`Kind::HasSnapshots`](crate::error::Kind::HasSnapshots) for a volume whose storage its snapshots
    /// would keep, if they may not outlive it: it stays as it was.
    fn delete(&self, call: &Call, deletion: &Deletion<'_>, begin: BeginWith<'_>) -> Result<Deleted>;

    /// Looks a volume up, by object and incarnation.
    fn find(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>>;

    /// The same, with the nodes it is published to and its condition, which may take more questions.
    fn inspect(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<Option<Volume>> {
        self.find(call, id, secrets)
    }

    /// Whether [`Backend::list`] tells the nodes that volumes are published to.
    fn lists_nodes(&self) -> bool {
        true
    }

    /// Up to `limit` volumes (0: all) whose keys follow `after`.
    fn list(&self, call: &Call, after: &str, limit: usize) -> Result<Part<Volume>>;

    /// Room for volumes with these parameters.
    fn capacity(&self, call: &Call, parameters: &Map) -> Result<Capacity>;

    /// Makes the volume at least as large as asked, never smaller; gives its size.
    fn expand(&self, call: &Call, id: &VolumeId, size: &SizeRange, secrets: &Secrets) -> Result<u64>;

    /// Changes settings of a volume; without any, only says whether it is there.
    fn modify(&self, call: &Call, id: &VolumeId, parameters: &Map, secrets: &Secrets) -> Result<()>;

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

    /// Takes the snapshot, or finds the one taken by the same request. `begin` is called before the first
    /// change.
    fn create_snapshot(&self, call: &Call, new: &NewSnapshot, begin: Begin<'_>) -> Result<Snapshot>;

    /// Deletes a snapshot that nobody uses.
    fn delete_snapshot(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted>;

    /// Looks a snapshot up.
    fn find_snapshot(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>>;

    /// Up to `limit` snapshots (0: all) whose keys follow `after`.
    fn list_snapshots(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        after: &str,
        limit: usize,
    ) -> Result<Part<Snapshot>>;

    /// Attaches the volume to this node, or finds the device it is attached as.
    fn attach(&self, call: &Call, id: &VolumeId, context: &NodeContext<'_>) -> Result<Device>;

    /// The device the volume is attached as, asked of the kernel: also when its place is none of this set-up
    /// any more.
    fn attached(&self, id: &VolumeId) -> Result<Option<Device>>;

    /// Detaches the volume from this node; one that is not attached is detached. `alone` says that it was
    /// attached without the controller, so that [`Backend::attach`] did the controller's part: it is undone,
    /// as who the request's secrets say, unless its place is none of this set-up any more.
    fn detach(&self, call: &Call, id: &VolumeId, alone: bool, secrets: &Secrets) -> Result<()>;

    /// Lets the device follow the volume's size. One that does so by itself is waited for, until it has
    /// `least` bytes.
    fn refresh(&self, call: &Call, id: &VolumeId, device: &Device, least: u64) -> Result<()>;

    /// What the kernel tells to be wrong with the attached volume's device, without any I/O.
    fn device_condition(&self, _id: &VolumeId) -> Result<Condition> {
        Ok(None)
    }

    /// Cleans up after a crash; called once, before anything else and only by the copy that serves the
    /// controller.
    fn recover(&self) -> Result<()>;
}
