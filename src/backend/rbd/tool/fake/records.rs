//! The records of controllers. They are no part of the cluster, but outlive a crash as it does.

use std::sync::Arc;

use super::FakeCluster;
use crate::backend::BegunRenames;

impl FakeCluster {
    /// The rename record of the controller with this tag; `make` makes one for a new controller.
    pub fn renames(&self, tag: &str, make: impl FnOnce() -> Arc<dyn BegunRenames>) -> Arc<dyn BegunRenames> {
        Arc::clone(self.0.lock().renames.entry(tag.to_string()).or_insert_with(make))
    }
}
