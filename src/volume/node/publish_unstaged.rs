//! Publishing without a stage: one call makes the volume ready on this node and publishes it to a consumer.
//! This is for orchestrators without staging, and for the operator, who works without an orchestrator.
//!
//! As for a stage, the device is attached and mounted once, below the runtime directory, for any number of
//! targets; only the staging path is missing. So there is nothing else to undo: giving up the last path of a
//! volume, of any kind, takes the device from the node.
//!
//! A caller that does not learn the outcome of a publishing may ask again or unpublish, but need not: a
//! target where nothing was mounted yet blocks no other request.
//!
//! For the operator the node does the controller's part as well, and undoes it with the last path. The record
//! notes this ([`PublishedBy::Node`]), so that it is undone after a boot, too.

use std::path::Path;

use crate::backend::{NodeContext, Publication, PublishedBy, RootSettings};
use crate::config::SingleNodeTargets;
use crate::dispatch::Call;
use crate::error::{Kind, Result};
use crate::ids::VolumeId;
use crate::volume::node::mounts::{Bind, OnNode};
use crate::volume::node::publish::{TargetEntry, add_target};
use crate::volume::node::record::{self, NodeRecord, Use, UseKind};
use crate::volume::node::stage::admit;
use crate::volume::request::{Access, NodePublishUnstaged, NodeUnpublish};
use crate::volume::{Operations, VolumeTarget};

impl Operations {
    /// Attaches, formats if blank, mounts, and binds the volume or its device to the target path.
    pub fn publish_unstaged(&self, call: &Call, request: &NodePublishUnstaged) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        backend.supports(&request.capability)?;
        let volume = &self.on_node(call, id, backend)?;
        self.refuse_unseen(volume, Path::new(&request.target_path))?;
        self.release_predecessor(volume, &request.secrets)?;
        let context = context_of(request, None);
        let (fs_type, root) = (self.fs_type_for(volume, &context)?, self.root_settings(volume, &context)?);
        let before = self.record_before(volume, request, &fs_type)?;
        let context = context_of(request, before.as_ref());
        let mut record = match before {
            Some(record) => record,
            None => self.first_record(volume, &context, &fs_type),
        };
        if request.by_operator {
            record.published = PublishedBy::Node;
        }
        let entry = enter_target(id, &mut record, request, &fs_type, self.single_node_targets)?;
        if self.remove_lost(volume, &context)? {
            record.forget_formatting();
        }
        if entry == TargetEntry::New {
            self.enter_what_is_made(&mut record, &request.target_path);
            self.write_record(volume, record)?;
        }
        let published = self.publish_recorded(volume, request, (&context, &root));
        let NodePublishUnstaged { target_path: path, secrets, .. } = request;
        match entry {
            TargetEntry::New => {
                self.roll_back(volume, path, published, || self.remove_target(volume, path, secrets))
            }
            // The target may be in use, so a failed call does not remove it.
            TargetEntry::Present => published,
        }
    }

    /// Attaches, mounts and binds the volume as recorded.
    fn publish_recorded(
        &self,
        volume: &OnNode<'_>,
        request: &NodePublishUnstaged,
        (context, root): (&NodeContext<'_>, &RootSettings),
    ) -> Result<()> {
        if request.capability.access == Access::Block {
            self.clear_format_mark(volume)?;
        }
        if request.by_operator {
            let (node, capability) = (self.node_id.clone(), request.capability.clone());
            let read_only = context.read_only;
            volume.backend.node().publish_here(volume.id, &Publication { node, capability, read_only })?;
        }
        self.attach(volume, context)?;
        self.mount_attached(volume)?;
        if !reads_only(request) {
            self.own_root(volume, root, None)?;
        }
        self.bind_target(volume, &request.target_path)
    }

    /// The record of the volume if it is in use on this node. An interrupted publishing blocks no other one:
    /// it is dropped, unless this request repeats it exactly.
    fn record_before(
        &self,
        volume: &OnNode<'_>,
        request: &NodePublishUnstaged,
        fs_type: &str,
    ) -> Result<Option<NodeRecord>> {
        let Some(record) = volume.record() else { return Ok(None) };
        let wanted = target_of(request);
        let same_access = record.access == record::shared_access(&request.capability, fs_type);
        self.release_if_unused(volume, record, &request.secrets, |target| {
            let Use { path, mode, read_only, .. } = target;
            same_access && (path, mode, read_only) == (&wanted.path, &wanted.mode, &wanted.read_only)
        })
    }

    fn bind_target(&self, volume: &OnNode<'_>, path: &str) -> Result<()> {
        let record = volume.recorded()?;
        let Some(target) = record.targets().find(|target| target.path == path) else { return Ok(()) };
        let read_only = target.read_only || record.read_only;
        let source = self.bind_source(volume, &record, read_only)?;
        let bind = Bind { source: &source, target: Path::new(path), access: &record.access, read_only };
        self.ensure_bound(volume, &bind)
    }

    /// Binds a volume again where an orchestrator without staging has published it and nothing is mounted any
    /// more. Docker Swarm takes it for published and asks no more, and unmounts the targets of a plugin that
    /// it stops: the next consumer would write into an empty directory of the host. Returns how many of the
    /// `lost` targets are mounted again.
    pub fn bind_lost_targets(&self, record: &NodeRecord, lost: &[&Use]) -> usize {
        let Some(id) = VolumeId::parse(&record.volume_id) else { return 0 };
        let call = Call::internal("recover");
        let bind = |target: &Use| {
            let volume = self.on_node(&call, &id, self.backend_of(&id.place)?.as_ref())?;
            self.bind_target(&volume, &target.path)
        };
        let is_bound = |target: &&&Use| {
            let failed = |error| log::warn!("volume {id} is not mounted again at {}: {error}", target.path);
            bind(target).map_err(failed).is_ok()
        };
        lost.iter().filter(|it| it.kind == UseKind::Unstaged).filter(is_bound).count()
    }

    /// The paths where a volume is published on this node.
    pub fn targets_here(&self, volume_id: &str) -> Result<Vec<String>> {
        let Some(id) = VolumeId::parse(volume_id) else { return Ok(Vec::new()) };
        let uses = self.node_record(&id)?.into_iter().flat_map(|record| record.uses);
        let targets = uses.filter(|it| !it.is_staging() && !it.left_behind);
        Ok(targets.map(|target| target.path).collect())
    }

    /// Whether a volume is in use on this node.
    pub fn is_in_use_here(&self, volume: &VolumeTarget) -> Result<bool> {
        Ok(self.node_record(volume.get()?.0)?.is_some_and(|record| !record.is_unused()))
    }

    /// Refuses a volume that is not in use on this node and that its backend reports as absent. If the
    /// cluster does not answer, the request goes on, so that a volume that is gone can be given up.
    pub fn refuse_absent(&self, call: &Call, request: &NodeUnpublish) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        if self.node_record(id)?.is_some() {
            return Ok(());
        }
        match backend.volumes().find(call, id, &request.secrets) {
            Ok(None) => Err(request.volume.absent()),
            Ok(Some(_)) => Ok(()),
            Err(error) if error.kind() == Kind::NotFound => Err(error),
            Err(error) => {
                log::debug!("volume {id} is not in use here; whether it exists is unknown: {error}");
                Ok(())
            }
        }
    }
}

