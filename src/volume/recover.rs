//! Coming back after a crash, a restart or a boot: what the journal remembers is compared with what the
//! kernel has.
//!
//! What needs a cluster is done by a background job, which takes the lock of its object as a call does.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::PublishedBy;
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::jobs::Requeue;
use crate::journal::{Change, Table};
use crate::locks::Key;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::intent::{Intent, Operation};
use crate::volume::node::mounts;
use crate::volume::node::record::{NodeRecord, Target};
use crate::volume::node::unstage::remove_made;
use crate::volume::request::{DeleteVolume, SnapshotById};

/// How long after a failure an interrupted operation is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// Waits for the lock of an object. It is held until what is given is dropped.
pub type AcquireLock = Arc<dyn Fn(&Call, Key) -> Result<Box<dyn Any + Send>> + Send + Sync>;

/// Whether a refusal ends an interrupted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It does: whoever asked for the operation has to ask again.
    Ends,
    /// Not yet: a command that died with the daemon counts as a user of its image for half a minute.
    MayPass,
}

impl Refusal {
    fn ends(self, error: &Error) -> bool {
        match error.kind() {
            Kind::HasSnapshots => true,
            Kind::Precondition => self == Self::Ends,
            _ => false,
        }
    }
}

/// Does something under a lock. The call holds it from then on, so that a command that cannot be killed keeps
/// it; a call that only waits does not, as it is repeated, and takes the lock anew.
fn with_lock<T>(lock: &AcquireLock, call: &Call, key: Key, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let locked = lock(call, key)?;
    let done = work();
    if !done.as_ref().is_err_and(|error| error.pause().is_some()) {
        call.hold(locked);
    }
    done
}

