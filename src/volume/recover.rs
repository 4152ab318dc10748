//! Recovery after a crash, a restart or a boot: compares the journal with the kernel's state.
//!
//! A background job does the work that needs a cluster. It takes the lock of its object as a call does, and
//! holds it to its end, so that a command that cannot be killed keeps it.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::backend::{Interrupted, PublishedBy};
use crate::dispatch::{Call, Key, ObjectLocks};
use crate::error::{Kind, Result};
use crate::ids::VolumeId;
use crate::jobs::{RETRY, Requeue};
use crate::journal::{Change, Table};
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::deletion::{BegunDeletion, Deleting};
use crate::volume::node::mounts::{self, OnNode, is_mount_point};
use crate::volume::node::record::{NodeRecord, Use, UseKind};
use crate::volume::node::unstage::clean_up;

/// The pause between two looks for deletions that were begun.
const DELETIONS: Duration = Duration::from_secs(60 * 60);

/// The locks of the objects that calls work on.
type Locks = Arc<dyn ObjectLocks>;

impl Operations {
    /// Brings the node's records in line with this boot. Volumes that are still mounted need nothing: every
    /// operation asks the kernel.
    pub fn recover_node(self: &Arc<Self>, locks: &Locks) -> Result<()> {
        let mounts = mounts::read()?;
        for (key, record) in self.node_records() {
            if record.boot_id != self.boot_id {
                self.forget_boot(&key, &record, locks)?;
                continue;
            }
            let in_use = record.targets().filter(|target| !target.left_behind);
            let lost: Vec<&Use> = in_use.filter(|target| !is_mount_point(&mounts, &target.path)).collect();
            let (id, paths) = (&record.volume_id, record.paths().count());
            let bound = if self.stages { 0 } else { self.bind_lost_targets(&record, &lost) };
            match lost.len() - bound {
                0 if bound == 0 => log::info!("volume {id}: still in use at {paths} paths"),
                0 => log::info!("volume {id}: mounted again at {bound} of {paths} paths"),
                lost => log::warn!(
                    "volume {id}: {lost} of its targets are not mounted; a repeated publish mounts them"
                ),
            }
        }
        Ok(())
    }

    /// After a boot nothing is mounted or attached any more; only the empty places we made may be left. The
    /// record of a remote volume stays until the node has removed what it wrote into the cluster, and ended
    /// its own publication. A local volume is given back at once; its record stays only while work on its
    /// file system is begun.
    fn forget_boot(self: &Arc<Self>, key: &str, record: &NodeRecord, locks: &Locks) -> Result<()> {
        let NodeRecord { volume_id, .. } = record;
        let paths = record.paths().count();
        log::warn!("volume {volume_id}: was in use before this boot; its {paths} paths are gone");
        for ended in &record.uses {
            clean_up(volume_id, ended, &record.access);
        }
        let mut unused = NodeRecord { uses: Vec::new(), ..record.clone() };
        let id = VolumeId::parse(volume_id);
        let backend = id.as_ref().and_then(|id| self.backends.by_kind(&id.place));
        let is_remote = backend.is_some_and(|backend| backend.traits().is_remote);
        let is_operators = record.uses.iter().any(|it| it.kind == UseKind::Operator);
        if is_operators
            && !is_remote
            && let (Some(id), Some(backend)) = (&id, backend)
        {
            let (call, secrets) = (Call::internal("recover"), Secrets::default());
            if let Err(error) = backend.node().detach(&call, id, PublishedBy::Node, &secrets) {
                log::warn!("volume {id} stays published to this node until it is unpublished: {error}");
                return Ok(());
            }
        }
        let to_give_back = id.filter(|_| is_remote);
        if is_remote {
            // Other nodes may have written to it since. The next stage finds again if it has to grow.
            unused.begun = None;
        }
        let change = match to_give_back.is_some() || unused.begun.is_some() {
            true => unused.to_change(key)?,
            false => Change::remove(Table::Volumes, key),
        };
        self.journal.write_for_removal(&[change])?;
        if let Some(id) = to_give_back {
            let (locks, cluster) = (Arc::clone(locks), id.place.cluster.clone());
            let name = format!("give back volume {id}, which was in use before this boot");
            self.do_later(&cluster, name, move |operations, call| {
                operations.give_back_after_boot(call, &id, &locks)
            });
        }
        Ok(())
    }

    /// Undoes what the node has done in the cluster. The cluster may not answer, so the start does not wait,
    /// and the job is retried. Until then, a volume that the node has published to itself stays published,
    /// and the next stage takes the publication over.
    fn give_back_after_boot(&self, call: &Call, id: &VolumeId, locks: &Locks) -> Result<Requeue> {
        call.hold(locks.lock(call, Key::from(self.key(id)))?);
        let volume = self.on_node(call, id, self.backend_of(&id.place)?.as_ref())?;
        let Some(record) = volume.record().filter(NodeRecord::is_unused) else { return Ok(Requeue::Never) };
        self.forget_earlier_boots(&volume)?;
        match self.release(&volume, record.clone(), &Secrets::default()) {
            // The volume is gone with its pool.
            Err(error) if error.kind() == Kind::NotFound => {
                log::warn!("volume {id} is gone, with what it was published by: {error}");
                self.remember_less(id, &record)?;
            }
            released => released?,
        }
        Ok(Requeue::Never)
    }

