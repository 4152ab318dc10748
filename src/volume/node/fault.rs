//! Faults of mounted file systems, as the kernel reports them.
//!
//! Each file system reports a fault in a place of its own, and none in the mount flags or by statfs(2):
//!
//! - ext4 counts errors in sysfs. Since Linux 6.15 its mount options show that it refuses writes
//!   (`emergency_ro`, `shutdown`); before, only its errors do ([`ext4::RecordedErrors`]).
//! - xfs fails stat(2) of its root after a shutdown.
//! - btrfs becomes read-only among the options of the file system.

use std::fmt;

use crate::backend::{Attachment, Condition};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::sys::ext4;
use crate::sys::mountinfo::Mount;
use crate::volume::Operations;
use crate::volume::node::mounts::OnNode;
use crate::volume::node::record::NodeRecord;
use crate::volume::request::Access;

/// A fault of a mounted file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails every access.
    ShutDown,
    /// It was mounted for writing, but refuses writes.
    ReadOnly,
    /// It has this many recorded errors, but takes writes.
    Errors(u64),
}

impl Fault {
    /// Whether the file system refuses writes.
    pub(crate) fn refuses_writes(self) -> bool {
        matches!(self, Self::ShutDown | Self::ReadOnly)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShutDown => f.write_str("the kernel shut its file system down after an error")?,
            Self::ReadOnly => f.write_str("the kernel made it read-only after an error")?,
            Self::Errors(count) => {
                write!(f, "the kernel found errors in its file system ({count} recorded)")?
            }
        }
        f.write_str(
            ": unpublish it everywhere on this node and unstage it, it is checked when it is staged next \
             (`dmesg` has the error)",
        )
    }
}

impl Operations {
    /// The fault of a mounted file system. `read_only` tells whether it was mounted read-only.
    pub(crate) fn find_fault(&self, call: &Call, mount: &Mount, read_only: bool) -> Result<Option<Fault>> {
        let is_shut_down = match mount.fs_type.as_str() {
            "xfs" => self.kernel.is_shut_down(call, &mount.mount_point)?,
            _ => mount.has_super_option("shutdown"),
        };
        if is_shut_down {
            return Ok(Some(Fault::ShutDown));
        }
        let failed = |error| Error::io(format!("look for errors of {}", mount.mount_point.display()), &error);
        let errors = match mount.fs_type.as_str() {
            "ext4" => ext4::recorded_errors(mount.device).map_err(failed)?,
            _ => None,
        };
        let refuses_writes = mount.is_file_system_read_only()
            || mount.has_super_option("emergency_ro")
            || errors.is_some_and(|errors| errors.stopped_writes);
        if refuses_writes && !read_only {
            return Ok(Some(Fault::ReadOnly));
        }
        Ok(errors.filter(|errors| errors.count > 0).map(|errors| Fault::Errors(errors.count)))
    }

    /// The fault of the volume's file system, if it is mounted on this node.
    pub(crate) fn fault_here(&self, volume: &OnNode<'_>) -> Result<Option<Fault>> {
        let Some(record) = volume.record_in_use().filter(|record| record.access != Access::Block) else {
            return Ok(None);
        };
        let (mounts, real) = (volume.mounts()?, self.real_mount(volume.id)?);
        let Some(mount) = mounts.find_at(&real) else { return Ok(None) };
        self.find_fault(volume.call, mount, is_read_only(&record, volume.attachment()?.as_ref()))
    }

    /// For callers that want to write: refuses a volume whose file system takes no writes.
    pub(crate) fn refuse_faulty(&self, volume: &OnNode<'_>) -> Result<()> {
        match self.fault_here(volume)? {
            Some(fault) if fault.refuses_writes() => {
                Err(Error::precondition(format!("volume {} cannot be written to: {fault}", volume.id)))
            }
            _ => Ok(()),
        }
    }

    /// What is wrong with the volume on this node, if it is mounted or attached here.
    pub(crate) fn condition_here(&self, volume: &OnNode<'_>) -> Result<Condition> {
        let OnNode { call, id, backend, .. } = *volume;
        let Some(record) = volume.record_in_use() else { return Ok(None) };
        let is_ready = match record.access {
            Access::Block => volume.attachment()?.is_some(),
            Access::Mount { .. } => volume.mounts()?.find_at(&self.real_mount(id)?).is_some(),
        };
        if !is_ready {
            return Ok(None);
        }
        // A fault of the device is the cause of a fault of its file system, so it comes first.
        let found = match backend.node().condition(call, &volume.id_here())? {
            None => self.fault_here(volume)?.map(|fault| fault.to_string()),
            found => found,
        };
        self.note_look(id, &found);
        Ok(found)
    }
}

/// Whether the real mount of a volume was made read-only.
pub(crate) fn is_read_only(record: &NodeRecord, attachment: Option<&Attachment>) -> bool {
    record.read_only || attachment.is_some_and(Attachment::is_read_only)
}
