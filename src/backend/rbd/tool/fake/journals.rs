//! The journals of the controllers, which are no part of the cluster, and outlive a crash as it does.

use std::sync::Arc;

use super::FakeCluster;
use crate::journal::Journal;
use crate::journal::ram::RamDisk;

impl FakeCluster {
    /// The journal of the controller with this tag.
    pub fn journal(&self, tag: &str) -> Arc<Journal> {
        let make =
            || Arc::new(Journal::open(Arc::new(RamDisk::default()), |_| {}).expect("an empty journal"));
        Arc::clone(self.0.lock().journals.entry(tag.to_string()).or_insert_with(make))
    }
}