    /// Removes what the node has written into the cluster before it booted.
    ///
    /// # Errors
    /// Errors that a retry can resolve: the cluster did not answer.
    fn forget_earlier_boots(&self, volume: &OnNode<'_>) -> Result<()> {
        let OnNode { call, id, backend, .. } = *volume;
        match backend.node().forget_earlier_boots(call, &volume.id_here()) {
            Err(error) if !matches!(error.kind(), Kind::Unavailable | Kind::Timeout) => {
                log::warn!(
                    "volume {id}: what this node wrote into the cluster before it booted stays: {error}"
                );
                Ok(())
            }
            forgotten => forgotten,
        }
    }

    /// Goes through what the controller had begun when it ended: finishes deletions as far as that is safe,
    /// and logs the others. A cluster may not answer, so the start does not wait for it.
    pub fn recover_controller(self: &Arc<Self>, locks: &Locks) -> Result<()> {
        self.backends.all().try_for_each(|backend| backend.recover())?;
        for of in self.deletions().into_iter().map(|deletion| deletion.of) {
            if self.backends.for_place(of.place()).is_none() {
                log::warn!(
                    "the deletion of {of} was interrupted: it is finished once its place is set up here again"
                );
            }
        }
        let locks = Arc::clone(locks);
        // A call may leave a deletion half done, too, and its client may never repeat it.
        self.do_later("the journal", "look for deletions to finish".to_string(), move |operations, _| {
            operations.deletions().into_iter().for_each(|deletion| operations.finish_later(deletion, &locks));
            Ok(Requeue::After(DELETIONS))
        });
        Ok(())
    }

    /// Finishes the deletion in the background, with as many retries as it takes.
    fn finish_later(self: &Arc<Self>, deletion: BegunDeletion, locks: &Locks) {
        let object = match &deletion.of {
            Deleting::Volume(id) => Key::from(self.key(id)),
            Deleting::Snapshot(id) => Key::from(self.snapshot_key(id)),
        };
        let (locks, cluster) = (Arc::clone(locks), deletion.of.place().cluster.clone());
        let name = format!("finish the deletion of {}", deletion.of);
        self.do_later(&cluster, name, move |operations, call| {
            call.hold(locks.lock(call, object.clone())?);
            operations.finish(call, &deletion)
        });
    }

    fn do_later(
        self: &Arc<Self>,
        cluster: &str,
        name: String,
        mut work: impl FnMut(&Arc<Self>, &Call) -> Result<Requeue> + Send + 'static,
    ) {
        // The operations own the queue, so the queue must not own them.
        let operations = Arc::downgrade(self);
        // A lane of its own: a backend's own jobs may take hours.
        let lane = format!("recovery of {cluster}");
        self.jobs.add(&lane, name, Duration::ZERO, move |call| match operations.upgrade() {
            Some(operations) => work(&operations, call),
            None => Ok(Requeue::Never),
        });
    }

    /// The deletions that were begun. An unreadable entry stays.
    pub(crate) fn deletions(&self) -> Vec<BegunDeletion> {
        let read = |(key, value): (String, Value)| {
            let deletion = BegunDeletion::parse(&key, &value);
            if deletion.is_none() {
                log::warn!("the journal's entry of the deletion of {key} cannot be read: it is left alone");
            }
            deletion
        };
        self.journal.entries(Table::Deletions).into_iter().filter_map(read).collect()
    }

    /// Finishes a deletion, unless a call has finished it meanwhile. If its place is not set up, the deletion
    /// stays: the place may be set up again.
    fn finish(&self, call: &Call, deletion: &BegunDeletion) -> Result<Requeue> {
        let of = &deletion.of;
        if self.journal.get(Table::Deletions, &deletion.key()).is_none() {
            return Ok(Requeue::Never);
        }
        let Some(backend) = self.backends.for_place(of.place()) else { return Ok(Requeue::After(RETRY)) };
        let secrets = &Secrets::default();
        let outcome = match of {
            Deleting::Volume(id) => backend.volumes().finish_deletion(call, id, secrets)?,
            Deleting::Snapshot(id) => backend.snapshots().finish_deletion(call, id, secrets)?,
        };
        if outcome == Interrupted::Whole {
            let when = deletion.when();
            log::warn!(
                "the deletion of {of} was interrupted, it was begun at {when}: send the request again"
            );
        }
        self.journal.note(&[Change::remove(Table::Deletions, deletion.key())]);
        Ok(Requeue::Never)
    }
}
