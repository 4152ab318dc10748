//! What the last look at each volume on this node has found. The looks are those of requests
//! (NodeGetVolumeStats, ControllerGetVolume): a look of our own could hang with the storage.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::backend::Condition;
use crate::ids::VolumeId;
use crate::volume::Operations;

/// Whether something was wrong with each volume, by the key of its record. A volume that was not looked at
/// since it is in use, or since the daemon started, is not here.
#[derive(Debug, Default)]
pub struct Looks(Mutex<BTreeMap<String, bool>>);

impl Looks {
    /// Forgets a volume that is no longer on this node.
    pub(crate) fn forget(&self, key: &str) {
        self.0.lock().remove(key);
    }
}

impl Operations {
    /// Notes what a look at a volume on this node has found.
    pub(crate) fn note_look(&self, id: &VolumeId, condition: &Condition) {
        self.looks.0.lock().insert(self.record_key(id), condition.is_some());
    }

    /// How many volumes are in use on this node, by backend and condition: `normal`, `abnormal` or `unknown`.
    pub fn volumes_here(&self) -> BTreeMap<(String, &'static str), u64> {
        let looks = self.looks.0.lock().clone();
        let mut counts = BTreeMap::new();
        for (key, record) in self.node_records() {
            let Some(id) = VolumeId::parse(&record.volume_id).filter(|_| !record.is_unused()) else {
                continue;
            };
            let condition = match looks.get(&key) {
                None => "unknown",
                Some(false) => "normal",
                Some(true) => "abnormal",
            };
            *counts.entry((id.place.backend, condition)).or_default() += 1;
        }
        counts
    }
}
