//! Locks on headers of images that are gone.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageRef, LockTarget};
use crate::error::Result;

/// What became of the object that a lock left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    /// It is gone.
    Removed,
    /// It is the header of an image that exists.
    ImageExists,
}

/// Removes the object that a lock left behind as the header of an image that was deleted meanwhile. Ids are
/// never reused, so an absent image stays absent.
pub(crate) fn remove_stray(pool: &Pool<'_>, image: &str) -> Result<Stray> {
    if pool.info(ImageRef::Id(image))?.is_some() {
        return Ok(Stray::ImageExists);
    }
    pool.remove_lockable(LockTarget::Header(image))?;
    Ok(Stray::Removed)
}
