//! What backends and operations exchange.

use std::path::PathBuf;
use std::time::SystemTime;

use ipnet::IpNet;

use crate::backend::Replicated;
use crate::csi::{Capability, Map, SizeRange, Source, TopologyRequirement};
use crate::error::Result;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::kernel::Backing;
use crate::secrets::Secrets;
use crate::sys::block;
use crate::sys::mountinfo::{Mount, Mounts};

/// What a kind of storage is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// It is reached through a network: it may not answer for a while, and other nodes reach its volumes.
    pub is_remote: bool,
    /// Lists of its volumes name the nodes that they are published to.
    pub lists_published_nodes: bool,
}

/// What a copy of the daemon can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Anything at all.
    Any,
    /// Make volumes and give them to nodes.
    Controller,
    /// Attach volumes to this node.
    Node,
}

/// Who serves what lives at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// This configuration does.
    Here,
    /// Only the controller on this other node can reach it.
    ByNode(String),
    /// Nobody here, as long as the configuration does not say how to reach it.
    NotSetUp,
    /// Nobody: no configuration like this one could have given an ID of it.
    Nowhere,
}

/// What decides where a new volume goes.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The parameters of the request.
    pub parameters: &'a Map,
    /// Those that may change later.
    pub mutable_parameters: &'a Map,
    /// From where the volume must be reachable.
    pub topology: &'a TopologyRequirement,
}

/// Where a new volume goes, as far as that is known from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It will live here.
    At(Place),
    /// Topology chooses its pool while it is made; its name is registered here.
    Registered(Place),
}

/// A volume that is to exist, as far as it is known before anything is asked of the storage.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVolume {
    /// Where, as [`Backend::place`](super::Backend::place) said.
    pub place: Place,
    /// What its pool is chosen by while it is made, if it is; `place` is then where its name is registered.
    pub topology: Option<TopologyRequirement>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Why it can be used for reading only; None if it can be written to.
    pub read_only: Option<String>,
    /// How it is doing; None where nobody looked.
    pub condition: Option<Condition>,
    /// That it is replicated, if it is, as far as was looked.
    pub replication: Option<Replicated>,
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
#[derive(Clone, Debug, PartialEq)]
pub struct NewSnapshot {
    /// The volume to copy.
    pub source: VolumeId,
    /// The key of its name.
    pub key: String,
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

/// A page of a list.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// The entries, in the order of their keys.
    pub entries: Vec<T>,
    /// The key after which the next page begins; None at the end. Entries that come and go meanwhile change
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

/// Records that the deletion begins; without that nothing may be changed. A repeated request that changes
/// nothing does not write to the journal.
pub type RecordDeletion<'a> = &'a dyn Fn() -> Result<()>;

/// An image that is given its final name. A rename that is killed leaves a second name, and if that is the
/// former one, no list of the cluster shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The temporary name, which is never used again.
    pub from: String,
    /// The final name.
    pub to: String,
    /// The image's id.
    pub image: String,
}

/// Renames that have begun and may not have ended. The record outlives the daemon.
pub trait BegunRenames: Send + Sync {
    /// Records a rename before it begins. It may go unrecorded where the record has no room: what it leaves
    /// then is not worth a volume.
    fn begin(&self, place: &Place, rename: &Rename) -> Result<()>;

    /// Forgets the rename from this name, if it is recorded.
    fn end(&self, place: &Place, from: &str);

    /// The renames that are recorded at this place.
    fn begun(&self, place: &Place) -> Vec<Rename>;
}

/// A volume that is to go.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    /// The volume, as [`Volumes::resolve`](super::Volumes::resolve) gave it.
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

/// What is there of an object once its interrupted deletion was looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// Nothing.
    Gone,
    /// All of it: somebody may have been told since that it is there.
    Whole,
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

/// What a node writes down before it attaches a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachedImage {
    /// The image, as [`BlockDevice::image`] says it. The volume's ID may have an earlier one: a volume that
    /// another cluster has taken over keeps its ID. Empty if it is not known.
    pub image: String,
    /// By which publication it was given to this node; empty if there is none, or it is not known.
    pub publication: String,
}

/// Writes down what is about to be attached; without it nothing may be.
pub type WriteDown<'a> = &'a dyn Fn(&AttachedImage) -> Result<()>;

/// Who published a volume to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishedBy {
    /// A controller, whose part it is to unpublish it.
    Controller,
    /// The node by itself, for an orchestrator that skips the controller; it unpublishes it by itself.
    Node,
}

/// What a volume is attached to this node as. Formatting, checking, growing and use as a block volume are for
/// block devices only; another kind of attachment is another variant, and brings a way to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A block device.
    Block(BlockDevice),
}

impl Attachment {
    /// Whether nothing can be written through it.
    pub fn is_read_only(&self) -> bool {
        let Self::Block(device) = self;
        device.read_only
    }

    /// The mounts that are of this attachment: its file system, and binds of its device's node. None if that
    /// node is gone, so that nobody can tell.
    pub fn mounts_in<'a>(&self, mounts: &'a Mounts) -> Option<Vec<&'a Mount>> {
        let Self::Block(device) = self;
        let device = block::Device::at(&device.path).ok()?;
        Some(mounts.of_device(&device).collect())
    }
}

/// A volume that is a block device of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its node.
    pub path: PathBuf,
    /// What must be behind the node.
    pub backing: Backing,
    /// Which image it is, of all that there ever were: what its name may mean later is another.
    pub image: String,
    /// Nothing can be written through it.
    pub read_only: bool,
    /// A file whose holes are known to be zeros on the device, if there is one: a blank device is then known
    /// as such at once.
    pub sparse_file: Option<PathBuf>,
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

/// This host as a cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceClient {
    /// The cluster's own ID.
    pub id: String,
    /// The addresses it comes from.
    pub addresses: Vec<IpNet>,
}
