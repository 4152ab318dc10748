//! Coming back after a crash, a restart or a boot: what the journal remembers is compared with what the
//! kernel has.
//!
//! What needs a cluster is done by a background job, which takes the lock of its object as a call does.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Deletion, Interrupted};
use crate::dispatch::{Call, Key, ObjectLocks};
use crate::error::{Kind, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::jobs::{RETRY, Requeue};
use crate::journal::{Change, Table};
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::intent::{Intent, Operation};
use crate::volume::node::mounts;
use crate::volume::node::record::{NodeRecord, Target};
use crate::volume::node::unstage::{remove_made, remove_made_staging};
/// The locks of the objects that calls work on.
type Locks = Arc<dyn ObjectLocks>;

/// Does something under a lock. The call holds it from then on, so that a command that cannot be killed keeps
/// it.
fn with_lock<T>(locks: &Locks, call: &Call, key: Key, work: impl FnOnce() -> Result<T>) -> Result<T> {
    call.hold(locks.lock(call, key)?);
    work()
}

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
            let mounted = |target: &&Target| {
                mounts::resolved(&target.path).is_ok_and(|path| mounts.find_at(&path).is_some())
            };
            let in_use = record.targets.iter().filter(|target| !target.left_behind);
            let lost = in_use.filter(|target| !mounted(target)).count();
            match lost {
                0 => log::info!(
                    "volume {}: still in use at {} paths",
                    record.volume_id,
                    record.paths().count()
                ),
                lost => log::warn!(
                    "volume {}: {lost} of its targets are not mounted; a repeated publish mounts them",
                    record.volume_id
                ),
            }
        }
        Ok(())
    }

    /// After a boot nothing is mounted or attached any more; only the empty places we made may be left. What
    /// the node has written into a cluster, and what it had published to itself, it has to take back: until
    /// then the record stays, of a volume that nobody uses.
    fn forget_boot(self: &Arc<Self>, key: &str, record: &NodeRecord, locks: &Locks) -> Result<()> {
        let NodeRecord { volume_id, .. } = record;
        let paths = record.paths().count();
        log::warn!("volume {volume_id}: was in use before this boot; its {paths} paths are gone");
        for target in &record.targets {
            if let Err(error) = remove_made(target, &record.access) {
                log::warn!("volume {volume_id}: {error}");
            }
        }
        let unused = NodeRecord { stagings: Vec::new(), targets: Vec::new(), ..record.clone() };
        record.stagings.iter().for_each(|staging| remove_made_staging(volume_id, staging));
        let id = VolumeId::parse(volume_id);
        let backend = id.as_ref().and_then(|id| self.backends.by_kind(&id.place));
        let is_remote = backend.is_some_and(|backend| backend.traits().is_remote);
        let to_give_back = id.filter(|_| is_remote);
        let mut changes = vec![match to_give_back {
            Some(_) => unused.to_change(key)?,
            None => Change::remove(Table::Node, key),
        }];
        if is_remote {
            // Others may have written to it since. What was begun on it is looked for again, but a formatting
            // that was broken off.
            changes.push(Change::remove(Table::Formats, key));
        }
        self.journal.write_for_removal(&changes)?;
        if let Some(id) = to_give_back {
            let (locks, cluster) = (Arc::clone(locks), id.place.cluster.clone());
            let name = format!("give back volume {id}, which was in use before this boot");
            self.do_later(&cluster, name, move |operations, call| {
                operations.give_back_after_boot(call, &id, &locks)
            });
        }
        Ok(())
    }

    /// Undoes what the node has done in the cluster. That may not answer, so the start does not wait for it,
    /// and it is tried again; until then what the node has published to itself stays published to it, and the
    /// next stage takes it over.
    fn give_back_after_boot(&self, call: &Call, id: &VolumeId, locks: &Locks) -> Result<Requeue> {
        let Some(key) = self.lock_of_object(&id.to_string()) else { return Ok(Requeue::Never) };
        with_lock(locks, call, key, || match self.node_record(id)? {
            Some(record) if record.is_unused() => {
                self.forget_earlier_boots(call, id)?;
                let released =
                    self.release(&self.look_on_node(call, id)?, record.clone(), &Secrets::default());
                match released {
                    // With its pool.
                    Err(error) if error.kind() == Kind::NotFound => {
                        log::warn!("volume {id} is gone, with what it was published by: {error}");
                        self.remember_less(id, &record)
                    }
                    released => released,
                }
            }
            _ => Ok(()),
        })?;
        Ok(Requeue::Never)
    }

    /// Takes back what the node has written into the cluster before it booted.
    ///
    /// # Errors
    /// Those after which asking again helps: the cluster did not answer.
    fn forget_earlier_boots(&self, call: &Call, id: &VolumeId) -> Result<()> {
        let Some(backend) = self.backends.by_kind(&id.place) else { return Ok(()) };
        match backend.node().forget_earlier_boots(call, &self.id_here(id)?) {
            Err(error) if !matches!(error.kind(), Kind::Unavailable | Kind::Timeout) => {
                log::warn!(
                    "volume {id}: what this node wrote into the cluster before it booted stays: {error}"
                );
                Ok(())
            }
            forgotten => forgotten,
        }
    }

    /// Goes through what the controller had begun when it ended: deletions are finished as far as that is
    /// safe, all else is logged. A cluster may not answer, so the start does not wait for one.
    pub fn recover_controller(self: &Arc<Self>, locks: &Locks) -> Result<()> {
        self.backends.all().try_for_each(|backend| backend.recover())?;
        let call = Call::internal("recovery");
        for intent in self.intents() {
            let place = intent.place();
            if place.as_ref().is_some_and(|place| self.backends.for_place(place).is_none()) {
                log::warn!("{intent} was interrupted: it is looked at once its place is set up here again");
            }
            match place.and_then(|place| self.backends.by_kind(&place)) {
                Some(backend) if backend.traits().is_remote => self.finish_later(intent, locks),
                _ => self.finish_now(&call, &intent)?,
            }
        }
        Ok(())
    }

    /// Finishes one before anybody is served, or never: a later start could meet what was used since.
    fn finish_now(&self, call: &Call, intent: &Intent) -> Result<()> {
        let Err(error) = self.finish(call, intent) else { return Ok(()) };
        log::warn!(
            "{intent} was interrupted and cannot be finished, ask for it again (it was begun at {}): {error}",
            intent.when()
        );
        self.end(intent)
    }

    /// Has the intent finished in the background, however often that has to be tried.
    fn finish_later(self: &Arc<Self>, intent: Intent, locks: &Locks) {
        let (Some(place), Some(object)) = (intent.place(), self.lock_of_object(&intent.subject)) else {
            return;
        };
        let locks = Arc::clone(locks);
        self.do_later(&place.cluster, format!("finish {intent}"), move |operations, call| {
            with_lock(&locks, call, object.clone(), || operations.finish(call, &intent))
        });
    }

    fn do_later(
        self: &Arc<Self>,
        cluster: &str,
        name: String,
        mut work: impl FnMut(&Self, &Call) -> Result<Requeue> + Send + 'static,
    ) {
        // The queue is theirs: it must not keep them.
        let operations = Arc::downgrade(self);
        // A lane of its own: a backend's own jobs may take hours.
        let lane = format!("recovery of {cluster}");
        self.jobs.add(&lane, name, Duration::ZERO, move |call| match operations.upgrade() {
            Some(operations) => work(&operations, call),
            None => Ok(Requeue::Never),
        });
    }

    /// What was begun. An entry that this version does not know is left to the one that wrote it.
    fn intents(&self) -> Vec<Intent> {
        let read = |(key, value): (String, Vec<u8>)| {
            let intent = Intent::parse(&key, &value);
            if intent.is_none() {
                log::warn!("{key} was interrupted; only a newer cephlet knows how to finish it");
            }
            intent
        };
        self.journal.entries(Table::Intents).into_iter().filter_map(read).collect()
    }

    /// Finishes one, unless a call has finished it meanwhile. One whose place is not set up stays: that may
    /// be set up again.
    fn finish(&self, call: &Call, intent: &Intent) -> Result<Requeue> {
        if self.journal.get(Table::Intents, &intent.key()).is_none() {
            return Ok(Requeue::Never);
        }
        let outcome = match intent.place().map(|place| self.backends.for_place(&place)) {
            Some(None) => return Ok(Requeue::After(RETRY)),
            Some(Some(backend)) => self.finish_with(call, intent, &**backend)?,
            None => Interrupted::Whole,
        };
        if outcome == Interrupted::Whole {
            log::warn!("{intent} was interrupted, it was begun at {}: ask for it again", intent.when());
        }
        self.end(intent)?;
        Ok(Requeue::Never)
    }

    fn end(&self, intent: &Intent) -> Result<()> {
        self.journal.write_unsynced(&[Change::remove(Table::Intents, intent.key())])
    }

    /// Finishes a deletion, under the terms it was asked for. What was being made or changed is as good as it
    /// was.
    fn finish_with(&self, call: &Call, intent: &Intent, backend: &dyn Backend) -> Result<Interrupted> {
        let secrets = &Secrets::default();
        let volume = |snapshots_may_outlive| match VolumeId::parse(&intent.subject) {
            Some(id) => {
                self.finish_volume(call, backend, &Deletion { id: &id, snapshots_may_outlive, secrets })
            }
            None => Ok(Interrupted::Whole),
        };
        match intent.operation {
            Operation::DeleteVolume => volume(true),
            Operation::DeleteVolumeStrict => volume(false),
            Operation::DeleteSnapshot => match SnapshotId::parse(&intent.subject) {
                Some(id) => backend.snapshots().finish_deletion(call, &id, secrets),
                None => Ok(Interrupted::Whole),
            },
            Operation::CreateVolume | Operation::CreateSnapshot | Operation::ExpandVolume => {
                Ok(Interrupted::Whole)
            }
        }
    }

    fn finish_volume(
        &self,
        call: &Call,
        backend: &dyn Backend,
        deletion: &Deletion<'_>,
    ) -> Result<Interrupted> {
        let outcome = backend.volumes().finish_deletion(call, deletion)?;
        if outcome == Interrupted::Gone {
            self.forget_pending(deletion.id)?;
        }
        Ok(outcome)
    }
}
