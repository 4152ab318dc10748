//! The types that backends and operations exchange.

use std::path::PathBuf;
use std::time::SystemTime;

use crate::backend::{Condition, Replicated};
use crate::csi::{Capability, Map, SizeRange, Source, TopologyRequirement};
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::kernel::Backing;
use crate::kernel::ceph::TreeToMount;
use crate::secrets::Secrets;
use crate::sys::block::{self, DeviceNumber};
use crate::sys::mountinfo::{Mount, Mounts};

/// The properties of a kind of storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// It is reached through a network: it may not answer for a while, and other nodes reach its volumes.
    pub is_remote: bool,
    /// A deletion that a crash interrupts may be in no list, so the journal has it until it has ended.
    pub records_deletions: bool,
    /// Lists of its volumes name the nodes that they are published to.
    pub lists_published_nodes: bool,
    /// A node has to follow when a volume was made larger: its device, or a file system on it.
    pub grows_on_nodes: bool,
}

/// What an instance of the daemon can be asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Anything at all.
    Any,
    /// Make volumes and give them to nodes.
    Controller,
    /// Attach volumes to this node.
    Node,
}

/// Which host serves the objects at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// This configuration does.
    Here,
    /// Only the controller on this other node can reach it.
    ByNode(String),
    /// No host, as long as the configuration does not say how to reach the place.
    NotSetUp,
    /// No host: no configuration like this one could have given out an ID of the place.
    Nowhere,
}

/// What determines the place of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// The parameters of the request.
    pub parameters: &'a Map,
    /// The parameters that may change later.
    pub mutable_parameters: &'a Map,
    /// The topology from which the volume must be reachable.
    pub topology: &'a TopologyRequirement,
}

/// The place of a new volume, as far as it is known from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The volume will live here.
    At(Place),
    /// The volume will live here; topology chooses the pool for its data while it is made.
    Within(Place),
    /// Topology chooses the volume's pool while it is made; its name is registered here.
    Registered(Place),
}

/// A volume to create, as far as it is known before the storage is asked anything.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVolume {
    /// The place, as [`Backend::place`](super::Backend::place) returned it.
    pub place: Place,
    /// The topology that chooses the pool during creation, if any: see [`Placement`].
    pub topology: Option<TopologyRequirement>,
    /// The object's name there.
    pub object: String,
    /// The name in the request.
    pub name: String,
    /// The requested size.
    pub size: SizeRange,
    /// The parameters of the request; kept in the creation record.
    pub parameters: Map,
    /// The parameters of the request that may change later.
    pub mutable_parameters: Map,
    /// How the volume is to be used.
    pub capabilities: Vec<Capability>,
    /// The source to copy: its text in the request, for the record, and its meaning.
    pub source: Option<(Source, Origin)>,
    /// Credentials of the request.
    pub secrets: Secrets,
}

/// A content source whose ID is valid.
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
    /// The name in the request that made it, if it is known.
    pub name: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// What every node needs to know about the volume.
    pub context: Map,
    /// The file system that the volume was made for, if known.
    pub fs_type: Option<String>,
    /// The parameters about its root, as far as they are known.
    pub root: Map,
    /// The source that it was copied from, as the request named it.
    pub source: Option<Source>,
    /// The topologies from which it is reachable; empty for everywhere.
    pub topology: Vec<Map>,
    /// Nodes it is published to.
    pub published: Vec<String>,
    /// Why it can only be read; None if it can be written to.
    pub read_only: Option<String>,
    /// Its condition; None if the condition was not looked at.
    pub condition: Option<Condition>,
    /// Its replication, if it is replicated, as far as was looked.
    pub replication: Option<Replicated>,
}

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
    /// The topologies from which volumes made of it are reachable; empty for everywhere.
    pub topology: Vec<Map>,
}

/// A snapshot to create.
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
    /// Volumes made of it have to be reachable from one of these topologies; empty for no wish.
    pub requisite: Vec<Map>,
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
    /// The key after which the next page begins; None at the end. Entries that come and go meanwhile do not
    /// affect the others. It begins with `BACKEND:` and is no longer than an ID, since a client gets it as
    /// its token.
    pub next: Option<String>,
}

/// Called with the reason why a place cannot be listed: returns it to end the list, or else the list goes on
/// without that place.
pub type Unlisted<'a> = &'a dyn Fn(Error) -> Result<()>;

/// Room for new volumes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The free space that is not promised to any volume.
    pub available: u64,
    /// The largest single volume.
    pub largest: u64,
    /// The smallest single volume.
    pub smallest: u64,
}

/// How a volume is published to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The node.
    pub node: String,
    /// How the volume will be used.
    pub capability: Capability,
    /// Whether the node may only read.
    pub read_only: bool,
}

/// Records that the deletion begins; before that, nothing may be changed. A repeated request that changes
/// nothing does not write to the journal.
pub type RecordDeletion<'a> = &'a dyn Fn() -> Result<()>;

