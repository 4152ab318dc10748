//! Everything RBD asks of a Ceph cluster, in typed questions and answers. Nothing above this trait knows
//! command lines, exit statuses or texts; a session that keeps its connection can stand in for the command
//! line.
//!
//! What a caller must tell apart is in the answer (an absent image, a name that is taken); what nobody can go
//! on from is an [`Error`](crate::error::Error): cluster not reachable, key refused, no such pool or
//! namespace, not permitted, cluster full.

pub mod cli;
#[cfg(test)]
pub mod fake;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use crate::backend::ceph::{ClusterTool, PoolRef};
use crate::call::Call;
use crate::error::Result;

/// An image, by the name it has now or by the id it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRef<'a> {
    /// By name.
    Name(&'a str),
    /// By id; also finds images that were renamed, and those in the trash.
    Id(&'a str),
}

/// How an image is laid out. What is not said is the cluster's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where the data goes, if not to the image's own pool (erasure-coded pools hold nothing but data).
    pub data_pool: Option<String>,
    /// Features by rbd's names.
    pub features: Option<BTreeSet<String>>,
    /// Bytes of an object.
    pub object_size: Option<u64>,
    /// Bytes of a stripe, and over how many objects they go round.
    pub striping: Option<(u64, u64)>,
}

/// An image that is to exist.
#[derive(Clone, Debug)]
pub struct NewImage<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its size in bytes.
    pub size: u64,
    /// Its layout.
    pub layout: &'a Layout,
    /// Metadata it is born with.
    pub metadata: &'a [(&'a str, &'a str)],
}

/// A clone that is to exist, in another pool perhaps.
#[derive(Clone, Debug)]
pub struct NewClone<'a> {
    /// Where its parent is.
    pub from: &'a PoolRef,
    /// The parent.
    pub image: &'a str,
    /// The snapshot it starts from.
    pub snapshot: &'a str,
    /// Where it is to be.
    pub to: &'a PoolRef,
    /// Its name.
    pub name: &'a str,
    /// Its layout.
    pub layout: &'a Layout,
}

/// Whether something was made under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made now.
    New,
    /// The name is taken.
    Taken,
}

/// Whether an image was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It was.
    Done,
    /// There is no such image, or snapshot.
    Absent,
}

/// How a removal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is gone now.
    Gone,
    /// It was not there.
    Absent,
    /// Somebody watches the image: it is in use.
    Watched,
    /// The image has snapshots, perhaps only such as wait in its trash for their clones.
    HasSnapshots,
}

/// How a renaming ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// It bears the new name.
    Done,
    /// There is no image of the old name.
    Absent,
    /// The new name is taken.
    Taken,
}

/// What an image says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageInfo {
    /// The name it has now.
    pub name: String,
    /// The id it keeps.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// Snapshots, those in its trash included.
    pub snapshots: u64,
    /// Features by rbd's names.
    pub features: BTreeSet<String>,
    /// When it was made; 1970 where the cluster does not know.
    pub created: SystemTime,
    /// What it is a clone of.
    pub parent: Option<Parent>,
}

/// The snapshot that a clone still reads from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The pool of the parent.
    pub pool: String,
    /// Its namespace.
    pub namespace: String,
    /// The parent's name.
    pub image: String,
    /// The parent's id; lists do not tell it.
    pub id: Option<String>,
    /// The snapshot's name; random digits once the snapshot is in its image's trash.
    pub snapshot: String,
    /// The parent is in the trash; lists do not tell it.
    pub in_trash: bool,
}

/// An image in the list of a pool, with its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedImage {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// What it is a clone of.
    pub parent: Option<Parent>,
    /// Names and sizes of its snapshots that are not in the trash.
    pub snapshots: Vec<(String, u64)>,
}

/// A snapshot of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name; one in the trash has the name it had.
    pub name: String,
    /// The image's size when it was taken, in bytes.
    pub size: u64,
    /// When it was taken.
    pub created: SystemTime,
    /// Deleted, but kept for the clones that read from it.
    pub trashed: bool,
}

