//! Which volumes this daemon has deleted: a repeated deletion then looks before it writes. Forgetting costs a
//! few processes, never a wrong answer.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::ids::VolumeId;

/// So many are remembered; beyond that all are forgotten.
const MOST: usize = 8192;

/// IDs of deleted volumes.
#[derive(Debug, Default)]
pub(crate) struct Gone(Mutex<HashSet<String>>);

impl Gone {
    /// Whether the volume was deleted, or found absent, a while ago.
    pub fn knows(&self, id: &VolumeId) -> bool {
        self.0.lock().contains(&id.to_string())
    }

    /// Remembers a volume that is gone.
    pub fn remember(&self, id: &VolumeId) {
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(id.to_string());
    }
}
