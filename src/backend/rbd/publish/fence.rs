//! Shutting out clients of nodes that have not given an image back when its publication ended: only these
//! clients, and for years. A node that was cut off from the cluster comes back with writes that it has kept,
//! and they would overwrite what others have written.
//!
//! The order that closes the gap:
//! 1. The node maps the image, writes its client down (`clients`), reads the publication once more, and only
//!    then touches data.
//! 2. A controller ends the publication, and only then reads the clients.
//!
//! So either the node sees the end, or the controller sees the client. A controller may die between its two
//! steps. So a controller that publishes the volume next, or finds nothing to end, reads the clients too.
//!
//! A blocklist entry must outlive the mapping: when the entry ends, the kept writes go through (seen with
//! Linux 6.1), and a mapping whose watch is gone for good continues unseen. librbd's own entries end after an
//! hour. cephlet never removes such an entry: every mapping is a new client, which an old entry does not keep
//! out.

use crate::backend::ceph::monitor::MonitorClient;
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::node_clients::{Client, Clients, KnownClient, note_shut_out};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockHolder, LockTarget, Watcher};
use crate::error::{Error, Result};

/// Shuts out the clients of all publications that have ended. Returns the recorded clients.
pub(crate) fn shut_out_ended(pool: &Pool<'_>, image: &str) -> Result<Clients> {
    if !pool.context.fences {
        return Ok(Clients { all: Vec::new(), were_ever: true });
    }
    let clients = Clients::read(pool, image)?;
    if clients.at_large().next().is_none() {
        return Ok(clients);
    }
    // Read after the clients. In the opposite order, a publication that begins in between would look ended.
    let given = given(pool, image)?;
    let ended = |known: &&KnownClient| !given.iter().any(|publication| known.client.is_of(publication));
    clients.at_large().filter(ended).try_for_each(|known| shut_out(pool, image, known))?;
    Ok(clients)
}

/// Shuts out the clients of other machines that have mapped the image by this publication, which is to this
/// node. A machine that was cut off and replaced under its node ID has not given the image back, and the
/// publication goes on, so nothing ends it. A client that watches the image is not cut off.
pub(crate) fn shut_out_namesakes(
    pool: &Pool<'_>,
    image: &str,
    publication: &NodePublication,
    watchers: &[Watcher],
) -> Result<()> {
    if !pool.context.fences {
        return Ok(());
    }
    let clients = Clients::read(pool, image)?;
    let is_watching = |client: &Client| watchers.iter().any(|watcher| watcher.address == client.address);
    let mut cut_off = of_namesakes(pool, &clients, publication).filter(|known| !is_watching(&known.client));
    cut_off.try_for_each(|known| shut_out(pool, image, known))
}

/// The clients of a publication on other machines with this node's name. An earlier boot of the same machine
/// is over.
pub(crate) fn of_namesakes<'a>(
    pool: &Pool<'_>,
    clients: &'a Clients,
    publication: &NodePublication,
) -> impl Iterator<Item = &'a KnownClient> {
    clients.at_large().filter(|KnownClient { client, .. }| {
        client.is_of(publication) && !client.is_from(&pool.context.identity)
    })
}

/// The publications that are in force.
fn given(pool: &Pool<'_>, image: &str) -> Result<Vec<NodePublication>> {
    let holders = pool.holders(LockTarget::Header(image))?;
    let locks = PublicationLock::read_all(&holders)?.into_iter();
    Ok(locks.filter(|lock| lock.stage == Stage::Given).map(|lock| lock.publication).collect())
}

fn shut_out(pool: &Pool<'_>, image: &str, known: &KnownClient) -> Result<()> {
    let client = &known.client;
    let lost = || {
        let Client { node, address, .. } = client;
        format!("node {node:?} has not given back image {image} of {}: its client at {address}", pool.at)
    };
    let is_out = monitors(pool).ensure_shut_out(&client.address);
    is_out
        .and_then(|()| await_no_watch(pool, image, &client.address))
        .map_err(|error| error.context(format_args!("{} must be shut out first", lost())))?;
    log::warn!("{} is shut out", lost());
    note_shut_out(pool, image, known)
}

