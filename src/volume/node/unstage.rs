//! Taking a volume back from its consumers and from this node.
//!
//! Only recorded paths are unmounted, and only what we made is removed, never recursively. The device stays
//! mounted and attached while any staging path or target is left, whatever the orchestrator asks for.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::backend::{AttachedImage, PublishedBy};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::sys::file;
use crate::volume::Operations;
use crate::volume::node::mounts::{Mounted, OnNode};
use crate::volume::node::record::{Made, NodeRecord, Use, UseKind};
use crate::volume::request::{Access, NodeUnpublish, NodeUnstage};

impl Operations {
    /// Undoes a stage; if the volume is not staged at the path, that is no error.
    pub fn unstage(&self, call: &Call, request: &NodeUnstage) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        self.remove_staging(&self.on_node(call, id, backend)?, &request.staging_path, &Secrets::default())
    }

    /// Undoes a publish; if the volume is not published at the path, that is no error.
    pub fn unpublish(&self, call: &Call, request: &NodeUnpublish) -> Result<()> {
        let (id, backend) = request.volume.get()?;
        self.remove_target(&self.on_node(call, id, backend)?, &request.target_path, &request.secrets)
    }

    /// Runs `remove` to undo a failed call at a path, as far as possible: if the kernel refuses, the record
    /// stays, so that a later unstage or unpublish finds it. After a timeout the work may still be going on:
    /// nothing is undone, and a repeated call finds the work done.
    pub(crate) fn roll_back(
        &self,
        volume: &OnNode<'_>,
        path: &str,
        outcome: Result<()>,
        remove: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let Err(why) = outcome else { return Ok(()) };
        volume.look_again();
        let undone = match why.kind() {
            Kind::Timeout => Err(Error::timeout("it may still be going on")),
            _ => remove(),
        };
        Err(match undone {
            Ok(()) => why,
            Err(left) => why
                .hint(format_args!("what was begun at {path} is not undone ({left}): ask again, or undo it")),
        })
    }

    pub(crate) fn remove_staging(&self, volume: &OnNode<'_>, path: &str, secrets: &Secrets) -> Result<()> {
        let id = volume.id;
        let Some(mut record) = volume.record() else {
            let left = self.remove_unrecorded(volume, path, secrets)?;
            return if left.is_empty() { Ok(()) } else { Err(still_mounted(id, &left)) };
        };
        if record.stagings().all(|staging| staging.path == path) {
            self.give_up_targets(volume, &mut record)?;
        }
        if let Some(at) = record.uses.iter().position(|it| it.is_staging() && it.path == path) {
            if record.access != Access::Block {
                self.ensure_unbound(volume, path)?;
            }
            clean_up(id, &record.uses.remove(at), &record.access);
        }
        self.release(volume, record, secrets)
    }

    /// Called before the last staging path is given up, and the device with it: the targets from it must be
    /// unpublished. A target that was unmounted by hand is no longer in use, even if its path holds data now.
    fn give_up_targets(&self, volume: &OnNode<'_>, record: &mut NodeRecord) -> Result<()> {
        let id = volume.id;
        for target in record.uses.iter().filter(|it| it.kind == UseKind::Target) {
            match self.mounted_at(volume, &target.path)? {
                Mounted::Nothing | Mounted::Foreign { covers_ours: false, .. } => {}
                Mounted::Ours { .. } | Mounted::Foreign { .. } => {
                    return Err(Error::precondition(format!(
                        "volume {id} is still published at {}: unpublish it there first",
                        target.path
                    )));
                }
            }
        }
        record.uses.retain_mut(|it| {
            if it.kind != UseKind::Target || it.left_behind {
                return true;
            }
            it.left_behind = !clean_up(id, it, &record.access);
            it.left_behind
        });
        Ok(())
    }

    pub(crate) fn remove_target(&self, volume: &OnNode<'_>, path: &str, secrets: &Secrets) -> Result<()> {
        let Some(mut record) = volume.record() else {
            return self.remove_unrecorded(volume, path, secrets).map(drop);
        };
        if let Some(target) = record.uses.iter_mut().find(|it| !it.is_staging() && it.path == path) {
            self.ensure_unbound(volume, path)?;
            if let Err(error) = remove_made(target, &record.access) {
                // Data at the path does not keep the volume itself in use.
                return match std::mem::replace(&mut target.left_behind, true) {
                    true => Err(error),
                    false => self.release(volume, record, secrets).and(Err(error)),
                };
            }
            record.uses.retain(|it| it.is_staging() || it.path != path);
        }
        self.release(volume, record, secrets)
    }

    /// Unmounts a volume without a record (the journal was lost) from a path, as the kernel reports it. If it
    /// is mounted nowhere else, the device is detached; else the other paths are returned.
    ///
    /// If the volume is not attached, it is not mounted here: a mount at the path belongs to another volume.
    fn remove_unrecorded(&self, volume: &OnNode<'_>, path: &str, secrets: &Secrets) -> Result<Vec<PathBuf>> {
        let id = volume.id;
        if volume.attachment()?.is_none() || volume.predecessor.is_some() {
            return Ok(Vec::new());
        }
        self.ensure_unbound(volume, path)?;
        let real = self.real_mount(id)?;
        let mut left = self.mount_points(volume)?;
        left.retain(|at| *at != real);
        if left.is_empty() {
            log::warn!("volume {id} is attached, but this node has no record of it: it is detached");
            self.release(volume, self.unrecorded(id), secrets)?;
            self.end_own_publication(volume, secrets);
        }
        Ok(left)
    }

    /// Without a record the publisher is unknown. The node's own publication is ended, as far as possible.
    fn end_own_publication(&self, volume: &OnNode<'_>, secrets: &Secrets) {
        let OnNode { call, id, backend, .. } = *volume;
        // The volume has no record, so its image is the one in its ID.
        if let Err(error) = backend.node().detach(call, id, PublishedBy::Node, secrets) {
            let rest = "ControllerUnpublishVolume ends that";
            log::warn!(
                "volume {id} is detached; if this node had published it, it stays so ({rest}): {error}"
            );
        }
    }

    /// Writes the reduced record; if no use is left, first takes the device from the node.
    pub(crate) fn release(
        &self,
        volume: &OnNode<'_>,
        mut record: NodeRecord,
        secrets: &Secrets,
    ) -> Result<()> {
        let OnNode { call, id, backend, .. } = *volume;
        self.drop_broken_off(volume, &mut record, |_| false);
        if record.is_unused() {
            let mount_point = self.real_mount(id)?;
            self.ensure_unbound(volume, &mount_point)?;
            file::remove_dir(&mount_point)
                .map_err(|error| Error::io(format!("remove {}", mount_point.display()), &error))?;
            self.undo_formatting(volume, &mut record)?;
            volume.look_again();
            backend.node().detach(call, &volume.id_here(), record.published, secrets)?;
            record.attached = AttachedImage::default();
            record.begun = None;
        }
        self.remember_less(id, &record)?;
        volume.was_recorded(Some(record).filter(|record| !record.says_nothing()));
        Ok(())
    }

    /// The record without the publishings that were interrupted before anything was mounted, except the one
    /// that `is_asked_again`; None if no use is left, and then the device is taken from the node.
    pub(crate) fn release_if_unused(
        &self,
        volume: &OnNode<'_>,
        mut record: NodeRecord,
        secrets: &Secrets,
        is_asked_again: impl Fn(&Use) -> bool,
    ) -> Result<Option<NodeRecord>> {
        self.drop_broken_off(volume, &mut record, is_asked_again);
        match record.is_unused() {
            true => self.release(volume, record, secrets).map(|()| None),
            false => Ok(Some(record)),
        }
    }

    /// Drops targets without a stage where nothing is mounted. An orchestrator that does not learn the
    /// outcome of its publishing may unpublish there, but need not. A target that cannot be looked at stays.
    fn drop_broken_off(&self, volume: &OnNode<'_>, record: &mut NodeRecord, is_kept: impl Fn(&Use) -> bool) {
        let id = volume.id;
        let is_mounted =
            |target: &Use| !matches!(self.mounted_at(volume, &target.path), Ok(Mounted::Nothing));
        let (kept, broken_off): (Vec<_>, Vec<_>) =
            std::mem::take(&mut record.uses).into_iter().partition(|it| {
                let is_of_stage = matches!(it.kind, UseKind::Staging | UseKind::Target);
                is_of_stage || it.left_behind || is_kept(it) || is_mounted(it)
            });
        record.uses = kept;
        for target in broken_off {
            log::info!("volume {id}: nothing is mounted at {}, so that target is forgotten", target.path);
            clean_up(id, &target, &record.access);
        }
    }
}

