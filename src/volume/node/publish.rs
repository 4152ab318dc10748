//! Publishing a staged volume to a consumer, at a path of its own.

use std::path::{Path, PathBuf};

use crate::backend::NodeContext;
use crate::config::SingleNodeTargets;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::volume::Operations;
use crate::volume::node::mounts::{Bind, Mounted, OnNode};
use crate::volume::node::owner::enter_group;
use crate::volume::node::record::{self, NodeRecord, Use, UseKind};
use crate::volume::request::{Access, Mode, NodePublish};

impl Operations {
    /// Binds the staged volume, or its device, to the target path.
    pub fn publish(&self, call: &Call, request: &NodePublish) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        backend.supports(&request.capability)?;
        let volume = &self.on_node(call, id, backend)?;
        let Some(mut record) = volume.record_in_use() else { return self.not_staged(call, request) };
        self.ensure_usable(volume, &context_of(request, &record))?;
        // The record may have another image now.
        record = volume.recorded()?;
        self.check_staging(volume, &record, request)?;
        let path = Path::new(&request.target_path);
        let read_only = request.read_only || record.read_only || record::is_read_only(&request.capability);
        self.refuse_unseen(volume, path)?;
        let source = self.bind_source(volume, &record, read_only)?;
        let mode = request.capability.mode;
        let wanted = Use::new(UseKind::Target, &request.target_path, mode, read_only);
        let entry = add_target(id, &mut record, wanted, self.single_node_targets)?;
        let is_of_another_group = self.change_group(volume, &mut record, (request, entry), read_only)?;
        if entry == TargetEntry::New {
            self.enter_what_is_made(&mut record, &request.target_path);
        }
        if entry == TargetEntry::New || is_of_another_group {
            self.write_record(volume, record.clone())?;
        }
        let bind = Bind { source: &source, target: path, access: &record.access, read_only };
        let bound = self.ensure_bound(volume, &bind);
        let NodePublish { target_path: path, secrets, .. } = request;
        match entry {
            TargetEntry::New => {
                self.roll_back(volume, path, bound, || self.remove_target(volume, path, secrets))
            }
            // The target may be in use, so a failed call does not remove it.
            TargetEntry::Present => bound,
        }
    }

    /// Makes sure that a staged volume works and may be used for this publication, as far as its storage
    /// tells: an orchestrator may publish a volume to a node again without staging it again. If no controller
    /// has published it, a lost volume is refused here, and the next stage makes it ready.
    fn ensure_usable(&self, volume: &OnNode<'_>, context: &NodeContext<'_>) -> Result<()> {
        let id = volume.id;
        if context.publish.is_empty() {
            let why = self.why_lost(volume, context)?;
            return why.map_or(Ok(()), |why| {
                Err(Error::precondition(format!(
                    "volume {id} cannot be used on this node: {why}; unpublish it here, and stage it again"
                )))
            });
        }
        let was_lost = self.remove_lost(volume, context)?;
        match self.attach(volume, context) {
            Ok(()) => {
                // This also finishes what an earlier call could not finish.
                let is_new = self.mount_attached(volume)?;
                let record = volume.recorded()?;
                if is_new {
                    let root = self.root_settings(volume, context)?;
                    self.own_root(volume, &root, record.mount_group)?;
                }
                let mut stagings = record.stagings();
                stagings.try_for_each(|staging| self.bind_staging(volume, &staging.path))
            }
            // Only if it is mounted: a volume that is only attached may not have passed an earlier call.
            Err(error) if !was_lost && is_no_answer(&error) && self.is_mounted(volume)? => {
                log::warn!("volume {id}: whether it may be used as published now is not known: {error}");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the volume to the group of the request, if that is another one than the recorded one. No other
    /// target may be in use with that. Returns whether the record has changed.
    fn change_group(
        &self,
        volume: &OnNode<'_>,
        record: &mut NodeRecord,
        (request, entry): (&NodePublish, TargetEntry),
        read_only: bool,
    ) -> Result<bool> {
        let (before, group) = (record.mount_group, request.mount_group.filter(|_| !read_only));
        let others =
            record.targets().filter(|it| !it.left_behind && it.path != request.target_path).count() > 0;
        let conflict = match entry {
            TargetEntry::New => (others, Kind::Precondition),
            TargetEntry::Present => (true, Kind::AlreadyExists),
        };
        enter_group(volume.id, record, group, conflict)?;
        if record.mount_group == before {
            return Ok(false);
        }
        let root = self.root_settings(volume, &context_of(request, record))?;
        self.own_root(volume, &root, group).map(|()| true)
    }

    /// The error for a volume without a record.
    fn not_staged(&self, call: &Call, request: &NodePublish) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        match backend.volumes().find(call, id, &request.secrets)? {
            None => Err(request.volume.absent()),
            Some(_) => {
                Err(Error::precondition(format!("volume {id} is not staged on this node: stage it first")))
            }
        }
    }

    /// Refuses a volume that is not staged where the request says, or not in a way that allows the request.
    fn check_staging(&self, volume: &OnNode<'_>, record: &NodeRecord, request: &NodePublish) -> Result<()> {
        let id = volume.id;
        let path = &request.staging_path;
        let staging = record.staging(path).ok_or_else(|| {
            Error::precondition(format!("volume {id} is not staged at {path:?}: stage it there first"))
        })?;
        let kind = |access: &Access| if *access == Access::Block { "block device" } else { "file system" };
        let (is, asked) = (kind(&record.access), kind(&request.capability.access));
        if is != asked {
            return Err(Error::precondition(format!(
                "volume {id} is staged as a {is} and cannot be published as a {asked}"
            )));
        }
        if staging.read_only && !request.read_only && !record::is_read_only(&request.capability) {
            return Err(Error::precondition(format!(
                "volume {id} is staged read-only at {} and cannot be published for writing",
                staging.path
            )));
        }
        let unmounted = record.access != Access::Block
            && !matches!(self.mounted_at(volume, &staging.path)?, Mounted::Ours { .. });
        match unmounted {
            true => Err(Error::precondition(format!(
                "volume {id} is no longer mounted at its staging path {}: stage it again",
                staging.path
            ))),
            false => Ok(()),
        }
    }

    /// The source of the targets' bind mounts: the real mount, or the device node.
    pub(crate) fn bind_source(
        &self,
        volume: &OnNode<'_>,
        record: &NodeRecord,
        read_only: bool,
    ) -> Result<PathBuf> {
        let id = volume.id;
        if record.access != Access::Block {
            let real = self.real_mount(id)?;
            if !read_only {
                self.refuse_faulty(volume)?;
            }
            return match self.mounted_at(volume, &real)? {
                Mounted::Ours { .. } => Ok(real),
                _ => Err(Error::precondition(format!(
                    "volume {id} is no longer mounted on this node, at {}: unstage it, and stage it again",
                    real.display()
                ))),
            };
        }
        let gone =
            || Error::precondition(format!("volume {id} is no longer attached to this node: stage it again"));
        let attachment = volume.attachment()?.ok_or_else(gone)?;
        let device = attachment.device()?;
        if read_only && !device.read_only {
            // A read-only bind of a device node prevents no process from writing to the device.
            return Err(Error::precondition(format!(
                "volume {id} is attached for writing, and a block device cannot be read-only at one path \
                 alone: stage it with a \
                 reader-only access mode, or have the controller publish it read-only first"
            )));
        }
        Ok(device.path.clone())
    }
}

/// The context of the staged volume: what the request asks for one target does not matter to the backend.
fn context_of<'a>(request: &'a NodePublish, record: &NodeRecord) -> NodeContext<'a> {
    let NodePublish { volume_context: volume, publish_context: publish, secrets, capability, .. } = request;
    let read_only = record.access == Access::Block && record.read_only;
    NodeContext { volume, publish, secrets, capability, read_only }
}

