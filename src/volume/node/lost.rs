//! Volumes whose device can only fail from now on, as their storage has shut this node out, or is another
//! image than the one that is asked for: they are made ready anew when they are asked for again. What
//! consumers have open would fail for ever beside it, so they let go of it first.

use crate::backend::{Backend, NodeContext, PublishedBy};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::node::mounts::{self, Mounted};

impl Operations {
    /// Takes a lost device from the node, with its mount and the staging paths; says whether it was lost.
    pub(crate) fn remove_lost(
        &self,
        call: &Call,
        backend: &dyn Backend,
        id: &VolumeId,
        wanted: &NodeContext<'_>,
    ) -> Result<bool> {
        let (here, record) = (self.id_here(id)?, self.node_record(id)?);
        let attached_for = record.as_ref().map_or("", |record| record.attached.publication.as_str());
        let Some(why) = backend.node().lost(call, &here, attached_for, wanted)? else { return Ok(false) };
        self.let_go(call, backend, id, (&why, wanted.secrets)).map(|()| true)
    }

    /// Takes from the node what it has attached, which cannot be used any more.
    pub(crate) fn let_go(
        &self,
        call: &Call,
        backend: &dyn Backend,
        id: &VolumeId,
        (why, secrets): (&str, &Secrets),
    ) -> Result<()> {
        let (here, record) = (self.id_here(id)?, self.node_record(id)?);
        let volume = self.look_on_node(call, id)?;
        for target in record.iter().flat_map(|record| &record.targets) {
            if !matches!(self.mounted_at(&volume, &mounts::resolved(&target.path)?)?, Mounted::Nothing) {
                return Err(Error::precondition(format!(
                    "volume {id} cannot be used on this node: {why}; it is still published at {}: unpublish it \
                     there first, and it is made ready anew",
                    target.path
                )));
            }
        }
        log::warn!("volume {id} is made ready anew: {why}");
        for staging in record.iter().flat_map(|record| &record.stagings) {
            self.ensure_unbound(&volume, &mounts::resolved(&staging.path)?)?;
        }
        self.ensure_unbound(&volume, &self.real_mount(id)?)?;
        // Others may have written to it since.
        self.clear_format_mark(id)?;
        // It stays published to this node.
        backend.node().detach(call, &here, PublishedBy::Controller, secrets)
    }
}