/// A client that has an image open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watcher {
    /// Its address, as `10.0.0.7:0/1234567`.
    pub address: String,
    /// `client.4711`
    pub client: String,
}

/// An image in the trash of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trashed {
    /// The name it had.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Moved there by librbd for its clones, as 0.1.0 asked it to. It removes the image with the last of them.
    pub by_clones: bool,
}

/// A lock of ours on an object: kept by the cluster, no process needs to live for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// Who holds it: a node, or a controller's purpose.
    pub cookie: String,
    /// What it is for. Text without line ends.
    pub description: String,
    /// Others may hold it too, if they say this same tag; None for nobody else.
    pub shared: Option<String>,
    /// After this many seconds it is no longer held; None for ever.
    pub seconds: Option<u64>,
}

/// One who holds a lock, as the cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// As it was taken.
    pub cookie: String,
    /// As it was taken.
    pub description: String,
    /// The tag under which it is shared; None if it is exclusive.
    pub shared: Option<String>,
    /// The client that took it, which is needed to take it back.
    pub client: String,
    /// The address of that client.
    pub address: String,
}

/// What carries a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTarget<'a> {
    /// The header of the image of this id: the attachment of a volume. Dies with the image.
    Header(&'a str),
    /// The name of a snapshot, by its 16 digits: who holds it has the name, in all images of the pool and
    /// namespace.
    SnapshotName(&'a str),
}

/// Whether a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held now.
    Now,
    /// Somebody holds it, perhaps the same.
    Held,
}

/// Whether the cluster's manager takes on a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerTask {
    /// It will be done; also if somebody asked before.
    Accepted,
    /// The image is not in the trash.
    Absent,
    /// No manager takes such tasks.
    NoManager,
}