fn still_mounted(id: &VolumeId, left: &[PathBuf]) -> Error {
    let left: Vec<_> = left.iter().map(|path| path.display().to_string()).collect();
    Error::precondition(format!(
        "volume {id} is still mounted at {}, of which this node has no record (was its journal lost?): \
         unpublish it there first, or unmount it",
        left.join(", ")
    ))
}

/// Removes what we made for a path that is no longer in use; returns whether nothing of it is left.
pub(crate) fn clean_up(id: impl fmt::Display, ended: &Use, access: &Access) -> bool {
    let removed = remove_made(ended, access);
    if let Err(error) = &removed {
        log::warn!("volume {id} is no longer in use at {}: {error}", ended.path);
    }
    removed.is_ok()
}

/// Removes the directory or file of a path that we made, and the directories above it. If it is not empty, it
/// holds a user's data and stays.
fn remove_made(ended: &Use, access: &Access) -> Result<()> {
    if !ended.made.itself {
        return Ok(());
    }
    let path = Path::new(&ended.path);
    let what = if ended.is_staging() { "staging" } else { "target" };
    let theirs = || {
        Error::precondition(format!(
            "the {what} path {} holds data of somebody: move it away",
            path.display()
        ))
    };
    let is_file = *access == Access::Block && !ended.is_staging();
    let removed = match is_file {
        false => file::remove_dir(path),
        true if path.symlink_metadata().is_ok_and(|found| !found.is_file() || found.len() > 0) => {
            return Err(theirs());
        }
        true => file::remove(path),
    };
    removed.map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => theirs(),
        _ => Error::io(format!("remove the {what} path {}", path.display()), &error),
    })?;
    remove_parents(&ended.made);
    Ok(())
}

/// Removes the directories that we made above a path, as far as they are empty.
fn remove_parents(made: &Made) {
    for parent in made.parents.iter().rev() {
        match file::remove_dir(Path::new(parent)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return,
            Err(error) => return log::warn!("the directory {parent} stays: {error}"),
        }
    }
}
