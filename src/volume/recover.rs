//! Coming back after a crash, a restart or a boot: what the journal remembers is compared with what the kernel has.

use std::sync::Arc;

use crate::call::Call;
use crate::error::Result;
use crate::journal::{Change, Table};
use crate::volume::Volumes;
use crate::volume::mounts;
use crate::volume::node_record::{NodeRecord, Target};
use crate::volume::requests::{DeleteVolume, SnapshotById};
use crate::volume::unstage::remove_made;

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
        self.journal.write(&[Change::remove(Table::Node, key)])?;
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

    /// Finishes what the controller had begun when it ended: deletions are completed, the rest is told.
    pub fn recover_controller(&self) -> Result<()> {
        self.backends.iter().try_for_each(|backend| backend.recover())?;
        let call = Call::internal("recovery");
        for (key, _) in self.journal.entries(Table::Intents) {
            let Some((operation, subject)) = key.split_once(' ') else { continue };
            let outcome = match operation {
                "DeleteVolume" => {
                    self.delete(&call, &DeleteVolume { volume_id: subject.into(), secrets: Default::default() }).map(drop)
                }
                "DeleteSnapshot" => self
                    .delete_snapshot(&call, &SnapshotById { snapshot_id: subject.into(), secrets: Default::default() })
                    .map(drop),
                _ => {
                    log::warn!("{operation} of {subject} was interrupted: asking again finishes it");
                    Ok(())
                }
            };
            match outcome {
                // Also of what was gone already, or is none of ours any more: nobody else would remove it.
                Ok(()) => self.journal.note(&[Change::remove(Table::Intents, key)])?,
                Err(error) => log::warn!("{operation} of {subject} was interrupted and could not be finished: {error}"),
            }
        }
        Ok(())
    }
}
