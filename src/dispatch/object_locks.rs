//! Locks of the lock table for work that answers no request.

use std::any::Any;
use std::sync::Arc;

use crate::dispatch::call::Call;
use crate::dispatch::key::Key;
use crate::dispatch::lock_table::{LockTable, Locked};
use crate::error::{Error, Result};

/// A lock that lasts until this is dropped.
pub type Held = Box<dyn Any + Send>;

/// Locks of single objects, for work without a client, and for objects that a call touches beside those of
/// its request. A call takes such a lock after the locks of its own objects, and never two of them.
pub trait ObjectLocks: Send + Sync {
    /// Waits for an object and locks it.
    ///
    /// # Errors
    /// As for [`LockTable::enter`].
    fn lock(&self, call: &Call, key: Key) -> Result<Held>;

    /// Locks an object, unless it is locked; None if it is.
    ///
    /// # Errors
    /// `Unavailable` when the table is full or closed.
    fn try_lock(&self, call: &Call, key: Key) -> Result<Option<Held>>;
}

impl<A: Clone + Send + 'static> ObjectLocks for Arc<LockTable<A>> {
    fn lock(&self, call: &Call, key: Key) -> Result<Held> {
        match self.enter(call, &key.into(), None)? {
            Locked::Held(guard) => Ok(Box::new(guard)),
            Locked::Joined(_) => Err(Error::internal("a request that cannot join has joined")),
        }
    }

    fn try_lock(&self, call: &Call, key: Key) -> Result<Option<Held>> {
        Ok(self.try_enter(call, key)?.map(|guard| Box::new(guard) as Held))
    }
}
