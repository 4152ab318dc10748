//! Letting the device and the file system of an expanded volume follow.

use crate::backend::Attachment;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::volume::Operations;
use crate::volume::node::mounts::Mounted;
use crate::volume::request::{Access, NodeExpand};

impl Operations {
    /// Lets device and file system on this node follow; gives the device's size in bytes.
    pub fn node_expand(&self, call: &Call, request: &NodeExpand) -> Result<u64> {
        let (id, backend) = self.volume(&request.volume_id)?;
        let path = &request.volume_path;
        let record = self.node_record(&id)?.filter(|record| record.paths().any(|known| known == path));
        let record = record.ok_or_else(|| {
            Error::not_found(format!("volume {id} is neither staged nor published at {path}"))
        })?;
        let lost =
            || Error::precondition(format!("volume {id} is no longer attached to this node: stage it again"));
        let volume = self.look_on_node(call, &id)?;
        let attachment = volume.attachment.as_ref().ok_or_else(lost)?;
        backend.node().grow(call, &id, attachment, request.size.required)?;
        let Attachment::Block(device) = attachment;
        let size = self.kernel.device_size(call, &device.path)?;
        if size < request.size.required {
            return Err(Error::out_of_range(format!(
                "volume {id} has {size} bytes, {} were asked for: expand it at the controller first",
                request.size.required
            )));
        }
        match &record.access {
            Access::Block => {}
            Access::Mount { .. } if record.read_only || device.read_only => {
                return Err(Error::precondition(format!(
                    "volume {id} is mounted read-only on this node: its file system cannot grow here"
                )));
            }
            Access::Mount { fs_type, .. } => {
                let mount_point = self.real_mount(&id)?;
                // Told to grow what lies at an unmounted directory, btrfs would grow the file system of the
                // host.
                if !matches!(self.mounted_at(&volume, &mount_point)?, Mounted::Ours { .. }) {
                    return Err(Error::precondition(format!(
                        "volume {id} is no longer mounted on this node: stage it again"
                    )));
                }
                self.grow(call, &id, &device.path, &mount_point, fs_type)?;
            }
        }
        Ok(size)
    }
}