/// The limits of an image, by the cluster's names (`rbd_qos_iops_limit`, …); zero is no limit.
pub type Limits<'a> = &'a [(&'a str, u64)];

/// Images, by name or by id.
pub trait ImageTool: Send + Sync {
    /// Makes an image with its metadata in one go.
    fn create(&self, call: &Call, at: &PoolRef, image: &NewImage<'_>) -> Result<Made>;

    /// Looks an image up.
    fn info(&self, call: &Call, at: &PoolRef, image: ImageRef<'_>) -> Result<Option<ImageInfo>>;

    /// One value of an image's metadata; None where the image or the key is absent.
    fn metadata(&self, call: &Call, at: &PoolRef, image: &str, key: &str) -> Result<Option<String>>;

    /// All of an image's metadata, its limits (`conf_rbd_qos_…`) included; None where the image is absent.
    fn all_metadata(
        &self,
        call: &Call,
        at: &PoolRef,
        image: &str,
    ) -> Result<Option<BTreeMap<String, String>>>;

    /// Sets one value of an image's metadata.
    fn set_metadata(&self, call: &Call, at: &PoolRef, image: &str, key: &str, value: &str)
    -> Result<Changed>;

    /// Sets limits of an image.
    fn set_limits(&self, call: &Call, at: &PoolRef, image: &str, limits: Limits<'_>) -> Result<Changed>;

    /// All images with their snapshots, by name.
    fn list(&self, call: &Call, at: &PoolRef) -> Result<Vec<ListedImage>>;

    /// The names of all images, with those that are half made or half removed, which no entry of
    /// [`list`](Self::list) shows.
    fn names(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>>;

    /// Removes an image without snapshots. A parent that librbd keeps in the trash for its clones goes with the
    /// last of them.
    fn remove(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Removed>;

    /// Gives an image another name.
    fn rename(&self, call: &Call, at: &PoolRef, from: &str, to: &str) -> Result<Renamed>;

    /// Takes a name away that a killed renaming left beside the image's own; the image stays. One that is
    /// gone is no error.
    fn remove_name(&self, call: &Call, at: &PoolRef, name: &str) -> Result<()>;

    /// Sets the size of an image to `size` bytes. Never makes it smaller: that is an error.
    fn resize(&self, call: &Call, at: &PoolRef, image: &str, size: u64) -> Result<Changed>;

    /// Who has the image open; None where it is absent.
    fn watchers(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Option<Vec<Watcher>>>;
}

/// Snapshots, and the clones that read from them.
pub trait SnapshotTool: Send + Sync {
    /// Takes a snapshot; None where the image is absent.
    fn create_snapshot(&self, call: &Call, at: &PoolRef, image: &str, snapshot: &str)
    -> Result<Option<Made>>;

    /// The snapshots of an image, those in its trash included; None where the image is absent.
    fn snapshots(&self, call: &Call, at: &PoolRef, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>>;

    /// Deletes a snapshot; one with clones goes to the image's trash.
    fn remove_snapshot(
        &self,
        call: &Call,
        at: &PoolRef,
        image: ImageRef<'_>,
        snapshot: &str,
    ) -> Result<Removed>;

    /// Makes a clone (version 2); None where image or snapshot are absent.
    fn clone_image(&self, call: &Call, clone: &NewClone<'_>) -> Result<Option<Made>>;

    /// Copies into a clone what it still reads from its parent. Takes as long as it takes; broken off when
    /// the call's deadline has passed, and when the daemon ends. Repeated it goes on where it was.
    fn flatten(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed>;
}

/// The trash of a pool.
pub trait TrashTool: Send + Sync {
    /// Moves an image to the trash, even one that is in use.
    fn move_to_trash(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed>;

    /// What is in the trash.
    fn trash(&self, call: &Call, at: &PoolRef) -> Result<Vec<Trashed>>;

    /// Takes an image back from the trash, under a name.
    fn restore_from_trash(&self, call: &Call, at: &PoolRef, id: &str, name: &str) -> Result<Renamed>;

    /// Deletes an image in the trash for good, also one whose removal was broken off there. Takes as long as
    /// it takes; never broken off. One that is only on its way to the trash is absent.
    fn purge(&self, call: &Call, at: &PoolRef, id: &str) -> Result<Removed>;

    /// Has the cluster's manager delete an image in the trash.
    fn purge_by_manager(&self, call: &Call, at: &PoolRef, id: &str) -> Result<ManagerTask>;
}

/// Locks in the cluster.
pub trait LockTool: Send + Sync {
    /// Takes a lock of ours.
    fn lock(
        &self,
        call: &Call,
        at: &PoolRef,
        target: LockTarget<'_>,
        request: &LockRequest,
    ) -> Result<Locked>;

    /// Who holds it; empty also where the object is absent.
    fn holders(&self, call: &Call, at: &PoolRef, target: LockTarget<'_>) -> Result<Vec<LockHolder>>;

    /// Takes a lock from its holder. One that is held no longer is no error.
    fn unlock(&self, call: &Call, at: &PoolRef, target: LockTarget<'_>, holder: &LockHolder) -> Result<()>;

    /// Removes the object that carries a lock: the name of a deleted snapshot, or what a lock on a header
    /// left behind that was deleted meanwhile. The header of an image that exists is refused. An object that
    /// is there no longer is no error.
    fn remove_lockable(&self, call: &Call, at: &PoolRef, target: LockTarget<'_>) -> Result<()>;
}

/// A Ceph cluster, as RBD needs it. Every method may take as long as its class of command says and leaves no
/// trace of a key.
pub trait RbdTool: ImageTool + SnapshotTool + TrashTool + LockTool + ClusterTool {
    /// Why nothing can be asked of any cluster, if so. Looks at this machine alone.
    fn usable(&self) -> Result<()>;

    /// From asking for a change to its end, at the longest: whoever asked may be dead by then.
    fn longest_change(&self) -> Duration;
}
