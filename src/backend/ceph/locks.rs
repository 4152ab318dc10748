//! Locks on objects, kept by the cluster: true compare-and-swaps, which outlive their holders.

use std::fmt;

use crate::backend::ceph::PoolRef;
use crate::dispatch::Call;
use crate::error::Result;

/// A lock of ours on an object: the cluster keeps it, so no process has to live for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRequest {
    /// The holder: a node, or a controller's purpose.
    pub cookie: String,
    /// What it is for. Text without line ends.
    pub description: String,
    /// Others with this same tag may hold the lock too; None for an exclusive lock.
    pub shared: Option<String>,
    /// The lock expires after this many seconds; None for never.
    pub seconds: Option<u64>,
}

/// A lock holder, as the cluster reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// As it was taken.
    pub cookie: String,
    /// As it was taken.
    pub description: String,
    /// The tag under which it is shared; None if it is exclusive.
    pub shared: Option<String>,
    /// The client that took it, which is needed to break it.
    pub client: String,
    /// The address of that client.
    pub address: String,
}

/// The present state of a lock, and whether it has ever been held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// The lock is held, or was held before.
    pub is_known: bool,
    /// The present holders.
    pub holders: Vec<LockHolder>,
}

/// The object that carries a lock, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTarget<'a> {
    /// The header of the image of this id: the attachment of a volume. Dies with the image.
    Header(&'a str),
    /// The same header: the clients of nodes that write to the image. Dies with the image.
    Clients(&'a str),
    /// The same header: the one client that may write to the image, by librbd's and the kernel's own lock.
    Owner(&'a str),
    /// The pool's directory of images, which always exists: the holder may remove what a killed creation has
    /// left of an image of this name.
    BareName(&'a str),
    /// A subvolume, `GROUP/NAME`: the publications of a volume, and its deletion.
    Subvolume(&'a str),
    /// The [claim](super::claim) of a snapshot's name, by its key.
    SnapshotName(&'a str),
    /// The [claim](super::claim) of the name of a volume whose place or object the name does not tell, by its
    /// key.
    VolumeName(&'a str),
}

impl LockTarget<'_> {
    /// The object that carries it.
    pub fn object(&self) -> String {
        match self {
            Self::Header(id) | Self::Clients(id) | Self::Owner(id) => {
                format!("rbd_header.{id}")
            }
            Self::BareName(_) => "rbd_directory".into(),
            Self::Subvolume(path) => format!("cephlet.vol.{path}"),
            Self::SnapshotName(key) => format!("cephlet.snap.{key}"),
            Self::VolumeName(key) => format!("cephlet.name.{key}"),
        }
    }
}

impl fmt::Display for LockTarget<'_> {
    /// What the lock is for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(id) | Self::Clients(id) | Self::Owner(id) => write!(f, "image {id}"),
            Self::BareName(name) => write!(f, "the name {name}"),
            Self::Subvolume(path) => write!(f, "subvolume {path}"),
            Self::SnapshotName(key) | Self::VolumeName(key) => write!(f, "the claim {key}"),
        }
    }
}

/// Whether a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held now.
    Now,
    /// It was held already, perhaps by the same holder.
    Held,
}

/// Gives access to the locks of a pool and namespace, within a call.
pub trait BindLocks {
    /// The locks at this place.
    fn locks<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn LockTool + 'a>;
}

/// Locks in a pool and namespace.
pub trait LockTool {
    /// Takes a lock of ours.
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked>;

    /// The state of a lock; if the object is absent, the lock was never held.
    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState>;

    /// The holders of a lock.
    fn holders(&self, target: LockTarget<'_>) -> Result<Vec<LockHolder>> {
        Ok(self.lock_state(target)?.holders)
    }

    /// Takes a lock from its holder. If the holder no longer has it, that is no error.
    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()>;

    /// Removes the object that carries a lock: the name of a deleted snapshot or volume, or what a lock on a
    /// header leaves behind if the image is deleted meanwhile. Refuses the header of an image that exists. A
    /// missing object is no error.
    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()>;
}