fn monitors<'a>(pool: &Pool<'a>) -> MonitorClient<'a> {
    pool.context.tool.monitors().of(pool.call, &pool.at.access)
}

/// A client that is shut out loses its watch as soon as the OSDs have heard of the entry.
fn await_no_watch(pool: &Pool<'_>, image: &str, address: &str) -> Result<()> {
    let Some(info) = pool.info(ImageRef::Id(image))? else { return Ok(()) };
    let what = format!("the watch of the client at {address}, which is shut out, to end");
    let ended = pool.call.wait_for(what, pool.timing().dead_client, pool.timing().poll, || {
        Ok((!is_watching(pool, &info.name, address)?).then_some(()))
    })?;
    ended.ok_or_else(|| {
        Error::unavailable(format!(
            "the client at {address} is shut out, but still watches image {:?}: look at `ceph -s`, and try again",
            info.name
        ))
    })
}

fn is_watching(pool: &Pool<'_>, name: &str, address: &str) -> Result<bool> {
    let watchers = pool.watchers(name)?.unwrap_or_default();
    Ok(watchers.iter().any(|watcher| watcher.address == address))
}

/// Whether the owner of an image's exclusive lock is a daemon of rbd-mirror.
fn is_mirror(pool: &Pool<'_>, info: &ImageInfo, owner: &LockHolder) -> Result<bool> {
    match &info.mirroring {
        None => Ok(false),
        Some(mirroring) if mirroring.is_secondary() => Ok(true),
        Some(_) => Ok(pool.mirror_daemons()?.contains(&owner.client)),
    }
}

/// What the owner of an image's exclusive lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No owner can write unseen: there is none, or it is entitled to write, or it is shut out.
    NoDanger,
    /// No publication entitles it to write, and it watches the image.
    Watches,
}

/// Shuts out the owner of the image's exclusive lock if it no longer watches the image: it is dead, or cut
/// off. A node without Ceph's tools records no client, so its lock is the only trace of it. A daemon of
/// rbd-mirror owns the lock of a copy, and during a first copy also that of the primary. If the owner
/// watches, a caller that has looked for clients before looks again: the owner's network may be back.
pub(crate) fn shut_out_dead_owner(pool: &Pool<'_>, image: &str) -> Result<Owner> {
    if !pool.context.fences {
        return Ok(Owner::NoDanger);
    }
    // A healthy owner may be without a watch for a moment, while its OSD changes.
    let (pause, mut absent) = (pool.timing().dead_client_poll, None);
    let what = format!("the client that owns the lock of image {image} to watch it again");
    let found = pool.call.wait_for(what, 2 * pause, pause, || {
        let Some((address, watches)) = unentitled_owner(pool, image)? else {
            return Ok(Some(Owner::NoDanger));
        };
        match absent.replace(address.clone()) {
            _ if watches => Ok(Some(Owner::Watches)),
            Some(former) if former != address => Err(Error::unavailable(format!(
                "the lock of image {image} has another owner now, at {address}: try again"
            ))),
            _ => Ok(None),
        }
    })?;
    match (found, absent) {
        (None, Some(address)) => {
            let at = pool.at;
            log::warn!("image {image} of {at}: the owner of its lock at {address} is gone, and is shut out");
            monitors(pool).ensure_shut_out(&address).map(|()| Owner::NoDanger)
        }
        (found, _) => Ok(found.unwrap_or(Owner::NoDanger)),
    }
}

/// The address of the owner of an image's exclusive lock, if no publication entitles it to write, and whether
/// it watches the image.
fn unentitled_owner(pool: &Pool<'_>, image: &str) -> Result<Option<(String, bool)>> {
    let owners = pool.holders(LockTarget::Owner(image))?;
    let Some(owner) = owners.first() else { return Ok(None) };
    let Some(info) = pool.info(ImageRef::Id(image))? else { return Ok(None) };
    if given(pool, image)?.iter().any(|publication| !publication.read_only) || is_mirror(pool, &info, owner)?
    {
        return Ok(None);
    }
    Ok(Some((owner.address.clone(), is_watching(pool, &info.name, &owner.address)?)))
}
