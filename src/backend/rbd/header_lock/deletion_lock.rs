//! The lock under which an image is deleted: an exclusive lock on its header, the same one by which volumes
//! are published to nodes.
//!
//! Images are removed by name, and a name may mean another image at any moment. Every controller takes this
//! lock before it removes an image. While a controller holds the lock and the name means the image, no other
//! controller can remove that image, so the name keeps its meaning. The lock is taken by the id alone, and
//! then the name is looked up: in the opposite order the image could be replaced in between.
//!
//! A demotion takes the same lock, so the volume is published to no node meanwhile.

use std::time::Duration;

pub(crate) use crate::backend::ceph::publication::deletion::{Acquired, DeletionLock};
use crate::backend::ceph::publication::deletion::{Deleter, DeletionTimes};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::tool::LockTarget;
use crate::error::{Error, Result};

/// How long the lock lasts. A removal that was started under it has ended by then: the next lock holder must
/// not meet a removal that still has to look up the name. If a controller died for good, others wait this
/// long.
pub(crate) fn lifetime(context: &Context) -> Duration {
    context.timing.deletion_decision + context.tool.longest_change()
}

/// This controller, when it deletes in a pool.
fn deleter<'a>(pool: &'a Pool<'_>) -> Deleter<'a> {
    let timing = pool.timing();
    let times = DeletionTimes {
        wait: timing.deletion_wait,
        poll: timing.poll,
        decision: timing.deletion_decision,
        lifetime: lifetime(pool.context),
    };
    Deleter { locks: pool.context.tool.locks(pool.call, pool.at), call: pool.call, tag: pool.tag(), times }
}

/// Runs `act`, which works by name and ends before the lock does.
///
/// # Errors
/// As [`DeletionLock::call`].
pub(crate) fn under<T>(
    lock: &DeletionLock,
    pool: &Pool<'_>,
    act: impl FnOnce(&Pool<'_>) -> Result<T>,
) -> Result<T> {
    act(&pool.with_call(&lock.call(pool.call)?))
}

/// Takes the lock on the image of this id, even if no such image exists: the caller looks afterwards.
pub(crate) fn acquire(pool: &Pool<'_>, image: &str) -> Result<Acquired> {
    acquire_on(pool, LockTarget::Header(image), &format!("image {image}"))
}

/// Takes the same lock on what is called `what`.
pub(crate) fn acquire_on(pool: &Pool<'_>, target: LockTarget<'_>, what: &str) -> Result<Acquired> {
    deleter(pool).acquire(target, what)
}

/// Gives the lock back, so that the volume can be published. If that fails, the lock expires by itself.
pub(crate) fn release(pool: &Pool<'_>, image: &str) {
    deleter(pool).release(LockTarget::Header(image), &format!("image {image} of {}", pool.at));
}

/// Gives back this controller's lock on `target`.
pub(crate) fn unlock_own(pool: &Pool<'_>, target: LockTarget<'_>) -> Result<()> {
    deleter(pool).unlock_own(target)
}

/// The refusal of an image that another controller is removing or changing.
pub(crate) fn held_elsewhere(pool: &Pool<'_>) -> Error {
    deleter(pool).held_elsewhere()
}
