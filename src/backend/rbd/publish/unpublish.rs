//! Taking volumes back from nodes. The orchestrator also gives up nodes that are lost. First the publication
//! ends; then the clients that got the image by it and have not given it back are shut out
//! ([`fence`](super::fence)).

use crate::backend::ceph::publication::{PublicationLock, Stage};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::find_volume;
use crate::backend::rbd::image::remove::exists_or_cleared;
use crate::backend::rbd::node_clients::{Client, Clients};
use crate::backend::rbd::publish::fence::{of_namesakes, shut_out_dead_owner, shut_out_ended};
use crate::backend::rbd::tool::LockTarget;
use crate::backend::{PublishedBy, Unpublished};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::VolumeId;
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
    let pool = context.pool(call, &at);
    if pool.lets_go(format_args!("the publication of volume {id}"))? {
        return Ok(Unpublished::NoVolume);
    }
    let is_of_node = |lock: &PublicationLock| node.is_none_or(|node| node == lock.publication.node);
    let is_meant = |_: &str, lock: &PublicationLock| Ok(is_of_node(lock));
    let (image, outcome) = end_publications(&pool, id, is_meant)?;
    if let Some(image) = image {
        let clients = shut_out_ended(&pool, &image)?;
        if !clients.were_ever {
            shut_out_dead_owner(&pool, &image)?;
        }
    }
    Ok(outcome)
}

/// Ends the publication that [`publish_here`](super::to_node::publish_here) made for this node, which has
/// unmapped the image. If another machine of that name has taken it over, the publication stays.
pub(crate) fn unpublish_here(context: &Context, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<()> {
    let at = context.locate_to_unpublish(id, secrets)?;
    let pool = context.pool(call, &at);
    if pool.lets_go(format_args!("the publication of volume {id}"))? {
        return Ok(());
    }
    let is_meant = |image: &str, PublicationLock { publication, .. }: &PublicationLock| {
        if publication.by != PublishedBy::Node || publication.node != context.identity.node {
            return Ok(false);
        }
        let clients = Clients::read(&pool, image)?;
        // A client without a machine ID cannot be attributed.
        let other = of_namesakes(&pool, &clients, publication).find(|known| !known.client.machine.is_empty());
        if let Some(Client { node, address, machine, .. }) = other.map(|known| &known.client) {
            log::warn!(
                "volume {id} stays published to node {node:?}: another machine of that name, {machine}, has it mapped \
                 by the client at {address}"
            );
        }
        Ok(other.is_none())
    };
    end_publications(&pool, id, is_meant).map(drop)
}

/// Ends all given publications of an image. The lock of a check stays: the check would succeed without it,
/// and would not notice that the lock is gone.
pub(crate) fn take_back(pool: &Pool<'_>, image: &str) -> Result<()> {
    end_on(pool, image, |_, lock| Ok(lock.stage == Stage::Given)).map(drop)
}

/// Returns the id of the image, if it exists, and the outcome. A published volume exists, so the image is
/// looked up by name only if nothing was published.
fn end_publications(
    pool: &Pool<'_>,
    id: &VolumeId,
    is_meant: impl Fn(&str, &PublicationLock) -> Result<bool>,
) -> Result<(Option<String>, Unpublished)> {
    if let Some(image) = &id.incarnation
        && end_on(pool, image, &is_meant)?
    {
        return Ok((Some(image.clone()), Unpublished::Done));
    }
    let (image, outcome) = match (find_volume(pool, id)?, &id.incarnation) {
        (Some(info), _) => (info.id, Unpublished::Done),
        (None, None) => return Ok((None, Unpublished::NoVolume)),
        (None, Some(gone)) if !exists_or_cleared(pool, gone)? => return Ok((None, Unpublished::NoVolume)),
        // The image has another name, for example because it is retained for its snapshots.
        (None, Some(renamed)) => (renamed.clone(), Unpublished::NoVolume),
    };
    if id.incarnation.as_ref() != Some(&image) {
        end_on(pool, &image, &is_meant)?;
    }
    Ok((Some(image), outcome))
}

/// Ends the publications on a header that are meant; returns whether there were any.
fn end_on(
    pool: &Pool<'_>,
    image: &str,
    is_meant: impl Fn(&str, &PublicationLock) -> Result<bool>,
) -> Result<bool> {
    let (header, mut were_any) = (LockTarget::Header(image), false);
    for holder in pool.holders(header)? {
        if let Some(lock) = PublicationLock::read(&holder)?
            && is_meant(image, &lock)?
        {
            pool.unlock(header, &holder)?;
            were_any = true;
        }
    }
    Ok(were_any)
}