/// The renaming of an image to its final name. A killed rename leaves a second name, and if that is the
/// former name, no list of the cluster shows it.
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
    /// Records a rename before it begins. If the journal is full, the rename goes unrecorded: a leftover name
    /// is less harm than a volume that is not made.
    fn begin(&self, place: &Place, rename: &Rename) -> Result<()>;

    /// Forgets the rename from this name, if it is recorded.
    fn end(&self, place: &Place, from: &str);

    /// The renames that are recorded at this place.
    fn begun(&self, place: &Place) -> Vec<Rename>;
}

/// A volume to delete.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    /// The volume, as [`Volumes::resolve`](super::Volumes::resolve) gave it.
    pub id: &'a VolumeId,
    /// Whether its snapshots may outlive it, with the storage that they share with it.
    pub snapshots_may_outlive: bool,
    /// Credentials of the request.
    pub secrets: &'a Secrets,
}

/// Whether there was anything to delete. Each protocol decides what an absent object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// It was there and is gone.
    Gone,
    /// It was not there.
    Absent,
}

/// What is left of an object after its interrupted deletion was looked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupted {
    /// Nothing.
    Gone,
    /// All of it: a client may have been told since then that it is there.
    Whole,
}

/// The outcome of taking a volume back from nodes. Each protocol decides what an absent object means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpublished {
    /// No requested node has the volume any more.
    Done,
    /// There is no such volume.
    NoVolume,
    /// There is no such node.
    NoNode,
}

/// What a node records before it attaches a volume. The names of the fields stand in its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AttachedImage {
    /// The image, as in [`BlockDevice::image`]. The volume's ID may have an earlier image: a volume that
    /// another cluster has taken over keeps its ID. Empty if unknown.
    pub image: String,
    /// The publication that gave the volume to this node; empty if there is none, or it is unknown.
    pub publication: String,
}

/// Records what is about to be attached; before that, nothing may be attached.
pub type WriteDown<'a> = &'a dyn Fn(&AttachedImage) -> Result<()>;

/// Who published a volume to this node. The words stand in locks and in the node's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PublishedBy {
    /// A controller, which has to unpublish it.
    #[serde(rename = "controller")]
    Controller,
    /// The node itself, where no controller is asked; the node unpublishes it too.
    #[serde(rename = "node")]
    Node,
}

/// How a volume is attached to this node. Each kind has its own way to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attachment {
    /// A block device. Only this can be formatted, checked, grown and used as a block volume.
    Block(BlockDevice),
    /// A tree of files, which is mounted as it is.
    Files(FileTree),
}

impl Attachment {
    /// Whether nothing can be written through the attachment.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Block(device) => device.read_only,
            Self::Files(tree) => tree.read_only,
        }
    }

    /// The block device.
    ///
    /// # Errors
    /// It is none: there is nothing to format, to grow, or to use as a block volume.
    pub fn device(&self) -> Result<&BlockDevice> {
        match self {
            Self::Block(device) => Ok(device),
            Self::Files(_) => Err(Error::internal("it has no block device, it is a tree of files")),
        }
    }

    /// Identifies the volume's object among all that ever existed.
    pub fn image(&self) -> &str {
        match self {
            Self::Block(device) => &device.image,
            Self::Files(tree) => &tree.image,
        }
    }

    /// The mounts of this attachment: its file system, and bind mounts of its device node. None if that
    /// device node is gone, because then no mount can be attributed to it.
    pub fn mounts_in<'a>(&self, mounts: &'a Mounts) -> Option<Vec<&'a Mount>> {
        match self {
            Self::Block(device) => {
                let device = block::Device::at(&device.path).ok()?;
                Some(mounts.of_device(&device).collect())
            }
            Self::Files(tree) => Some(tree.device.iter().flat_map(|it| mounts.of_file_system(*it)).collect()),
        }
    }
}

/// A volume that is a tree of files of a network file system. It is attached while it is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTree {
    /// The path of its root in the file system, which no other volume ever has.
    pub path: String,
    /// The last part of the path, which identifies the volume: its name may mean another one later.
    pub image: String,
    /// Whether nothing can be written to it.
    pub read_only: bool,
    /// The `st_dev` of its files, while it is mounted.
    pub device: Option<DeviceNumber>,
    /// How to mount it, while it is not mounted.
    pub to_mount: Option<TreeToMount>,
}

/// A volume that is a block device of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// The path of the device node.
    pub path: PathBuf,
    /// The backing that the device node must have.
    pub backing: Backing,
    /// Identifies the image among all that ever existed: its name may mean another image later.
    pub image: String,
    /// Whether nothing can be written through the device.
    pub read_only: bool,
    /// A file whose holes are zeros on the device, if there is one: it shows at once that a device is blank.
    pub sparse_file: Option<PathBuf>,
}

/// What the orchestrator passes to a node beside the volume.
#[derive(Clone, Copy, Debug)]
pub struct NodeContext<'a> {
    /// The volume context from the creation.
    pub volume: &'a Map,
    /// The publish context from the controller.
    pub publish: &'a Map,
    /// Credentials of the request.
    pub secrets: &'a Secrets,
    /// How the volume is to be used.
    pub capability: &'a Capability,
    /// Whether nothing may be written to the device, by any process that opens it.
    pub read_only: bool,
}
