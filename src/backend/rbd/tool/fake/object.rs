//! Objects that carry locks: headers of images, and names of images, snapshots and volumes.

use std::time::SystemTime;

use crate::backend::rbd::tool::{LockHolder, LockTarget};

/// What carries a lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// The header of the image of this id.
    Header(String),
    /// The same header, by the lock of the clients.
    Clients(String),
    /// The same header, by the lock of librbd and the kernel.
    Owner(String),
    /// The name of an image in the pool's directory.
    BareName(String),
    /// The name of a snapshot.
    Name(String),
    /// The registered name of a volume.
    Claim(String),
}

/// A lock.
pub(super) struct Lock {
    pub(super) holder: LockHolder,
    pub(super) until: Option<SystemTime>,
}

impl Object {
    /// The object that a lock target means.
    pub(super) fn of(on: LockTarget<'_>) -> Self {
        match on {
            LockTarget::Header(id) => Self::Header(id.to_string()),
            LockTarget::Clients(id) => Self::Clients(id.to_string()),
            LockTarget::Owner(id) => Self::Owner(id.to_string()),
            LockTarget::BareName(name) => Self::BareName(name.to_string()),
            LockTarget::SnapshotName(digits) => Self::Name(digits.to_string()),
            LockTarget::VolumeName(digits) => Self::Claim(digits.to_string()),
        }
    }
}
