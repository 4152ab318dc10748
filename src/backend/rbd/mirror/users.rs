//! The users of a volume, whose image must not change under them.

use crate::backend::ceph::publication::PublicationLock;
use crate::backend::ceph::publication::deletion::{Acquired, nodes};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, LockHolder, LockTarget};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Changes an image that is published to no node, and keeps it unpublished meanwhile. `act` checks whether a
/// node has kept it. `refusal` is for a volume that is published.
pub(super) fn while_unpublished<T>(
    pool: &Pool<'_>,
    image: &str,
    refusal: impl FnOnce(&[LockHolder]) -> Error,
    act: impl FnOnce(&Pool<'_>) -> Result<T>,
) -> Result<T> {
    let (target, deleter) = (LockTarget::Header(image), pool.deleter());
    let lock = match deleter.acquire(target)? {
        Acquired::Locked(lock) => lock,
        Acquired::Published(holders) => return Err(refusal(&holders)),
        Acquired::HeldElsewhere => return Err(deleter.held_elsewhere()),
    };
    let done = lock.call(pool.call).and_then(|call| act(&pool.with_call(&call)));
    deleter.release(target);
    done
}

/// Refuses a volume that a node has. `what` is the change that is refused.
pub(super) fn refuse_published(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, what: &str) -> Result<()> {
    let mut holders = Vec::new();
    for holder in pool.holders(LockTarget::Header(&info.id))? {
        holders.extend(PublicationLock::read(&holder)?.map(|_| holder));
    }
    if holders.is_empty() { Ok(()) } else { Err(published(id, &holders, what)) }
}

/// The refusal of a volume that is published to the nodes with these locks.
pub(super) fn published(id: &VolumeId, holders: &[LockHolder], what: &str) -> Error {
    let nodes = nodes(holders);
    Error::precondition(format!(
        "volume {id} cannot be {what} while it is published to node {nodes}: unpublish it first"
    ))
}