impl Operations {
    /// Brings the node's records in line with this boot. Volumes that are still mounted need nothing: every
    /// operation asks the kernel.
    pub fn recover_node(self: &Arc<Self>, lock: &AcquireLock) -> Result<()> {
        let mounts = mounts::read()?;
        for (key, record) in self.node_records() {
            if record.boot_id != self.boot_id {
                self.forget_boot(&key, &record, lock)?;
                continue;
            }
            let mounted = |target: &&Target| {
                mounts::resolved(&target.path).is_ok_and(|path| mounts.find_at(&path).is_some())
            };
            let lost = record.targets.iter().filter(|target| !mounted(target)).count();
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

    /// After a boot nothing is mounted or attached any more; only the empty places we made may be left.
    fn forget_boot(self: &Arc<Self>, key: &str, record: &NodeRecord, lock: &AcquireLock) -> Result<()> {
        log::warn!(
            "volume {}: was in use before this boot; its {} paths are gone",
            record.volume_id,
            record.paths().count()
        );
        for target in &record.targets {
            if let Err(error) = remove_made(target, &record.access) {
                log::warn!("volume {}: {error}", record.volume_id);
            }
        }
        let mut changes = vec![Change::remove(Table::Node, key)];
        let place = VolumeId::parse(&record.volume_id).map(|id| id.place);
        if place
            .and_then(|place| self.backends.by_kind(&place))
            .is_some_and(|backend| backend.traits().is_remote)
        {
            // Others may have written to it since. What was begun on it is looked for again, but a formatting
            // that was broken off.
            changes.push(Change::remove(Table::Formats, key));
        }
        self.journal.write(&changes)?;
        if let (PublishedBy::Node, Some(id)) = (record.published, VolumeId::parse(&record.volume_id)) {
            let (lock, cluster) = (Arc::clone(lock), id.place.cluster.clone());
            let name = format!("unpublish volume {id} from this node");
            self.do_later(&cluster, name, move |operations, call| {
                operations.unpublish_from_node(call, &id, &lock)
            });
        }
        Ok(())
    }

    /// Undoes what the node did in the controller's stead. The cluster may not answer, so the start does not
    /// wait for it; what cannot be unpublished stays published to this node, and the next stage takes it
    /// over.
    fn unpublish_from_node(&self, call: &Call, id: &VolumeId, lock: &AcquireLock) -> Result<Requeue> {
        let Some(backend) = self.backends.for_place(&id.place) else { return Ok(Requeue::Never) };
        let outcome = with_lock(lock, call, Key::from(id.key()), || match self.node_record(id)? {
            None => backend.node().detach(call, id, PublishedBy::Node, &Secrets::default()),
            Some(_) => Ok(()),
        });
        match outcome {
            Err(error) if error.pause().is_some() => return Err(error),
            Err(error) => log::warn!("volume {id} is still published to this node: {error}"),
            Ok(()) => {}
        }
        Ok(Requeue::Never)
    }

    /// Finishes what the controller had begun when it ended: deletions are completed, the rest is logged. A
    /// cluster may not answer, so the start does not wait for one.
    pub fn recover_controller(self: &Arc<Self>, lock: &AcquireLock) -> Result<()> {
        self.backends.iter().try_for_each(|backend| backend.recover())?;
        let call = Call::internal("recovery");
        for intent in self.intents() {
            match self.cluster_of(&intent) {
                Some(cluster) => self.finish_later(&cluster, intent, lock),
                None => drop(self.finish(&call, &intent, Refusal::Ends)?),
            }
        }
        Ok(())
    }

    /// Has the intent finished in the background, however often that has to be tried.
    fn finish_later(self: &Arc<Self>, cluster: &str, intent: Intent, lock: &AcquireLock) {
        let (lock, mut refusal) = (Arc::clone(lock), Refusal::MayPass);
        self.do_later(cluster, intent.to_string(), move |operations, call| {
            operations.finish_locked(call, &intent, &lock, &mut refusal)
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

    /// The cluster that an intent is about; None where its storage is on this node, or unknown.
    fn cluster_of(&self, intent: &Intent) -> Option<String> {
        let (place, _) = intent.object()?;
        let backend = self.backends.for_place(&place)?;
        backend.traits().is_remote.then_some(place.cluster)
    }

    /// Finishes one under the lock of its object, unless a call has finished it or cleared it meanwhile.
    fn finish_locked(
        &self,
        call: &Call,
        intent: &Intent,
        lock: &AcquireLock,
        refusal: &mut Refusal,
    ) -> Result<Requeue> {
        let Some((_, object)) = intent.object() else { return Ok(Requeue::Never) };
        let is_open = || self.journal.get(Table::Intents, &intent.key()).is_some();
        let outcome = with_lock(lock, call, object, || match is_open() {
            false => Ok(Requeue::Never),
            true => {
                let next = self.finish(call, intent, *refusal)?;
                // Only now: an attempt that did not get the lock has not tried.
                *refusal = Refusal::Ends;
                Ok(next)
            }
        });
        match outcome {
            Err(error) if error.pause().is_none() => {
                let when = intent.when();
                log::warn!("{intent} was interrupted and waits (it was begun at {when}): {error}");
                Ok(Requeue::After(AGAIN))
            }
            outcome => outcome,
        }
    }

    /// Finishes one, and says when to try again if that did not work.
    fn finish(&self, call: &Call, intent: &Intent, refusal: Refusal) -> Result<Requeue> {
        let when = intent.when();
        match self.repeat(call, intent) {
            // Also of what was gone already, or is none of ours any more: nobody else would remove it.
            Ok(()) => self.end(intent)?,
            Err(error) if error.pause().is_some() => return Err(error),
            Err(error) if refusal.ends(&error) => {
                log::warn!(
                    "{intent} was interrupted and cannot be finished, ask for it again (it was begun at \
                     {when}): {error}"
                );
                self.end(intent)?;
            }
            Err(error) => {
                log::warn!(
                    "{intent} was interrupted and could not be finished (it was begun at {when}): {error}"
                );
                return Ok(Requeue::After(AGAIN));
            }
        }
        Ok(Requeue::Never)
    }

    /// Does it again. The intent is written and stays until it is done.
    fn repeat(&self, call: &Call, intent: &Intent) -> Result<()> {
        match intent.operation {
            Operation::DeleteVolume => self.repeat_deletion(call, &intent.subject, true),
            Operation::DeleteVolumeStrict => self.repeat_deletion(call, &intent.subject, false),
            Operation::DeleteSnapshot => {
                let request =
                    SnapshotById { snapshot_id: intent.subject.clone(), secrets: Default::default() };
                self.delete_snapshot_with(call, &request, &|_| Ok(())).map(drop)
            }
            Operation::CreateVolume | Operation::CreateSnapshot | Operation::ExpandVolume => {
                log::warn!(
                    "{intent} was interrupted: asking again finishes it (it was begun at {})",
                    intent.when()
                );
                Ok(())
            }
        }
    }

    fn repeat_deletion(&self, call: &Call, id: &str, snapshots_may_outlive: bool) -> Result<()> {
        let request =
            DeleteVolume { volume_id: id.into(), snapshots_may_outlive, secrets: Default::default() };
        self.delete_with(call, &request, &|_| Ok(())).map(drop)
    }

    fn end(&self, intent: &Intent) -> Result<()> {
        self.journal.write_unsynced(&[Change::remove(Table::Intents, intent.key())])
    }
}
