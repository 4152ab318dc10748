//! Taking volumes back from nodes. Whether a node still has the image mapped is not asked: the orchestrator
//! gives up nodes that are lost, and who the volume is published to next is refused as long as a watcher is
//! there.

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::find_volume;
use crate::backend::rbd::publish::lock::{NodePublication, PublicationLock};
use crate::backend::rbd::publish::stray::{Stray, remove_stray};
use crate::backend::rbd::tool::LockTarget;
use crate::backend::{PublishedBy, Unpublished};
use crate::call::Call;
use crate::error::Result;
use crate::ids::{self, VolumeId};
use crate::secrets::Secrets;

/// Takes the volume back from a node, or from all.
pub(crate) fn unpublish(
    context: &Context,
    call: &Call,
    id: &VolumeId,
    node: Option<&str>,
    secrets: &Secrets,
) -> Result<Unpublished> {
    let at = context.locate_to_unpublish(id, secrets)?;
    let is_meant = |publication: &NodePublication| node.is_none_or(|node| node == publication.node);
    let outcome = end_publications(&context.pool(call, &at), id, is_meant)?;
    // Nobody says which nodes there are, only which names no node can have.
    let impossible = node.is_some_and(|node| ids::refuse_node(node).is_err());
    Ok(if impossible && outcome == Unpublished::Done { Unpublished::NoNode } else { outcome })
}

/// Ends what [`publish_here`](super::to_node::publish_here) began for this node.
pub(crate) fn unpublish_here(context: &Context, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<()> {
    let at = context.locate_to_unpublish(id, secrets)?;
    let node = &context.identity.node;
    let is_meant = |it: &NodePublication| it.by == PublishedBy::Node && it.node == *node;
    end_publications(&context.pool(call, &at), id, is_meant).map(drop)
}

fn end_publications(
    pool: &Pool<'_>,
    id: &VolumeId,
    is_meant: impl Fn(&NodePublication) -> bool,
) -> Result<Unpublished> {
    let (image, outcome) = match (find_volume(pool, id)?, &id.incarnation) {
        (Some(info), _) => (info.id, Unpublished::Done),
        (None, None) => return Ok(Unpublished::NoVolume),
        (None, Some(gone)) if remove_stray(pool, gone)? == Stray::Removed => {
            return Ok(Unpublished::NoVolume);
        }
        // Under another name, as an image that is retained for its snapshots.
        (None, Some(renamed)) => (renamed.clone(), Unpublished::NoVolume),
    };
    let header = LockTarget::Header(&image);
    for holder in pool.holders(header)? {
        if PublicationLock::read(&holder).is_some_and(|lock| is_meant(&lock.publication)) {
            pool.unlock(header, &holder)?;
        }
    }
    Ok(outcome)
}
