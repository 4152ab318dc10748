//! Mappings that can only fail: the cluster has shut their client out, which krbd shows nowhere but in
//! debugfs.
//!
//! A missing watch is no proof yet. While the cluster is away, and for a moment when an OSD changes, a
//! healthy client has no watch, and registers it again by itself. A client that was shut out and let in again
//! never registers one, and writes unseen.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::BlockDevice;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::node_clients::Clients;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::kernel::Backing;

/// For each client's address: since when every look has found no watch of it, and the last look.
pub(super) type Missing = Mutex<HashMap<String, (Instant, Instant)>>;

/// How the cluster sees the client of a mapping.
pub(super) enum Seen {
    Unknown,
    Watching(String),
    ShutOut(String),
    Missing(String),
}

/// Looks for the client of the mapping in the cluster.
pub(super) fn look(pool: &Pool<'_>, id: &VolumeId, device: &BlockDevice) -> Result<Seen> {
    let mut addresses = addresses(pool, device)?;
    let watchers = pool.watchers(&id.object)?.unwrap_or_default();
    if let Some(own) = watchers.into_iter().find(|watcher| addresses.contains(&watcher.address)) {
        return Ok(Seen::Watching(own.address));
    }
    let Some(last) = addresses.pop() else { return Ok(Seen::Unknown) };
    let entries = pool.context.tool.monitors().of(pool.call, &pool.at.access).blocklist()?;
    let is_out = entries.iter().any(|entry| entry.covers(&last));
    Ok(if is_out { Seen::ShutOut(last) } else { Seen::Missing(last) })
}

/// Why the mapping is lost, if it is.
///
/// A look long after the one before begins anew: in between the client may have watched.
///
/// # Errors
/// Unavailable as long as its client may still register its watch again.
pub(super) fn lost(
    device: &BlockDevice,
    seen: Seen,
    missing: &Missing,
    after: Duration,
) -> Result<Option<String>> {
    let path = device.path.display();
    match seen {
        Seen::Unknown => Ok(None),
        Seen::Watching(address) => {
            missing.lock().remove(&address);
            Ok(None)
        }
        Seen::ShutOut(address) => Ok(Some(shut_out(device, &address))),
        Seen::Missing(address) => {
            let why = format!(
                "the client at {address}, by which it is mapped as {path}, does not watch its image now"
            );
            let (now, mut missing) = (Instant::now(), missing.lock());
            let (since, last) = missing.entry(address).or_insert((now, now));
            if now.duration_since(*last) > 12 * after {
                *since = now;
            }
            *last = now;
            match now.duration_since(*since) >= after {
                true => Ok(Some(why)),
                false => Err(Error::unavailable(format!("{why}: try again"))),
            }
        }
    }
}

/// The message about a mapping whose client was shut out.
pub(super) fn shut_out(device: &BlockDevice, address: &str) -> String {
    let path = device.path.display();
    format!("{path} can only fail: the cluster has shut out its client at {address}")
}

/// The addresses at which the cluster may see the client of the mapping.
fn addresses(pool: &Pool<'_>, device: &BlockDevice) -> Result<Vec<String>> {
    match &device.backing {
        Backing::Rbd(image) if image.address.is_empty() => Ok(Vec::new()),
        Backing::Rbd(image) => Ok(vec![image.address.clone()]),
        _ => {
            let identity = &pool.context.identity;
            let known = Clients::read(pool, &device.image)?.all.into_iter();
            let own = known.filter(|it| it.client.is_of_boot(identity));
            Ok(own.map(|it| it.client.address).collect())
        }
    }
}
