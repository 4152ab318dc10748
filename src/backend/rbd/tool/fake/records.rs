//! What controllers have recorded, which is no part of the cluster, and outlives a crash as it does.

use std::sync::Arc;

use super::FakeCluster;
use crate::backend::BegunRenames;

impl FakeCluster {
    /// The record of renames that the controller with this tag has; `make` makes that of a new one.
    pub fn renames(&self, tag: &str, make: impl FnOnce() -> Arc<dyn BegunRenames>) -> Arc<dyn BegunRenames> {
        Arc::clone(self.0.lock().renames.entry(tag.to_string()).or_insert_with(make))
    }
}
