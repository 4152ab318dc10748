//! The object that an ID in a request means. It is resolved once, so that the call works on the object that
//! it has locked, even if the clusters file is read again in between.

use std::fmt;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::volume::lock_keys::LockSet;

/// The object of a request.
#[derive(Clone)]
pub struct Target<I> {
    /// The kind of object.
    pub(super) kind: &'static str,
    /// The ID, as the request has it.
    pub text: String,
    /// The locks of work on the object, if they are known.
    pub(super) locks: LockSet,
    /// The object and its backend, None if the ID means nothing; or why nothing can be done to the object.
    pub(super) found: Result<Option<(I, Arc<dyn Backend>)>>,
}

/// The volume of a request.
pub type VolumeTarget = Target<VolumeId>;

/// The snapshot of a request.
pub type SnapshotTarget = Target<SnapshotId>;

#[cfg(test)]
impl<I> Target<I> {
    /// The target of an ID that means nothing.
    pub(crate) fn unknown(text: &str) -> Self {
        Self { kind: "object", text: text.into(), locks: LockSet::nothing(text), found: Ok(None) }
    }
}

impl<I> Target<I> {
    /// The object; None if there is none.
    ///
    /// # Errors
    /// The object cannot be used from here.
    pub fn find(&self) -> Result<Option<(&I, &dyn Backend)>> {
        let found = self.found.as_ref().map_err(Error::clone)?;
        Ok(found.as_ref().map(|(id, backend)| (id, backend.as_ref())))
    }

    /// The object.
    ///
    /// # Errors
    /// There is no such object, or it cannot be used from here.
    pub fn get(&self) -> Result<(&I, &dyn Backend)> {
        self.find()?.ok_or_else(|| self.absent())
    }

    /// The error that there is no such object.
    pub fn absent(&self) -> Error {
        Error::not_found(format!("there is no {} {:?}", self.kind, self.text))
    }

    /// The locks of work on the object.
    ///
    /// # Errors
    /// The object cannot be used from here.
    pub fn locks(&self) -> Result<LockSet> {
        let is_there = self.find()?.is_some();
        Ok(if is_there { self.locks.clone() } else { LockSet::nothing(&self.text) })
    }
}

/// Equal requests have equal texts.
impl<I> PartialEq for Target<I> {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl<I> fmt::Debug for Target<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}
