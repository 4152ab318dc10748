//! The usage and the condition of a volume, as this node sees them.

use std::path::Path;

use crate::backend::{Attachment, Condition, Fault, Reason};
use crate::dispatch::Call;
use crate::error::Result;
use crate::sys::mount::is_dead;
use crate::sys::statfs::{self, Amount};
use crate::volume::Operations;
use crate::volume::node::fault;
use crate::volume::node::mounts::{self, OnNode};
use crate::volume::request::{Access, Stats};

/// The usage of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// In bytes; of a block device only the total is meaningful.
    pub bytes: Amount,
    /// In inodes; None for a block device and for file systems without a fixed number.
    pub inodes: Option<Amount>,
    /// What is wrong with it, if anything.
    pub condition: Condition,
}

impl Operations {
    /// The usage of the volume at `volume_path`; NOT_FOUND if it is neither staged nor published there.
    pub fn stats(&self, call: &Call, request: &Stats) -> Result<Usage> {
        let (id, backend) = request.volume.get()?;
        self.usage_at(&self.on_node(call, id, backend)?, &request.volume_path)
    }

    /// The usage of a volume at a path where it is staged or published.
    pub(crate) fn usage_at(&self, volume: &OnNode<'_>, path: &str) -> Result<Usage> {
        let usage = self.look_at(volume, path)?;
        self.note_look(volume.id, &usage.condition);
        Ok(usage)
    }

    fn look_at(&self, volume: &OnNode<'_>, path: &str) -> Result<Usage> {
        let OnNode { call, backend, .. } = *volume;
        let (record, attached) = (volume.record_at(path)?, volume.attachment()?);
        let of_storage = || backend.node().condition(call, &volume.id_here());
        let is_tree = matches!(attached, Some(Attachment::Files(_)));
        // Before statfs(2), which can wait for the server of the files.
        if is_tree && let Some(what) = of_storage()? {
            return Ok(Usage::lost(what));
        }
        let usage = match (&record.access, &attached) {
            (Access::Block, None) => {
                return Ok(Usage::lost(Reason::DeviceGone.into()));
            }
            (Access::Block, Some(attachment)) => {
                let total = self.kernel.device_size(call, &attachment.device()?.path)?;
                Usage { bytes: Amount { total, ..Amount::default() }, inodes: None, condition: None }
            }
            (Access::Mount { .. }, _) => {
                let read_only = fault::is_read_only(&record, attached.as_ref());
                self.file_system_usage(volume, read_only, &mounts::resolved(path)?)?
            }
        };
        let condition = if is_tree { None } else { of_storage()? };
        // A fault of the device is the cause of a fault of its file system, so it comes first.
        Ok(Usage { condition: condition.or(usage.condition), ..usage })
    }

    /// `read_only` tells whether the file system was mounted read-only.
    fn file_system_usage(&self, volume: &OnNode<'_>, read_only: bool, path: &Path) -> Result<Usage> {
        let (OnNode { call, id, .. }, mounts) = (volume, volume.mounts()?);
        let Some(mount) = mounts.find_at(path) else {
            return Ok(Usage::lost(Reason::MountGone.into()));
        };
        match self.kernel.statfs(call, path) {
            Ok(statfs::Usage { bytes, inodes }) => Ok(Usage {
                bytes,
                // CephFS has no limit of its own, and counts more free ones than there are.
                inodes: Some(inodes).filter(|it| it.total > 0 && it.available <= it.total),
                condition: self.find_fault(call, mount, read_only)?,
            }),
            Err(error) if error.errno().is_some_and(is_dead) => {
                log::warn!("volume {id}: {error}");
                Ok(Usage::lost(Reason::MountDead.into()))
            }
            Err(error) => Err(error),
        }
    }
}

impl Usage {
    /// An unknown usage, with the condition.
    fn lost(fault: Fault) -> Self {
        Self { bytes: Amount::default(), inodes: None, condition: Some(fault) }
    }
}
