//! Shutting out the mounts of nodes that have not given a volume back when its publication ended.
//!
//! The metadata servers know every mount of cephlet [by its node](super::names::client_name), so nodes need
//! no rights of their own for this, but the controller's user needs `mds 'allow *'`; without it no mount is
//! shut out. The order that closes the gap is that of RBD:
//!
//! 1. A node mounts a volume only for a publication that is in force.
//! 2. A controller ends the publication, and only then reads the clients.
//!
//! A controller may die between these two steps, so a controller that publishes the volume next reads the
//! clients too. The metadata servers end the session of a client that is on the blocklist, and the OSDs
//! refuse its writes, also those that it has kept while it was cut off.

use std::time::Duration;

use crate::backend::cephfs::clients::{self, FsClient};
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::volumes::find::Found;
use crate::error::{Error, Result};

/// How long the servers may need to end a client that is shut out.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

/// What the user may lack, beside the right to look.
const RIGHT: &str = "the controller's user needs `mon 'allow r, allow command \"osd blocklist\"'` for that; with \
                     CEPHLET_FENCE=off no client is shut out";

/// Shuts out the mounts of a volume by nodes that it is not published to. Only its own tree can be written
/// to.
pub(crate) fn shut_out_ended(fs: &Fs<'_>, object: &str, found: &Found) -> Result<()> {
    let Some(path) = found.own_path().filter(|_| fs.context.identity.fences) else { return Ok(()) };
    let (call, times, mut left) = (fs.call, &fs.context.timing.deletion, Vec::new());
    let mut are_gone = || {
        left = ended(fs, object, path)?;
        Ok(left.is_empty().then_some(()))
    };
    if call.wait_for("nodes to unmount it", times.wait, times.poll, &mut are_gone)?.is_some() {
        return Ok(());
    }
    let monitors = fs.monitors();
    for client in ended(fs, object, path)? {
        let lost = format!("a node has not given back subvolume {object}: its client {client}");
        monitors
            .ensure_shut_out(&client.address())
            .map_err(|error| error.context(format_args!("{lost} must be shut out first")).hint(RIGHT))?;
        log::warn!("{lost} at {} is shut out", client.address());
    }
    let gone = call.wait_for("clients that are shut out to end", ENDS_WITHIN, times.poll, &mut are_gone)?;
    gone.ok_or_else(|| {
        let named: Vec<String> = left.iter().map(FsClient::to_string).collect();
        Error::unavailable(format!(
            "the metadata servers still serve {}, which is shut out: look at `ceph fs status`, and try again",
            named.join(", ")
        ))
    })
}

/// The mounts of cephlet for nodes without a publication in force. The publications are read after the
/// clients: in the opposite order, one that begins in between would look ended.
fn ended(fs: &Fs<'_>, object: &str, path: &str) -> Result<Vec<FsClient>> {
    let found = clients::find(fs, path)?.unwrap_or_default();
    let ours: Vec<FsClient> = found.into_iter().filter(FsClient::is_ours).collect();
    if ours.is_empty() {
        return Ok(ours);
    }
    let given = fs.publications(object)?;
    let is_entitled = |client: &FsClient| given.iter().any(|it| client.is_of(&it.node));
    Ok(ours.into_iter().filter(|client| !is_entitled(client)).collect())
}
