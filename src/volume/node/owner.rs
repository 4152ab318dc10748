//! Who owns the root of a mounted file system, and the group that shares it. Nothing is changed for a use
//! that only reads.
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::csi::{Map, Mode};
    use crate::dispatch::Call;
    use crate::secrets::Secrets;
    use crate::volume::request::Capability;
    use crate::volume::tests::Scene;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    /// The user that owns the root, as the contexts of a request say.
    fn uid(scene: &Scene, id: &VolumeId, made_with: &Map, publish: &Map) -> Option<u32> {
        let (operations, call, secrets) = (&scene.operations, Call::internal("test"), Secrets::default());
        let access = Access::Mount { fs_type: String::new(), flags: Vec::new() };
        let capability = Capability { access, mode: Mode::SingleNodeWriter };
        let (capability, secrets) = (&capability, &secrets);
        let context = NodeContext { volume: made_with, publish, secrets, capability, read_only: false };
        let backend = operations.backends.for_place(&id.place).unwrap();
        let volume = operations.on_node(&call, id, backend.as_ref()).unwrap();
        operations.root_settings(&volume, &context).unwrap().owner.uid
    }

    #[test]
    fn the_owner_is_told_by_the_controller_or_the_orchestrator_or_is_looked_up() {
        let scene = Scene::new();
        let id = scene.create_with(&[("uid", "65534")]);
        let (told, empty) = (scene.publish_to(&id, "n1"), Map::new());
        assert_eq!(uid(&scene, &id, &empty, &told), Some(65534));
        assert_eq!(
            uid(&scene, &id, &map(&[("uid", "5")]), &told),
            Some(65534),
            "the controller knows better"
        );
        assert_eq!(uid(&scene, &id, &map(&[("uid", "5")]), &empty), Some(5), "it was registered so");
        assert_eq!(uid(&scene, &id, &empty, &empty), Some(65534), "the controller was skipped");
    }

    #[test]
    fn a_group_gives_way_to_another_only_where_nothing_uses_it() {
        let scene = Scene::new();
        let id = scene.create();
        let entered = |present, asked, others| {
            let mut record = NodeRecord { mount_group: present, ..scene.operations.unrecorded(&id) };
            let entered = enter_group(&id, &mut record, asked, (others, Kind::AlreadyExists));
            entered.map(|()| record.mount_group).map_err(|error| error.kind())
        };
        assert_eq!(entered(None, Some(1), true), Ok(Some(1)));
        assert_eq!(entered(Some(1), None, true), Ok(Some(1)));
        assert_eq!(entered(Some(1), Some(1), true), Ok(Some(1)));
        assert_eq!(entered(Some(1), Some(2), false), Ok(Some(2)));
        assert_eq!(entered(Some(1), Some(2), true), Err(Kind::AlreadyExists));
    }
}
