//! The commands for snapshots of a subvolume. `snapshot create` of a snapshot that exists changes nothing.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Subvolumes, is_absent, is_only_retained, names_in};
use crate::error::{Error, Kind, Result};
use crate::exec::Class;

/// Whether a snapshot was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotRemoved {
    Gone,
    Absent,
    /// Clones of it are not complete.
    HasCopies,
}

impl Subvolumes<'_> {
    /// Takes a snapshot, or finds it taken.
    pub fn take_snapshot(&self, name: &str, snapshot: &str) -> Result<()> {
        match self.of_one(Class::Change, "fs subvolume snapshot create", name, [snap_name(snapshot)]) {
            Ok(_) => Ok(()),
            Err(failure) if is_absent(&failure) || is_only_retained(&failure) => {
                Err(Error::not_found(format!("subvolume {name:?} was deleted meanwhile")))
            }
            Err(failure) if failure.status() == Some(libc::EMLINK) => Err(Error::new(
                Kind::NoSpace,
                format!(
                    "it has {} snapshots, and the file system takes no more of a directory (the MDS option \
                     mds_max_snaps_per_dir): delete some",
                    self.snapshots(name)?.len()
                ),
            )),
            Err(failure) => Err(self.error(failure, &format!("take snapshot {snapshot:?} of"), name)),
        }
    }

    /// Whether there is a snapshot.
    pub fn has_snapshot(&self, name: &str, snapshot: &str) -> Result<bool> {
        match self.of_one(Class::Question, "fs subvolume snapshot info", name, [snap_name(snapshot)]) {
            Ok(_) => Ok(true),
            Err(failure) if is_absent(&failure) => Ok(false),
            Err(failure) => Err(self.error(failure, &format!("look at snapshot {snapshot:?} of"), name)),
        }
    }

    /// Removes a snapshot.
    pub fn remove_snapshot(&self, name: &str, snapshot: &str) -> Result<SnapshotRemoved> {
        match self.of_one(Class::Change, "fs subvolume snapshot rm", name, [snap_name(snapshot)]) {
            Ok(_) => Ok(SnapshotRemoved::Gone),
            Err(failure) if is_absent(&failure) => Ok(SnapshotRemoved::Absent),
            Err(failure) if failure.says("has pending clones") => Ok(SnapshotRemoved::HasCopies),
            Err(failure) => Err(self.error(failure, &format!("remove snapshot {snapshot:?} of"), name)),
        }
    }

    /// The names of the snapshots of a subvolume.
    pub fn snapshots(&self, name: &str) -> Result<BTreeSet<String>> {
        match self.of_one(Class::Question, "fs subvolume snapshot ls", name, []) {
            Ok(printed) => names_in("ceph fs subvolume snapshot ls", &printed),
            Err(failure) if is_absent(&failure) => Ok(BTreeSet::new()),
            Err(failure) => Err(self.error(failure, "list the snapshots of", name)),
        }
    }
}

/// The argument that names a snapshot.
pub(super) fn snap_name(snapshot: &str) -> (&'static str, Value) {
    ("snap_name", snapshot.into())
}
