//! What is remembered of snapshots.

use std::time::SystemTime;

use crate::backend::ceph::cache::Cache;
use crate::ids::SnapshotId;

/// What never changes of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct CachedSnapshot {
    pub created: SystemTime,
    /// The name in the request that took it, if that was asked here.
    pub name: Option<String>,
}

/// Snapshots, by the image's id and the snapshot's digits.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache(Cache<(String, String), CachedSnapshot>);

impl SnapshotCache {
    pub fn get(&self, image: &str, digits: &str) -> Option<CachedSnapshot> {
        self.0.get(&(image.to_string(), digits.to_string()))
    }

    /// Remembers a snapshot.
    pub fn remember(&self, image: &str, digits: &str, created: SystemTime, name: Option<&str>) {
        let name = name.map(str::to_string);
        self.0.remember((image.to_string(), digits.to_string()), CachedSnapshot { created, name });
    }

    pub fn forget(&self, id: &SnapshotId) {
        self.0.forget(&(id.source.clone(), id.snapshot.clone()));
    }
}
