//! The clients that have an image open.

use std::collections::HashMap;
use std::time::Instant;

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, Watcher};
use crate::error::{Error, Result};

/// For this many times a command's duration, an image may be open to one client after another.
const MANY_LOOKS: u32 = 40;

/// The clients that have the image open; of a mirrored image without daemons of rbd-mirror.
pub(crate) fn users(pool: &Pool<'_>, image: &ImageInfo) -> Result<Vec<Watcher>> {
    let watchers = pool.watchers(&image.name)?.unwrap_or_default();
    if image.mirroring.is_some() { without_mirror_daemons(pool, watchers) } else { Ok(watchers) }
}

/// Those of the clients that are no daemons of rbd-mirror: the daemons of the peers watch a primary all the
/// time. The cluster is asked for its daemons only if a client is not known as one.
fn without_mirror_daemons(pool: &Pool<'_>, mut watchers: Vec<Watcher>) -> Result<Vec<Watcher>> {
    let (cluster, known) = (&pool.at.access.cluster.name, &pool.memory().mirror_daemons);
    let is_user = |watcher: &Watcher| !known.contains(&(cluster.clone(), watcher.client.clone()));
    if watchers.iter().any(is_user) {
        let daemons = pool.mirror_daemons()?;
        daemons.into_iter().for_each(|client| known.remember((cluster.clone(), client), ()));
    }
    watchers.retain(is_user);
    Ok(watchers)
}

/// The clients that have the image open for longer than a command does: another controller that reads the
/// image's record or takes a snapshot counts as a watcher too, for a moment.
pub(crate) fn staying_watchers(pool: &Pool<'_>, image: &ImageInfo) -> Result<Vec<Watcher>> {
    staying_of(pool, &image.name, || users(pool, image))
}

/// Those of the watchers found by `look` that have the image open for longer than a command does.
pub(crate) fn staying_of(
    pool: &Pool<'_>,
    name: &str,
    mut look: impl FnMut() -> Result<Vec<Watcher>>,
) -> Result<Vec<Watcher>> {
    let (briefly, what) = (pool.timing().command_watches, format!("clients to close image {name}"));
    let (mut watchers, mut since) = (Vec::new(), HashMap::<String, Instant>::new());
    let staying = pool.call.wait_for(what, MANY_LOOKS * briefly, briefly / 2, || {
        watchers = look()?;
        let now = Instant::now();
        since.retain(|address, _| watchers.iter().any(|it| it.address == *address));
        let staying: Vec<Watcher> = watchers
            .iter()
            .filter(|it| now - *since.entry(it.address.clone()).or_insert(now) >= briefly)
            .cloned()
            .collect();
        Ok((watchers.is_empty() || !staying.is_empty()).then_some(staying))
    })?;
    // If one client follows another all the time, the image is in use.
    Ok(staying.unwrap_or(watchers))
}

/// Waits for as long as the cluster takes to forget the watches of clients that died; returns the watchers
/// that are left.
pub(crate) fn await_dead(
    pool: &Pool<'_>,
    name: &str,
    mut look: impl FnMut() -> Result<Vec<Watcher>>,
) -> Result<Vec<Watcher>> {
    let (timing, mut left) = (pool.timing(), Vec::new());
    let what = format!("the watches on image {name} to time out, whose clients may be dead");
    pool.call.wait_for(what, timing.dead_client, timing.dead_client_poll, || {
        left = look()?;
        Ok(left.is_empty().then_some(()))
    })?;
    Ok(left)
}

/// Refuses an image that clients have open.
pub(crate) fn refuse_watched(pool: &Pool<'_>, image: &ImageInfo) -> Result<()> {
    refuse_users(image, &staying_watchers(pool, image)?)
}

/// The same after a removal, which ends the mirroring first: daemons of rbd-mirror may have it open still.
pub(crate) fn refuse_watched_in_removal(pool: &Pool<'_>, image: &ImageInfo) -> Result<()> {
    refuse_users(image, &without_mirror_daemons(pool, staying_watchers(pool, image)?)?)
}

fn refuse_users(image: &ImageInfo, watchers: &[Watcher]) -> Result<()> {
    if watchers.is_empty() { Ok(()) } else { Err(in_use(&image.name, watchers)) }
}

/// Refuses an image that a kernel has mapped: unlike other clients, a kernel is no killed command of cephlet.
pub(crate) fn refuse_mapped(pool: &Pool<'_>, name: &str) -> Result<()> {
    let mut watchers = pool.watchers(name)?.unwrap_or_default();
    watchers.retain(|watcher| watcher.is_kernel);
    if watchers.is_empty() { Ok(()) } else { Err(in_use(name, &watchers)) }
}

/// The refusal of an image that clients have open.
pub(crate) fn in_use(name: &str, watchers: &[Watcher]) -> Error {
    Error::precondition(format!(
        "image {name:?} is in use by {}: unmap it there, then try again; a client that died is forgotten \
         after 30 s",
        addresses(watchers)
    ))
}

/// The addresses of the watchers, for messages.
pub(crate) fn addresses(watchers: &[Watcher]) -> String {
    let addresses: Vec<&str> = watchers.iter().map(|watcher| watcher.address.as_str()).collect();
    addresses.join(", ")
}