/// Whether the storage, or the source of its credentials, did not answer.
fn is_no_answer(error: &Error) -> bool {
    matches!(error.kind(), Kind::Unavailable | Kind::Timeout | Kind::Unauthenticated)
}

/// How a target came into a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetEntry {
    /// It is new in the record.
    New,
    /// The record had it before.
    Present,
}

/// Enters a target into the record, unless it is there. A path that was left behind is in use again.
pub(crate) fn add_target(
    id: &VolumeId,
    record: &mut NodeRecord,
    wanted: Use,
    configured: SingleNodeTargets,
) -> Result<TargetEntry> {
    let present = record.uses.iter().position(|it| !it.is_staging() && it.path == wanted.path);
    let left_behind = match present.map(|at| &record.uses[at]) {
        Some(present) if !present.left_behind => {
            return same_target(id, present, &wanted).map(|()| TargetEntry::Present);
        }
        _ => present.map(|at| record.uses.remove(at).made),
    };
    check_other_targets(id, record, &wanted, configured)?;
    if let Some(staging) =
        record.stagings().find(|staging| Path::new(&wanted.path).starts_with(&staging.path))
    {
        // Unpublishing that target would take the volume from the users of the staging path.
        return Err(Error::precondition(format!(
            "volume {id} is staged at {}, so {} cannot be a target of it: name another path",
            staging.path, wanted.path
        )));
    }
    record.uses.push(Use { made: left_behind.unwrap_or_default(), ..wanted });
    Ok(TargetEntry::New)
}

/// Whether the access mode allows another target besides the present ones (CSI, "NodePublishVolume", second
/// call).
fn check_other_targets(
    id: &VolumeId,
    record: &NodeRecord,
    wanted: &Use,
    configured: SingleNodeTargets,
) -> Result<()> {
    let others = || record.targets().filter(|target| !target.left_behind);
    let Some(other) = others().next() else { return Ok(()) };
    let all = || others().chain([wanted]);
    let strict =
        configured == SingleNodeTargets::Strict || all().any(|target| target.kind == UseKind::Unstaged);
    let single = |mode: Mode| match mode {
        Mode::SingleNodeSingleWriter => true,
        Mode::SingleNodeWriter | Mode::SingleNodeReaderOnly => strict,
        _ => false,
    };
    match all().map(|target| target.mode).find(|mode| single(*mode)) {
        Some(mode) => Err(Error::precondition(format!(
            "volume {id} is published at {} and {mode:?} allows one target only: unpublish it there first",
            other.path
        ))),
        None => Ok(()),
    }
}

fn same_target(id: &VolumeId, present: &Use, wanted: &Use) -> Result<()> {
    if (present.mode, present.read_only) == (wanted.mode, wanted.read_only) {
        return Ok(());
    }
    let describe =
        |target: &Use| format!("{:?}{}", target.mode, if target.read_only { ", read-only" } else { "" });
    let (is, asked) = (describe(present), describe(wanted));
    Err(Error::already_exists(format!(
        "volume {id} is published at {} as {is}, not as {asked}: unpublish it first",
        present.path
    )))
}
