//! Lost volumes: the storage has shut this node out, or the device is another image than the requested one,
//! or it was taken away under its mount. A lost volume is made ready anew on the next request. Files that
//! consumers have open would fail for ever, so the volume has to be unpublished first.

use std::path::Path;

use crate::backend::{NodeContext, PublishedBy};
use crate::error::{Error, Result};
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::node::mounts::{Mounted, OnNode};
use crate::volume::node::record::NodeRecord;

/// Why a mounted volume without a device cannot be used.
const GONE: &str = "its device is gone from this node";

impl Operations {
    /// Takes a lost device from the node, with its mount and the staging paths; returns whether it was lost.
    pub(crate) fn remove_lost(&self, volume: &OnNode<'_>, wanted: &NodeContext<'_>) -> Result<bool> {
        let Some(why) = self.why_lost(volume, wanted)? else { return Ok(false) };
        self.let_go(volume, (&why, wanted.secrets)).map(|()| true)
    }

    /// Why this node's attachment or mount of the volume can only fail from now on, if so.
    pub(crate) fn why_lost(&self, volume: &OnNode<'_>, wanted: &NodeContext<'_>) -> Result<Option<String>> {
        let Some(attachment) = volume.attachment()? else {
            return Ok(self.is_gone(volume)?.then(|| GONE.to_string()));
        };
        let attached_for = volume.record().map(|record| record.attached.publication).unwrap_or_default();
        volume.backend.node().lost(volume.call, &volume.id_here(), (&attachment, &attached_for), wanted)
    }

    /// Whether the device is gone under a mount. The mount can only fail, and no look-up would lead to it
    /// once another device is attached.
    fn is_gone(&self, volume: &OnNode<'_>) -> Result<bool> {
        Ok(self.is_mounted(volume)? && volume.backend.node().is_absent(&volume.id_here())?)
    }

    /// Whether the volume, or a rest of it, is mounted at its real mount, a staging path or a target.
    pub(crate) fn is_mounted(&self, volume: &OnNode<'_>) -> Result<bool> {
        let (real, record) = (self.real_mount(volume.id)?, volume.record());
        let paths = record.iter().flat_map(NodeRecord::paths).map(Path::new);
        for place in [real.as_path()].into_iter().chain(paths) {
            let mounted = self.mounted_at(volume, place)?;
            if matches!(mounted, Mounted::Ours { .. } | Mounted::Foreign { covers_ours: true, .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes an attachment that cannot be used any more from the node.
    pub(crate) fn let_go(&self, volume: &OnNode<'_>, (why, secrets): (&str, &Secrets)) -> Result<()> {
        let (id, record) = (volume.id, volume.record());
        for target in record.iter().flat_map(NodeRecord::targets) {
            if !matches!(self.mounted_at(volume, &target.path)?, Mounted::Nothing) {
                return Err(Error::precondition(format!(
                    "volume {id} cannot be used on this node: {why}; it is still published at {}: unpublish it \
                     there first, and it is made ready anew",
                    target.path
                )));
            }
        }
        log::warn!("volume {id} is made ready anew: {why}");
        for staging in record.iter().flat_map(NodeRecord::stagings) {
            self.ensure_unbound(volume, &staging.path)?;
        }
        self.ensure_unbound(volume, &self.real_mount(id)?)?;
        // Other nodes may have written to the volume since.
        self.clear_format_mark(volume)?;
        volume.look_again();
        // The volume stays published to this node.
        volume.backend.node().detach(volume.call, &volume.id_here(), PublishedBy::Controller, secrets)
    }
}
