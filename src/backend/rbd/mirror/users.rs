//! Who uses a volume, so that its image must not change under them.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::publish::lock::PublicationLock;
use crate::backend::rbd::tool::{ImageInfo, LockHolder, LockTarget};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Refuses a volume that a node has. `what` is what it would be.
pub(super) fn refuse_published(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, what: &str) -> Result<()> {
    let mut holders = pool.holders(LockTarget::Header(&info.id))?;
    holders.retain(|holder| PublicationLock::read(holder).is_some());
    if holders.is_empty() { Ok(()) } else { Err(published(id, &holders, what)) }
}

/// The refusal of a volume that the nodes have whose locks these are.
pub(super) fn published(id: &VolumeId, holders: &[LockHolder], what: &str) -> Error {
    let nodes = nodes(holders);
    Error::precondition(format!(
        "volume {id} cannot be {what} while it is published to node {nodes}: unpublish it first"
    ))
}

/// The nodes that have these locks, for people.
pub(super) fn nodes(holders: &[LockHolder]) -> String {
    let nodes: Vec<String> = holders.iter().map(|holder| format!("{:?}", holder.cookie)).collect();
    nodes.join(", ")
}
