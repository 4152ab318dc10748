//! Shutting out clients of nodes that have not given an image back when its publication ended: just these,
//! and for as long as anybody may remember them. A node that was cut off from the cluster comes back with
//! writes that it has kept, and they would go over what others have written.
//!
//! The order that closes the gap:
//! 1. The node maps the image, writes its client down (`clients`), reads the publication once more, and only
//!    then touches data.
//! 2. A controller ends the publication, and only then reads the clients.
//!
//! So one of the two sees the other. Any controller may have died between its two steps, so whoever publishes
//! the volume next, or finds nothing to end, reads the clients too.
//!
//! A blocklist entry must outlive the mapping: when it ends, the writes that were kept go through (seen with
//! Linux 6.1), and a mapping whose watch is gone for good goes on unseen. librbd's own entries end after an
//! hour. Nobody lifts an entry of ours: every mapping is a new client, which an old entry does not keep out.

use std::time::{Duration, SystemTime};

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::clients::{Client, Clients, KnownClient, note_shut_out};
use crate::backend::rbd::header_lock::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockHolder, LockTarget, Watcher};
use crate::error::{Error, Result};

/// So many years a client is shut out.
const YEARS: u64 = 10;
/// An entry that lasts longer than this is left as it is.
const LASTING: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);

/// Shuts out the clients of all publications that have ended. Gives what was written down.
pub(crate) fn shut_out_ended(pool: &Pool<'_>, image: &str) -> Result<Clients> {
    if !pool.context.fences {
        return Ok(Clients { all: Vec::new(), were_ever: true });
    }
    let clients = Clients::read(pool, image)?;
    if clients.at_large().next().is_none() {
        return Ok(clients);
    }
    // Read after the clients: whoever was written down for one of these was so while it stood.
    let given = given(pool, image)?;
    let ended = |known: &&KnownClient| !given.iter().any(|publication| known.client.is_of(publication));
    clients.at_large().filter(ended).try_for_each(|known| shut_out(pool, image, known))?;
    Ok(clients)
}

/// Shuts out the clients of other machines that have mapped the image by this publication, of this node: a
/// machine that was replaced under its node ID while it was cut off has not given it back, and nobody ends a
/// publication that goes on. Who watches the image is not cut off.
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

/// The clients by which other machines of this node's name have the image mapped by a publication. An earlier
/// boot of the same machine is over.
pub(crate) fn of_namesakes<'a>(
    pool: &Pool<'_>,
    clients: &'a Clients,
    publication: &NodePublication,
) -> impl Iterator<Item = &'a KnownClient> {
    clients.at_large().filter(|KnownClient { client, .. }| {
        client.is_of(publication) && !client.is_from(&pool.context.identity)
    })
}

/// The publications that stand.
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
    let is_out = ensure_shut_out(pool, &client.address);
    is_out
        .and_then(|()| await_no_watch(pool, image, &client.address))
        .map_err(|error| error.context(format_args!("{} must be shut out first", lost())))?;
    log::warn!("{} is shut out", lost());
    note_shut_out(pool, image, known)
}

/// Has the cluster shut a client out for years. An entry that lasts longer stays as it is.
fn ensure_shut_out(pool: &Pool<'_>, address: &str) -> Result<()> {
    let (tool, access) = (&pool.context.tool, &pool.at.access);
    let is_shut_out = || -> Result<bool> {
        let until = SystemTime::now() + LASTING;
        let entries = tool.blocklist(pool.call, access)?;
        Ok(entries.iter().any(|entry| entry.address == address && entry.until > until))
    };
    if is_shut_out()? {
        return Ok(());
    }
    tool.shut_out(pool.call, access, address, YEARS)?;
    match is_shut_out()? {
        true => Ok(()),
        false => Err(Error::unavailable(format!(
            "the client at {address} was to be shut out, but is not on the blocklist (`ceph osd blocklist ls`): \
             try again"
        ))),
    }
}

/// A client that is shut out loses its watch as soon as the OSDs have heard of it.
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
    /// It is none that may write unseen: there is none, or it may write, or it is shut out.
    NoDanger,
    /// No publication stands for it, and it watches the image.
    Watches,
}

/// Shuts out the owner of the image's exclusive lock where it watches the image no more: it is dead, or cut
/// off. That is all that tells of the client of a node without Ceph's tools, which writes nothing down.
/// A daemon of rbd-mirror owns the lock of a copy, and for a while that of an image that it copies first.
/// Who has looked for clients before looks again if the owner watches: its network may have come back just
/// now.
pub(crate) fn shut_out_dead_owner(pool: &Pool<'_>, image: &str) -> Result<Owner> {
    if !pool.context.fences {
        return Ok(Owner::NoDanger);
    }
    // A healthy one may be without a watch for a moment, while its OSD changes.
    let (pause, mut absent) = (pool.timing().dead_client_poll, None);
    let what = format!("the client that owns the lock of image {image} to watch it again");
    let found = pool.call.wait_for(what, 2 * pause, pause, || match look_at_owner(pool, image)? {
        Looked::At(owner) => Ok(Some(owner)),
        Looked::Absent(address) => match absent.replace(address.clone()) {
            Some(former) if former != address => Err(Error::unavailable(format!(
                "the lock of image {image} has another owner now, at {address}: try again"
            ))),
            _ => Ok(None),
        },
    })?;
    match (found, absent) {
        (None, Some(address)) => {
            let at = pool.at;
            log::warn!("image {image} of {at}: the owner of its lock at {address} is gone, and is shut out");
            ensure_shut_out(pool, &address).map(|()| Owner::NoDanger)
        }
        (found, _) => Ok(found.unwrap_or(Owner::NoDanger)),
    }
}

/// What a look at the owner of an image's exclusive lock shows.
enum Looked {
    At(Owner),
    /// No publication stands for it, and it does not watch the image; its address.
    Absent(String),
}

fn look_at_owner(pool: &Pool<'_>, image: &str) -> Result<Looked> {
    let owners = pool.holders(LockTarget::Owner(image))?;
    let Some(owner) = owners.first() else { return Ok(Looked::At(Owner::NoDanger)) };
    let Some(info) = pool.info(ImageRef::Id(image))? else { return Ok(Looked::At(Owner::NoDanger)) };
    if given(pool, image)?.iter().any(|publication| !publication.read_only) || is_mirror(pool, &info, owner)?
    {
        return Ok(Looked::At(Owner::NoDanger));
    }
    Ok(match is_watching(pool, &info.name, &owner.address)? {
        true => Looked::At(Owner::Watches),
        false => Looked::Absent(owner.address.clone()),
    })
}
