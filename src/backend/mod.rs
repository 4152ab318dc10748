//! What a storage backend must be able to do, in one trait that knows no protocol and no kind of storage.
//!
//! The caller holds the lock of every object it names and has checked the request; the backend knows where
//! its objects live, answers the same request the same way after a crash at any step, and never leaves a
//! half-made object under a final name.

pub mod ceph;
pub mod local;
pub mod rbd;
pub mod record;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::secrets::Secrets;
use crate::terms::{Capability, Map, SizeRange, Source, TopologyRequirement};

/// A volume that is to exist.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Where, as [`Backend::placement`] said.
    pub place: Place,
    /// The object's name there.
    pub object: String,
    /// The name in the request.
    pub name: String,
    /// How large.
    pub size: SizeRange,
    /// What it was asked with; kept in the creation record.
    pub parameters: Map,
    /// What it was asked with and may change later.
    pub mutable_parameters: Map,
    /// How it is to be used.
    pub capabilities: Vec<Capability>,
    /// What to copy: the text of the source, for the record, and what it means.
    pub source: Option<(Source, Origin)>,
    /// Credentials of the request.
    pub secrets: Secrets,
}

/// A content source whose ID was understood.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Another volume.
    Volume(VolumeId),
}

/// A volume as its backend knows it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Its ID, with its incarnation.
    pub id: VolumeId,
    /// Its size in bytes.
    pub size: u64,
    /// What every node needs to know of it.
    pub context: Map,
    /// The file system it was made for, if that is known.
    pub fs_type: Option<String>,
    /// What it was copied from, as the request said it.
    pub source: Option<Source>,
    /// From where it can be reached; empty for everywhere.
    pub topology: Vec<Map>,
    /// Nodes it is published to.
    pub published: Vec<String>,
    /// How it is doing; None where nobody looked.
    pub condition: Option<Condition>,
}

/// How a volume is doing: None is well, Some says what is wrong.
pub type Condition = Option<String>;

/// A snapshot as its backend knows it.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its ID.
    pub id: SnapshotId,
    /// The volume it was taken of.
    pub source: VolumeId,
    /// The size of a volume made from it, in bytes.
    pub size: u64,
    /// When it was taken.
    pub created: SystemTime,
}

/// A snapshot that is to exist.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// The volume to copy.
    pub source: VolumeId,
    /// The digits of its ID.
    pub digits: String,
    /// The name in the request.
    pub name: String,
    /// Credentials of the request.
    pub secrets: Secrets,
}

/// Which snapshots to list.
#[derive(Clone, Debug)]
pub enum SnapshotFilter {
    /// All.
    All,
    /// Those of one volume.
    Of(VolumeId),
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct Part<T> {
    /// The entries, in the order of their keys.
    pub entries: Vec<T>,
    /// The key after which the next part begins; None at the end. Entries that come and go meanwhile change
    /// nothing else.
    pub next: Option<String>,
}

/// Room for new volumes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// What is free and promised to nobody.
    pub available: u64,
    /// The largest single volume.
    pub largest: u64,
    /// The smallest single volume.
    pub smallest: u64,
}

/// How a volume was given to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The node.
    pub node: String,
    /// How it will be used.
    pub capability: Capability,
    /// Only for reading.
    pub read_only: bool,
}

/// Writes down that something is about to be changed; without it nothing may be. A repeated request that
/// changes nothing costs the journal nothing.
pub type Begin<'a> = &'a dyn Fn() -> Result<()>;

/// The same for a volume that the caller may have named without its incarnation: gets the ID with it, where
/// the volume has one. It may refuse, and then nothing is changed.
pub type BeginWith<'a> = &'a dyn Fn(&VolumeId) -> Result<()>;

/// A volume that is to go.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    /// The volume.
    pub id: &'a VolumeId,
    /// Its snapshots may outlive it, and with them the storage that they share with it.
    pub snapshots_may_outlive: bool,
    /// Credentials of the request.
    pub secrets: &'a Secrets,
}

/// Whether there was anything to delete. Each protocol says for itself what an absent object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It was there and is gone.
    Gone,
    /// It was not there.
    Absent,
}

/// What taking a volume back from nodes came to. Each protocol says for itself what an absent object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublished {
    /// No node that was meant has it, or has it any more.
    Done,
    /// There is no such volume.
    NoVolume,
    /// There is no such node.
    NoNode,
}

/// A volume attached to this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The block device.
    pub path: PathBuf,
    /// Nothing can be written through it.
    pub read_only: bool,
    /// A file whose holes are known to be zeros on the device, if there is one: a blank device is then known
    /// as such at once.
    pub sparse_file: Option<PathBuf>,
}

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

/// What the orchestrator passes to a node beside the volume.
#[derive(Clone, Copy, Debug)]
pub struct NodeContext<'a> {
    /// From the creation.
    pub volume: &'a Map,
    /// From the controller's publishing.
    pub publish: &'a Map,
    /// Credentials of the request.
    pub secrets: &'a Secrets,
    /// How it is to be used.
    pub capability: &'a Capability,
    /// Nothing is to be written to the device, whoever opens it.
    pub read_only: bool,
}

/// The backends that are set up.
#[derive(Clone)]
pub struct Backends(Vec<Arc<dyn Backend>>);

impl std::fmt::Debug for Backends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|backend| backend.name())).finish()
    }
}

impl Backends {
    /// These backends, at least one.
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        Self(backends)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.0.iter()
    }

    /// The backend a new volume's parameters ask for: by name, or the only one.
    pub fn for_parameters(&self, parameters: &Map) -> Result<&Arc<dyn Backend>> {
        let known = || self.0.iter().map(|backend| backend.name()).collect::<Vec<_>>().join(", ");
        match (parameters.get("backend"), self.0.as_slice()) {
            (None, [only]) => Ok(only),
            (None, _) => Err(Error::invalid(format!(
                "the parameter 'backend' is missing: set it to one of {}",
                known()
            ))),
            (Some(name), all) => all.iter().find(|backend| backend.name() == name).ok_or_else(|| {
                Error::invalid(format!("the parameter 'backend' is {name:?}: allowed are {}", known()))
            }),
        }
    }

    /// The node whose controller serves objects at `place`, if that is another than this.
    pub fn home(&self, place: &Place) -> Option<String> {
        self.0
            .iter()
            .filter(|backend| backend.name() == place.backend)
            .find_map(|backend| backend.home(place))
    }

    /// The backend for what is in use on this node: of the kind of `place`, be that place one of this set-up
    /// still or not.
    pub fn of_kind(&self, place: &Place) -> Option<&Arc<dyn Backend>> {
        self.0.iter().find(|backend| backend.name() == place.backend)
    }

    /// The backend that an object at `place` belongs to, if that place is one of this set-up.
    pub fn at(&self, place: &Place) -> Option<&Arc<dyn Backend>> {
        self.0.iter().find(|backend| backend.name() == place.backend && backend.knows(place))
    }
}
