//! What an ID in a request means. It is resolved once, so that a call works on what it has locked, whatever
//! is reloaded meanwhile.

use std::fmt;
use std::sync::Arc;

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::volume::lock_keys::LockSet;

/// An object that a request is about.
#[derive(Clone)]
pub struct Target<I> {
    /// The kind of object.
    pub(super) kind: &'static str,
    /// The ID, as the request has it.
    pub text: String,
    /// What work on it locks, where it is known.
    pub(super) locks: LockSet,
    /// The object and its backend, None if the ID means nothing; or why nothing can be done to it.
    pub(super) found: Result<Option<(I, Arc<dyn Backend>)>>,
}

/// A volume that a request is about.
pub type VolumeTarget = Target<VolumeId>;

/// A snapshot that a request is about.
pub type SnapshotTarget = Target<SnapshotId>;

#[cfg(test)]
impl<I> Target<I> {
    /// What an ID is that means nothing.
    pub(crate) fn unknown(text: &str) -> Self {
        Self { kind: "object", text: text.into(), locks: LockSet::nothing(text), found: Ok(None) }
    }
}

impl<I> Target<I> {
    /// The object; None if there is none.
    ///
    /// # Errors
    /// Nothing can be done to it from here.
    pub fn find(&self) -> Result<Option<(&I, &dyn Backend)>> {
        let found = self.found.as_ref().map_err(Error::clone)?;
        Ok(found.as_ref().map(|(id, backend)| (id, backend.as_ref())))
    }

    /// The object.
    ///
    /// # Errors
    /// There is none, or nothing can be done to it from here.
    pub fn get(&self) -> Result<(&I, &dyn Backend)> {
        self.find()?.ok_or_else(|| self.absent())
    }

    /// That there is no such object.
    pub fn absent(&self) -> Error {
        Error::not_found(format!("there is no {} {:?}", self.kind, self.text))
    }

    /// What work on it locks.
    ///
    /// # Errors
    /// Nothing can be done to it from here.
    pub fn locks(&self) -> Result<LockSet> {
        let is_there = self.find()?.is_some();
        Ok(if is_there { self.locks.clone() } else { LockSet::nothing(&self.text) })
    }
}

/// The same request has the same text.
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
