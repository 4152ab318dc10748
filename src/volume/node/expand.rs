//! Growing the device and the file system of a volume that was expanded.

use crate::backend::{Attachment, BlockDevice};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::volume::Operations;
use crate::volume::node::filesystem::FsDevice;
use crate::volume::node::mounts::{Mounted, OnNode};
use crate::volume::node::record::NodeRecord;
use crate::volume::request::{Access, NodeExpand};

impl Operations {
    /// Grows device and file system on this node; returns the device's size in bytes.
    pub fn node_expand(&self, call: &Call, request: &NodeExpand) -> Result<u64> {
        let (id, backend) = request.volume.get()?;
        let volume = self.on_node(call, id, backend)?;
        let record = volume.record_at(&request.volume_path)?;
        let attachment = volume.attachment()?.ok_or_else(|| {
            Error::precondition(format!("volume {id} is no longer attached to this node: stage it again"))
        })?;
        let required = request.size.required;
        backend.node().grow(call, &volume.id_here(), &attachment, required)?;
        if let Attachment::Files(_) = attachment {
            return Ok(self.kernel.statfs(call, &self.real_mount(id)?)?.bytes.total);
        }
        let device = attachment.device()?;
        let size = self.kernel.device_size(call, &device.path)?;
        if size < required {
            return Err(Error::out_of_range(format!(
                "volume {id} has {size} bytes, {required} were asked for: expand it at the controller first"
            )));
        }
        self.grow_file_system(&volume, device, &record)?;
        Ok(size)
    }

    /// Grows the file system to its device. A block volume has no file system.
    fn grow_file_system(&self, volume: &OnNode<'_>, device: &BlockDevice, record: &NodeRecord) -> Result<()> {
        let Access::Mount { fs_type, .. } = &record.access else { return Ok(()) };
        let id = volume.id;
        if record.read_only || device.read_only {
            return Err(Error::precondition(format!(
                "volume {id} is mounted read-only on this node: its file system cannot grow here"
            )));
        }
        let mount_point = self.real_mount(id)?;
        // On an unmounted directory, btrfs would grow the file system of the host.
        if !matches!(self.mounted_at(volume, &mount_point)?, Mounted::Ours { .. }) {
            return Err(Error::precondition(format!(
                "volume {id} is no longer mounted on this node: stage it again"
            )));
        }
        self.grow(FsDevice { volume, device, fs_type }, &mount_point)
    }
}
