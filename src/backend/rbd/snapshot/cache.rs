//! What is remembered of snapshots.

use std::time::SystemTime;

use crate::backend::ceph::cache::Cache;
use crate::backend::rbd::tool::SnapshotInfo;
use crate::ids::SnapshotId;

/// Snapshots that were seen, by the ids of their images. They never change.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCache {
    /// When they were taken, by image id and `KEY-R`.
    created: Cache<(String, String), SystemTime>,
    /// `KEY-R` of the snapshots that were taken here, by image id and the name in the request.
    taken: Cache<(String, String), String>,
}

impl SnapshotCache {
    /// When the snapshot was taken.
    pub fn created(&self, id: &SnapshotId) -> Option<SystemTime> {
        self.created.get(&(id.source.clone(), id.snapshot.clone()))
    }

    /// `KEY-R` of the snapshot that was taken for a request of this name.
    pub fn taken(&self, image: &str, name: &str) -> Option<String> {
        self.taken.get(&(image.to_string(), name.to_string()))
    }

    /// Remembers a snapshot.
    pub fn remember(&self, image: &str, key_and_drawn: &str, snapshot: &SnapshotInfo) {
        self.created.remember((image.to_string(), key_and_drawn.to_string()), snapshot.created);
    }

    /// Remembers what was taken for a request of this name.
    pub fn remember_taken(&self, id: &SnapshotId, name: &str) {
        self.taken.remember((id.source.clone(), name.to_string()), id.snapshot.clone());
    }

    pub fn forget(&self, id: &SnapshotId) {
        self.created.forget(&(id.source.clone(), id.snapshot.clone()));
    }
}
