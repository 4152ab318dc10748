//! Who owns the root of a mounted file system, and the group that shares it. Nothing is changed for a use that
//! only reads.
//!
//! The owner belongs to a new file system, which its root shows ([`give`](crate::sys::owner::give)): the
//! journal of the node that formatted it may be lost, or the volume may go on to another node meanwhile.
//!
//! The group belongs to the uses of the volume on this node, which share one root.

use crate::backend::{NodeContext, RootSettings};
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::volume::Operations;
use crate::volume::node::mounts::OnNode;
use crate::volume::node::record::NodeRecord;
use crate::volume::request::Access;

impl Operations {
    /// What the volume's parameters say about the root of its file system. An orchestrator that skips the
    /// controller, and the operator, may pass nothing on.
    pub(crate) fn root_settings(
        &self,
        volume: &OnNode<'_>,
        context: &NodeContext<'_>,
    ) -> Result<RootSettings> {
        let NodeContext { publish, volume: made_with, capability, secrets, .. } = *context;
        let is_told = !publish.is_empty() || !made_with.is_empty();
        if is_told || capability.access == Access::Block {
            let all = made_with.iter().chain(publish).map(|(key, value)| (key.clone(), value.clone()));
            return RootSettings::of_context(&all.collect());
        }
        let found = volume.backend.volumes().find(volume.call, volume.id, secrets)?;
        found.map_or(Ok(RootSettings::default()), |found| RootSettings::of_context(&found.root))
    }

    /// Gives the root of the mounted file system to its owner, if it is new, and to the group.
    pub(crate) fn own_root(
        &self,
        volume: &OnNode<'_>,
        settings: &RootSettings,
        group: Option<u32>,
    ) -> Result<()> {
        let record = volume.recorded()?;
        let sharing = group.map(|gid| settings.sharing(gid));
        let asks_nothing = settings.owner.is_none() && sharing.is_none();
        if record.access == Access::Block || record.read_only || asks_nothing {
            return Ok(());
        }
        if volume.attachment()?.is_none_or(|attachment| attachment.is_read_only()) {
            return Ok(());
        }
        let root = self.real_mount(volume.id)?;
        let owned = self.kernel.own(volume.call, &root, &settings.owner, sharing);
        owned.map_err(|error| error.context(format!("volume {}", volume.id)))
    }
}

/// Enters the group of a request into the record. `others` are in use with the group that is there.
///
/// # Errors
/// Of the kind `conflict`: they have another group.
pub(crate) fn enter_group(
    id: &VolumeId,
    record: &mut NodeRecord,
    group: Option<u32>,
    (others, conflict): (bool, Kind),
) -> Result<()> {
    match (record.mount_group, group) {
        (Some(present), Some(asked)) if present != asked && others => Err(Error::precondition(format!(
            "volume {id} is in use on this node by the group {present}, {asked} was asked for: unpublish and \
             unstage it first, or ask for the same"
        ))
        .with_kind(conflict)),
        (present, asked) => {
            record.mount_group = asked.or(present);
            Ok(())
        }
    }
}