/// Enters the target into the record, if it is compatible with the record. A conflict with the use at this
/// very path is another refusal than one with a use elsewhere.
fn enter_target(
    id: &VolumeId,
    record: &mut NodeRecord,
    request: &NodePublishUnstaged,
    fs_type: &str,
    configured: SingleNodeTargets,
) -> Result<TargetEntry> {
    let target = target_of(request);
    let read_only = target.read_only;
    let entry = add_target(id, record, target, configured)?;
    let conflict = match entry {
        TargetEntry::New => Kind::Precondition,
        TargetEntry::Present => Kind::AlreadyExists,
    };
    let access = record::shared_access(&request.capability, fs_type);
    let admitted = admit(id, record, &access, read_only, &request.target_path);
    admitted.map(|()| entry).map_err(|error| error.with_kind(conflict))
}

/// The requested target.
fn target_of(request: &NodePublishUnstaged) -> Use {
    let kind = if request.by_operator { UseKind::Operator } else { UseKind::Unstaged };
    Use::new(kind, &request.target_path, request.capability.mode, reads_only(request))
}

fn reads_only(request: &NodePublishUnstaged) -> bool {
    request.read_only || record::is_read_only(&request.capability)
}

/// The context for the backend. A device is read-only for all its paths or for none. The first path decides:
/// for a block volume its mode; for a file system only the operator's request, as an orchestrator makes its
/// controller publish the volume read-only.
fn context_of<'a>(request: &'a NodePublishUnstaged, before: Option<&NodeRecord>) -> NodeContext<'a> {
    let NodePublishUnstaged { volume_context: volume, publish_context: publish, secrets, capability, .. } =
        request;
    let read_only = match before {
        Some(before) if request.by_operator => before.read_only,
        _ if capability.access == Access::Block => reads_only(request),
        _ => request.by_operator && request.read_only,
    };
    NodeContext { volume, publish, secrets, capability, read_only }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::AttachedImage;
    use crate::backend::creation_record::Unknown;
    use crate::secrets::Secrets;
    use crate::volume::request::{Capability, Map, Mode};
    use crate::volume::tests::Scene;

    fn capability(mode: Mode, flags: &[&str]) -> Capability {
        let flags = flags.iter().map(ToString::to_string).collect();
        Capability { access: Access::Mount { fs_type: String::new(), flags }, mode }
    }

    fn request(path: &str, capability: Capability, read_only: bool) -> NodePublishUnstaged {
        NodePublishUnstaged {
            volume: VolumeTarget::unknown(""),
            publish_context: Map::new(),
            target_path: path.into(),
            capability,
            read_only,
            secrets: Secrets::default(),
            volume_context: Map::new(),
            by_operator: false,
        }
    }

    /// The outcome of a second publishing, in the lenient configuration: whether the target is new, or the
    /// kind of refusal.
    fn second(first: &NodePublishUnstaged, second: &NodePublishUnstaged) -> Result<TargetEntry, Kind> {
        let id = VolumeId::parse("local:n:::o:1").expect("an ID");
        let (volume_id, boot_id) = (id.to_string(), "b".into());
        let access = record::shared_access(&first.capability, "ext4");
        let mut record = NodeRecord {
            volume_id,
            boot_id,
            access,
            read_only: false,
            uses: Vec::new(),
            published: PublishedBy::Node,
            attached: AttachedImage::default(),
            begun: None,
            mount_group: None,
            unknown: Unknown::new(),
        };
        let mut enter = |request| enter_target(&id, &mut record, request, "ext4", SingleNodeTargets::Lenient);
        enter(first).expect("the first one");
        enter(second).map_err(|error| error.kind())
    }

    /// The table of CSI 0.1, "NodePublishVolume". What one mount cannot serve is refused at other paths, too.
    #[test]
    fn a_second_publishing_is_what_the_table_says() {
        let modes = |multi: bool| {
            (1..=5).filter_map(Mode::from_number).filter(move |mode| mode.is_multi_node() == multi)
        };
        for (mode, elsewhere) in modes(true)
            .map(|mode| (mode, Ok(TargetEntry::New)))
            .chain(modes(false).map(|mode| (mode, Err(Kind::Precondition))))
        {
            let first = request("/t1", capability(mode, &[]), false);
            assert_eq!(second(&first, &first), Ok(TargetEntry::Present), "{mode:?}: the same again");
            assert_eq!(
                second(&first, &request("/t2", capability(mode, &[]), false)),
                elsewhere,
                "{mode:?}: elsewhere"
            );
            let others = modes(true).chain(modes(false)).filter(|other| *other != mode);
            for other in others.map(|other| capability(other, &[])).chain([capability(mode, &["noatime"])]) {
                assert_eq!(
                    second(&first, &request("/t1", other, false)),
                    Err(Kind::AlreadyExists),
                    "{mode:?}: otherwise"
                );
            }
            let flags = request("/t2", capability(mode, &["noatime"]), false);
            assert_eq!(second(&first, &flags), Err(Kind::Precondition), "{mode:?}: elsewhere and otherwise");
        }
        let writer = request("/t1", capability(Mode::MultiNodeMultiWriter, &[]), false);
        let reader = |path| request(path, capability(Mode::MultiNodeMultiWriter, &[]), true);
        assert_eq!(second(&writer, &reader("/t1")), Err(Kind::AlreadyExists));
        assert_eq!(second(&writer, &reader("/t2")), Ok(TargetEntry::New));
        let other_mode = request("/t2", capability(Mode::MultiNodeReaderOnly, &[]), false);
        assert_eq!(second(&writer, &other_mode), Ok(TargetEntry::New));
    }

    #[test]
    fn the_operator_may_publish_at_several_paths_as_configured() {
        let operators = |path, mode| {
            let request = request(path, capability(mode, &[]), false);
            NodePublishUnstaged { by_operator: true, ..request }
        };
        for (mode, elsewhere) in [
            (Mode::SingleNodeWriter, Ok(TargetEntry::New)),
            (Mode::SingleNodeMultiWriter, Ok(TargetEntry::New)),
            (Mode::SingleNodeSingleWriter, Err(Kind::Precondition)),
        ] {
            let first = operators("/t1", mode);
            assert_eq!(second(&first, &first), Ok(TargetEntry::Present), "{mode:?}: the same again");
            assert_eq!(second(&first, &operators("/t2", mode)), elsewhere, "{mode:?}");
        }
        let orchestrators = request("/t2", capability(Mode::SingleNodeWriter, &[]), false);
        let first = operators("/t1", Mode::SingleNodeWriter);
        assert_eq!(second(&first, &orchestrators), Err(Kind::Precondition), "CSI 0.1 is strict");
    }

    #[test]
    fn the_operators_first_path_says_whether_the_device_is_read_only() {
        let scene = Scene::new();
        let id = scene.create();
        let writes = request("/t1", capability(Mode::SingleNodeWriter, &[]), false);
        let reads = NodePublishUnstaged { read_only: true, ..writes.clone() };
        let by_operator =
            |request: &NodePublishUnstaged| NodePublishUnstaged { by_operator: true, ..request.clone() };
        assert!(!context_of(&reads, None).read_only, "the controller of an orchestrator says so");
        assert!(context_of(&by_operator(&reads), None).read_only);
        assert!(!context_of(&by_operator(&writes), None).read_only);
        for read_only in [true, false] {
            let record = NodeRecord { read_only, ..scene.operations.unrecorded(&id) };
            for request in [&reads, &writes] {
                assert_eq!(context_of(&by_operator(request), Some(&record)).read_only, read_only);
            }
        }
    }
}
