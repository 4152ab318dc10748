//! Locks on objects, kept by the cluster: true compare-and-swaps, which outlive whoever took them.

use crate::backend::ceph::PoolRef;
use crate::dispatch::Call;
use crate::error::Result;

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
    /// The client that took it, which is needed to break it.
    pub client: String,
    /// The address of that client.
    pub address: String,
}

/// A lock as it is, and was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockState {
    /// Somebody holds it, or did.
    pub is_known: bool,
    /// Who holds it.
    pub holders: Vec<LockHolder>,
}

/// What carries a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTarget<'a> {
    /// The header of the image of this id: the attachment of a volume. Dies with the image.
    Header(&'a str),
    /// The same header: the clients of nodes that write to the image. Dies with the image.
    Clients(&'a str),
    /// The same header: the one client that may write to the image, by librbd's and the kernel's own lock.
    Owner(&'a str),
    /// The pool's directory of images, which is always there: who holds it may remove what a killed creation
    /// has left of an image of this name.
    BareName(&'a str),
    /// The [claim](super::claim) of a snapshot's name, by its key.
    SnapshotName(&'a str),
    /// The [claim](super::claim) of the name of a volume whose pool topology chooses, by its key.
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
            Self::SnapshotName(key) => format!("cephlet.snap.{key}"),
            Self::VolumeName(key) => format!("cephlet.name.{key}"),
        }
    }
}

/// Whether a lock was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked {
    /// It is held now.
    Now,
    /// Somebody holds it, perhaps the same.
    Held,
}

/// What the locks of a pool and namespace are asked of, within a call.
pub trait BindLocks {
    /// The locks there.
    fn locks<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn LockTool + 'a>;
}

/// Locks in a pool and namespace.
pub trait LockTool {
    /// Takes a lock of ours.
    fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked>;

    /// A lock as it is; where the object is absent it was never held.
    fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState>;

    /// Who holds it.
    fn holders(&self, target: LockTarget<'_>) -> Result<Vec<LockHolder>> {
        Ok(self.lock_state(target)?.holders)
    }

    /// Takes a lock from its holder. One that is held no longer is no error.
    fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()>;

    /// Removes the object that carries a lock: the name of a deleted snapshot or volume, or what a lock on a
    /// header left behind that was deleted meanwhile. The header of an image that exists is refused. An
    /// object that is there no longer is no error.
    fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()>;
}
