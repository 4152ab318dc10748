//! Faults of mounted file systems, as the kernel reports them.
//!
//! Each file system reports a fault in a place of its own, and none in the mount flags or by statfs(2):
//!
//! - ext4 counts errors in sysfs. Since Linux 6.15 its mount options show that it refuses writes
//!   (`emergency_ro`, `shutdown`); before, only its errors do ([`ext4::RecordedErrors`]).
//! - xfs fails stat(2) of its root after a shutdown.
//! - btrfs becomes read-only among the options of the file system.

use crate::backend::{Attachment, Condition, Fault, Reason};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::sys::ext4;
use crate::sys::mountinfo::Mount;
use crate::volume::Operations;
use crate::volume::node::mounts::OnNode;
use crate::volume::node::record::NodeRecord;
use crate::volume::request::Access;

impl Operations {
    /// The fault of a mounted file system. `read_only` tells whether it was mounted read-only.
    pub(crate) fn find_fault(&self, call: &Call, mount: &Mount, read_only: bool) -> Result<Condition> {
        let is_shut_down = match mount.fs_type.as_str() {
            "xfs" => self.kernel.is_shut_down(call, &mount.mount_point)?,
            _ => mount.has_super_option("shutdown"),
        };
        if is_shut_down {
            return Ok(Some(fault(Reason::FileSystemShutDown, "")));
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
            return Ok(Some(fault(Reason::FileSystemReadOnly, "")));
        }
        let count = errors.map(|errors| errors.count).filter(|count| *count > 0);
        Ok(count.map(|count| fault(Reason::FileSystemErrors, &format!(" ({count} recorded)"))))
    }

    /// The fault of the volume's file system, if it is mounted on this node.
    pub(crate) fn fault_here(&self, volume: &OnNode<'_>) -> Result<Condition> {
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
            Some(Fault { reason: Reason::FileSystemShutDown | Reason::FileSystemReadOnly, detail }) => {
                Err(Error::precondition(format!("volume {} cannot be written to: {detail}", volume.id)))
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
            None => self.fault_here(volume)?,
            found => found,
        };
        self.note_look(id, &found);
        Ok(found)
    }
}

/// A fault of a mounted file system; `more` is what is known of it beside its reason.
fn fault(reason: Reason, more: &str) -> Fault {
    let detail = format!(
        "{}{more}: unpublish it everywhere on this node and unstage it, it is checked when it is staged next \
         (`dmesg` has the error)",
        reason.sentence()
    );
    Fault::new(reason, detail)
}

/// Whether the real mount of a volume was made read-only.
pub(crate) fn is_read_only(record: &NodeRecord, attachment: Option<&Attachment>) -> bool {
    record.read_only || attachment.is_some_and(Attachment::is_read_only)
}
