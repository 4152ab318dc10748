//! Shutting hosts out of the storage. This touches no volume.

use super::Operations;
use crate::backend::Fencing;
use crate::error::{Error, Result};

impl Operations {
    /// Whether there is a cluster from which hosts can be shut out.
    pub fn offers_fencing(&self) -> bool {
        self.fencing.as_ref().is_some_and(|fencing| fencing.is_set_up())
    }

    /// The role that shuts hosts out of clusters.
    pub fn fences(&self) -> Result<&dyn Fencing> {
        let absent = || Error::unimplemented("no storage is set up here from which hosts can be shut out");
        self.fencing.as_deref().ok_or_else(absent)
    }
}
