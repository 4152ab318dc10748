//! Volumes whose device can only fail from now on, as their storage has shut this node out, or is another
//! image than the one that is asked for, or as it was taken away under its mount: they are made ready anew
//! when they are asked for again. What consumers have open would fail for ever beside it, so they let go of
//! it first.

use crate::backend::{Condition, NodeContext, PublishedBy};
use crate::error::{Error, Result};
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::node::mounts::{self, Mounted, OnNode};
use crate::volume::node::record::NodeRecord;

/// Why a volume cannot be used that is mounted, but has no device.
const GONE: &str = "its device is gone from this node";

impl Operations {
    /// Takes a lost device from the node, with its mount and the staging paths; says whether it was lost.
    pub(crate) fn remove_lost(&self, volume: &OnNode<'_>, wanted: &NodeContext<'_>) -> Result<bool> {
        let Some(why) = self.why_lost(volume, wanted)? else { return Ok(false) };
        self.let_go(volume, (&why, wanted.secrets)).map(|()| true)
    }

    /// Why what the node has of the volume can only fail from now on, if so.
    pub(crate) fn why_lost(&self, volume: &OnNode<'_>, wanted: &NodeContext<'_>) -> Result<Condition> {
        if self.is_gone(volume)? {
            return Ok(Some(GONE.to_string()));
        }
        let attached_for = volume.record().map(|record| record.attached.publication).unwrap_or_default();
        volume.backend.node().lost(volume.call, &volume.id_here(), &attached_for, wanted)
    }

    /// Whether the device was taken away under what is mounted of it: that can only fail, and beside another
    /// device nobody would find it any more.
    fn is_gone(&self, volume: &OnNode<'_>) -> Result<bool> {
        let has_none = volume.attachment()?.is_none();
        Ok(has_none && volume.backend.node().is_absent(&volume.id_here())? && self.is_mounted(volume)?)
    }

    /// Whether the volume, or what is left of it, is mounted for real or where it is staged or published.
    pub(crate) fn is_mounted(&self, volume: &OnNode<'_>) -> Result<bool> {
        let mut places = vec![self.real_mount(volume.id)?];
        for path in volume.record().iter().flat_map(NodeRecord::paths) {
            places.push(mounts::resolved(path)?);
        }
        for place in places {
            let mounted = self.mounted_at(volume, &place)?;
            if matches!(mounted, Mounted::Ours { .. } | Mounted::Foreign { covers_ours: true, .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes from the node what it has attached, which cannot be used any more.
    pub(crate) fn let_go(&self, volume: &OnNode<'_>, (why, secrets): (&str, &Secrets)) -> Result<()> {
        let (id, record) = (volume.id, volume.record());
        for target in record.iter().flat_map(NodeRecord::targets) {
            if !matches!(self.mounted_at(volume, &mounts::resolved(&target.path)?)?, Mounted::Nothing) {
                return Err(Error::precondition(format!(
                    "volume {id} cannot be used on this node: {why}; it is still published at {}: unpublish it \
                     there first, and it is made ready anew",
                    target.path
                )));
            }
        }
        log::warn!("volume {id} is made ready anew: {why}");
        for staging in record.iter().flat_map(NodeRecord::stagings) {
            self.ensure_unbound(volume, &mounts::resolved(&staging.path)?)?;
        }
        self.ensure_unbound(volume, &self.real_mount(id)?)?;
        // Others may have written to it since.
        self.clear_format_mark(volume)?;
        volume.look_again();
        // It stays published to this node.
        volume.backend.node().detach(volume.call, &volume.id_here(), PublishedBy::Controller, secrets)
    }
}
