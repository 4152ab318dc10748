//! Coming back after a crash, a restart or a boot: what the journal remembers is compared with what the kernel has.

use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::error::Result;
use crate::ids::{SnapshotId, VolumeId};
use crate::journal::{Change, Table};
use crate::volume::Volumes;
use crate::volume::mounts;
use crate::volume::node_record::{NodeRecord, Target};
use crate::volume::requests::{DeleteVolume, SnapshotById};
use crate::volume::unstage::remove_made;

/// How long after a failure an interrupted operation is tried again.
const AGAIN: Duration = Duration::from_secs(60);

impl Volumes {
    /// Brings the node's records in line with this boot. Volumes that are still mounted need nothing: every operation asks the
    /// kernel.
    pub fn recover_node(&self) -> Result<()> {
        let mounts = mounts::read()?;
        for (key, record) in self.node_records() {
            if record.boot_id != self.boot_id {
                self.forget_boot(&key, &record)?;
                continue;
            }
            let mounted = |target: &&Target| mounts::resolved(&target.path).is_ok_and(|path| mounts.find_at(&path).is_some());
            let lost = record.targets.iter().filter(|target| !mounted(target)).count();
            match lost {
                0 => log::info!("volume {}: still in use at {} paths", record.volume_id, record.paths().count()),
                lost => log::warn!(
                    "volume {}: {lost} of its targets are not mounted; a repeated publish mounts them",
                    record.volume_id
                ),
            }
        }
        Ok(())
    }

    /// After a boot nothing is mounted or attached any more; only the empty places we made may be left.
    fn forget_boot(&self, key: &str, record: &NodeRecord) -> Result<()> {
        log::warn!("volume {}: was in use before this boot; its {} paths are gone", record.volume_id, record.paths().count());
        for target in &record.targets {
            if let Err(error) = remove_made(target, &record.access) {
                log::warn!("volume {}: {error}", record.volume_id);
            }
        }
        let mut changes = vec![Change::remove(Table::Node, key)];
        let place = VolumeId::parse(&record.volume_id).map(|id| id.place);
        if place.and_then(|place| self.backends.of_kind(&place)).is_some_and(|backend| backend.is_elsewhere()) {
            // Others may have written to it since. What was begun on it is looked for again, but a formatting that was broken off.
            changes.push(Change::remove(Table::Formats, key));
        }
        self.journal.write(&changes)?;
        if record.alone {
            self.give_back(record);
        }
        Ok(())
    }

    /// Undoes what the node did in the controller's stead. The cluster may not answer, so the start does not wait for it; what cannot
    /// be given back is taken over when the volume is staged here again.
    fn give_back(&self, record: &NodeRecord) {
        let Ok((id, backend)) = self.volume(&record.volume_id) else { return };
        let backend = Arc::clone(backend);
        std::thread::spawn(move || {
            if let Err(error) = backend.detach(&Call::internal("recovery"), &id, true) {
                log::warn!("volume {id} is still published to this node: {error}");
            }
        });
    }

    /// Finishes what the controller had begun when it ended: deletions are completed, the rest is told. A cluster may not answer, so
    /// the start does not wait for one.
    pub fn recover_controller(self: &Arc<Self>) -> Result<()> {
        self.backends.iter().try_for_each(|backend| backend.recover())?;
        let intents = self.journal.entries(Table::Intents).into_iter().map(|(key, _)| key);
        let (elsewhere, here): (Vec<String>, Vec<String>) = intents.partition(|key| self.is_elsewhere(key));
        for key in here {
            self.finish(&key)?;
        }
        if !elsewhere.is_empty() {
            let volumes = Arc::clone(self);
            std::thread::spawn(move || volumes.finish_elsewhere(elsewhere));
        }
        Ok(())
    }

    /// Whether an intent is about storage that is reached through a network. One that names no object is only told.
    fn is_elsewhere(&self, key: &str) -> bool {
        let subject = key.split_once(' ').map_or("", |(_, subject)| subject);
        let place = VolumeId::parse(subject).map(|id| id.place).or_else(|| SnapshotId::parse(subject).map(|id| id.place));
        place.and_then(|place| self.backends.at(&place)).is_some_and(|backend| backend.is_elsewhere())
    }

    /// Tries until all is done. What comes meanwhile for the same volume is told apart by the cluster, as from another controller.
    fn finish_elsewhere(&self, mut keys: Vec<String>) {
        loop {
            keys.retain(|key| !self.finish(key).unwrap_or(false));
            if keys.is_empty() {
                return;
            }
            std::thread::sleep(AGAIN);
        }
    }

    /// Finishes one; false if that did not work.
    fn finish(&self, key: &str) -> Result<bool> {
        let Some((operation, subject)) = key.split_once(' ') else { return Ok(true) };
        let call = Call::internal("recovery");
        let outcome = match operation {
            "DeleteVolume" => {
                // Who asked for a volume without snapshots has been refused before an intent was written.
                let request =
                    DeleteVolume { volume_id: subject.into(), snapshots_may_outlive: true, secrets: Default::default() };
                self.delete(&call, &request).map(drop)
            }
            "DeleteSnapshot" => {
                self.delete_snapshot(&call, &SnapshotById { snapshot_id: subject.into(), secrets: Default::default() }).map(drop)
            }
            _ => {
                log::warn!("{operation} of {subject} was interrupted: asking again finishes it");
                Ok(())
            }
        };
        match outcome {
            // Also of what was gone already, or is none of ours any more: nobody else would remove it.
            Ok(()) => self.journal.note(&[Change::remove(Table::Intents, key)]).map(|()| true),
            Err(error) => {
                log::warn!("{operation} of {subject} was interrupted and could not be finished: {error}");
                Ok(false)
            }
        }
    }
}
