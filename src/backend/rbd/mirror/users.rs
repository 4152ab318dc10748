//! Who uses a volume, so that its image must not change under them.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::publish::lock::PublicationLock;
use crate::backend::rbd::tool::{ImageInfo, LockTarget};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Refuses a volume that a node has. `what` is what it would be.
pub(super) fn refuse_published(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, what: &str) -> Result<()> {
    let holders = pool.holders(LockTarget::Header(&info.id))?;
    let nodes: Vec<String> = holders
        .iter()
        .filter_map(PublicationLock::read)
        .map(|lock| format!("{:?}", lock.publication.node))
        .collect();
    if nodes.is_empty() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "volume {id} cannot be {what} while it is published to node {}: unpublish it first",
        nodes.join(", ")
    )))
}
