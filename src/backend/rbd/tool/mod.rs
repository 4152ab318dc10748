//! Everything RBD asks of a Ceph cluster, in typed questions and answers. Nothing above this trait knows
//! command lines, exit statuses or texts; a session that keeps its connection can stand in for the command
//! line.
//!
//! Cases that a caller must tell apart are answers (an absent image, a name that is taken). A failure that
//! ends the caller's work is an [`Error`](crate::error::Error): cluster not reachable, key refused, no such
//! pool or namespace, not permitted, cluster full.

pub mod cli;
#[cfg(test)]
mod contract;
#[cfg(test)]
pub mod fake;
mod mirror;
mod types;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backend::ceph::{ClusterTool, PoolRef};
use crate::dispatch::Call;
use crate::error::Result;

pub use self::mirror::{
    MirrorScope, MirrorSnapshot, MirrorSnapshotKind, MirrorState, MirrorStatus, MirrorTool, Mirroring,
    Progress, Promoted, Replay, SiteStatus,
};
pub use self::types::{
    Changed, DEFAULT_OBJECT_SIZE, EXCLUSIVE_LOCK, FEATURES, ImageInfo, ImageRef, Layout, Limits, ListedImage,
    ListedSnapshot, Made, MadeImage, NewClone, NewImage, OBJECT_MAP, Parent, PoolOptions, Removed,
    RemovedByNumber, Renamed, SnapshotInfo, Trashed, Watcher, largest_size,
};
pub use crate::backend::ceph::locks::{BindLocks, LockHolder, LockRequest, LockTarget, LockTool, Locked};

/// Images, by name or by id.
pub trait ImageTool {
    /// Makes an image with its metadata in one go.
    fn create(&self, image: &NewImage<'_>) -> Result<MadeImage>;

    /// Looks an image up.
    fn info(&self, image: ImageRef<'_>) -> Result<Option<ImageInfo>>;

    /// One value of an image's metadata; None where the image or the key is absent.
    fn metadata(&self, image: &str, key: &str) -> Result<Option<String>>;

    /// All of an image's metadata, its limits (`conf_rbd_qos_…`) included; None where the image is absent.
    fn all_metadata(&self, image: &str) -> Result<Option<BTreeMap<String, String>>>;

    /// Sets one value of an image's metadata.
    fn set_metadata(&self, image: &str, key: &str, value: &str) -> Result<Changed>;

    /// Sets limits of an image.
    fn set_limits(&self, image: &str, limits: Limits<'_>) -> Result<Changed>;

    /// All images with their snapshots, by name.
    fn list(&self) -> Result<Vec<ListedImage>>;

    /// The names of all images, half-made and half-removed ones included, which [`list`](Self::list) omits.
    fn names(&self) -> Result<Vec<String>>;

    /// The options of a pool; None where there is no such pool.
    fn pool_options(&self) -> Result<Option<PoolOptions>>;

    /// Removes an image without snapshots, or moves it to the trash if the [pool](PoolOptions) asks for that.
    /// [`Removed::Absent`] does not prove that the image is gone: see there.
    fn remove(&self, image: &str) -> Result<Removed>;

    /// Removes a large image like [`remove`](Self::remove), but without a time limit.
    fn remove_large(&self, image: &str) -> Result<Removed>;

    /// Renames an image. [`Renamed::Done`] does not prove that it has the new name: see there.
    fn rename(&self, from: &str, to: &str) -> Result<Renamed>;

    /// Removes the second name that a killed rename left of an image. The image stays;
    /// [`remove`](Self::remove) by that name would destroy it. A name that is gone is no error.
    fn remove_name(&self, name: &str) -> Result<()>;

    /// Sets the size of an image to `size` bytes. Never makes it smaller: that is an error.
    fn resize(&self, image: &str, size: u64) -> Result<Changed>;

    /// The clients that have the image open; None where the image is absent.
    fn watchers(&self, image: &str) -> Result<Option<Vec<Watcher>>>;
}

/// Snapshots, and the clones that read from them.
pub trait SnapshotTool {
    /// Takes a snapshot; None where the image is absent.
    fn create_snapshot(&self, image: &str, snapshot: &str) -> Result<Option<Made>>;

    /// The snapshots of an image, those in its trash included; None where the image is absent.
    fn snapshots(&self, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>>;

    /// Deletes a snapshot; one with clones goes to the image's trash.
    fn remove_snapshot(&self, image: ImageRef<'_>, snapshot: &str) -> Result<Removed>;

    /// Whether clones read from the snapshots of an image, those in its trash included; false if the image is
    /// absent.
    fn has_clones(&self, image: &str) -> Result<bool>;

    /// Deletes a snapshot, also from its image's trash, both by their ids. librbd looks up the name. If
    /// another client owns the image's lock, that client deletes the snapshot that has the name by then.
    fn remove_snapshot_by_number(&self, image: &str, snapshot: u64) -> Result<RemovedByNumber>;

    /// Makes a clone (version 2); None where image or snapshot are absent.
    fn clone_image(&self, clone: &NewClone<'_>) -> Result<Option<Made>>;

    /// Copies into a clone all data that it reads from its parent, and detaches it from the parent. Has no
    /// time limit. After a failure or a kill it must not be repeated while the object map is relied on: a
    /// second flatten may lose data.
    fn flatten(&self, image: &str) -> Result<Changed>;

    /// Disables features of an image that has all of them.
    fn disable_features(&self, image: &str, features: &[&str]) -> Result<Changed>;

    /// Enables features of an image that has none of them. An object map is not relied on at first.
    fn enable_features(&self, image: &str, features: &[&str]) -> Result<Changed>;

    /// Rebuilds an image's object map from the objects that exist, so that it is relied on.
    fn rebuild_object_map(&self, image: &str) -> Result<Changed>;
}

/// The trash of a pool.
pub trait TrashTool {
    /// Lists the trash, without the images whose removal was broken off: only [`ImageTool::names`] shows
    /// these.
    fn trash(&self) -> Result<Vec<Trashed>>;

    /// Deletes an image in the trash for good, also after a broken-off removal. Has no time limit. An image
    /// that is still on its way to the trash is absent.
    fn purge(&self, id: &str) -> Result<Removed>;
}

/// A pool and namespace of a Ceph cluster, as RBD needs it, within a call. Every method may take as long as
/// its class of command says and leaves no trace of a key.
pub trait PoolTool: ImageTool + SnapshotTool + TrashTool + LockTool + MirrorTool {}

impl<T: ImageTool + SnapshotTool + TrashTool + LockTool + MirrorTool> PoolTool for T {}

/// The Ceph clusters, as RBD needs them.
pub trait RbdTool: BindLocks + ClusterTool {
    /// The tool for a call in a pool and namespace.
    fn bind<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn PoolTool + 'a>;

    /// Checks that this machine has the tools; the error says what is missing. Asks no cluster.
    fn usable(&self) -> Result<()>;

    /// The longest time from a request for a change to its end. The requester may be dead by then.
    fn longest_change(&self) -> Duration;
}

impl<T: RbdTool> BindLocks for T {
    fn locks<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn LockTool + 'a> {
        self.bind(call, at)
    }
}
