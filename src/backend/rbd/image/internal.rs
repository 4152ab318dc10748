//! Internal images, temporary or retained: in this daemon, one call or job at a time works on each.

use crate::backend::rbd::context::Pool;
use crate::dispatch::{Held, Key};
use crate::error::Result;

/// Waits for an internal image and locks it.
pub(crate) fn lock(pool: &Pool<'_>, name: &str) -> Result<Held> {
    pool.context.locks.lock(pool.call, key(pool, name))
}

/// Locks an internal image that is not locked; None if it is.
pub(crate) fn try_lock(pool: &Pool<'_>, name: &str) -> Result<Option<Held>> {
    pool.context.locks.try_lock(pool.call, key(pool, name))
}

/// No volume has the name of an internal image.
fn key(pool: &Pool<'_>, name: &str) -> Key {
    pool.place().key(name).into()
}
