//! What is remembered of snapshots.

use std::time::SystemTime;

use crate::backend::ceph::cache::Cache;
use crate::backend::rbd::tool::SnapshotInfo;
use crate::ids::SnapshotId;

/// What never changes of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct CachedSnapshot {
    /// Its number.
    pub id: u64,
    pub created: SystemTime,
    /// The name in the request that took it, if that was asked here.
    pub name: Option<String>,
}

/// The last snapshot of each name that was seen, by the image's id and the snapshot's digits.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Cache<(String, String), CachedSnapshot>);

impl SnapshotCache {
    /// The snapshot that an ID means; of one that does not say which, the last of its name.
    pub fn get(&self, id: &SnapshotId) -> Option<CachedSnapshot> {
        let known = self.0.get(&(id.source.clone(), id.snapshot.clone()));
        known.filter(|known| id.means(&known.id.to_string()))
    }

    /// Remembers a snapshot.
    pub fn remember(&self, image: &str, digits: &str, snapshot: &SnapshotInfo, name: Option<&str>) {
        let &SnapshotInfo { id, created, .. } = snapshot;
        let name = name.map(str::to_string);
        self.0.remember((image.to_string(), digits.to_string()), CachedSnapshot { id, created, name });
    }

    pub fn forget(&self, id: &SnapshotId) {
        if self.get(id).is_some() {
            self.0.forget(&(id.source.clone(), id.snapshot.clone()));
        }
    }
}
