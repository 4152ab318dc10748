//! The ID of a replicated volume at the other site.
//!
//! Pool, namespace and image have the same names there. The cluster has the name that the file of clusters
//! gives it (`[cluster.main.peer]`), else that of its site; the incarnation is the first id in the creation
//! record, which goes wherever the image goes.

use super::role::mirroring;
use crate::backend::MirroringMode;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{existing_volume, with_record};
use crate::backend::rbd::tool::{ImageInfo, MirrorSnapshotKind, Mirroring, Replay, SiteStatus};
use crate::error::{Error, Result};
use crate::ids::{Place, VolumeId};

/// The ID that the volume has at the peer.
pub(super) fn destination(pool: &Pool<'_>, id: &VolumeId) -> Result<VolumeId> {
    let info = existing_volume(pool, id)?;
    let mirroring = mirroring(pool, id, &info)?;
    let status = pool.mirror_status(&info.name)?;
    let peers = status.map(|status| status.peers).unwrap_or_default();
    let peer = peers.first().filter(|peer| !peer.site.is_empty()).ok_or_else(|| not_copied(id, "yet"))?;
    if !is_copied(pool, &info, mirroring, peer)? {
        return Err(not_copied(id, &format!("to {:?} yet", peer.site)));
    }
    let cluster = pool.at.access.cluster.peers.get(&peer.site).unwrap_or(&peer.site).clone();
    let record = with_record(pool, info)?.record;
    let incarnation = id.incarnation.as_ref().and(record).and_then(|record| record.first_id);
    Ok(VolumeId { place: Place { cluster, ..id.place.clone() }, object: id.object.clone(), incarnation })
}

fn not_copied(id: &VolumeId, whereto: &str) -> Error {
    Error::precondition(format!("volume {id} is not copied {whereto}: try again when it is"))
}

/// Whether the peer has the volume. The peer of a copy has it. The peer of a primary says so when it has
/// something whole.
fn is_copied(pool: &Pool<'_>, info: &ImageInfo, mirroring: &Mirroring, peer: &SiteStatus) -> Result<bool> {
    let reads_journal = mirroring.mode == MirroringMode::Journal && peer.replay == Replay::Replaying;
    if !mirroring.primary || peer.progress.copied.is_some() || reads_journal {
        return Ok(true);
    }
    let of_peer = |kind| matches!(kind, MirrorSnapshotKind::Copy | MirrorSnapshotKind::CopyOfDemoted);
    let snapshots = pool.mirror_snapshots(&info.name)?.unwrap_or_default();
    Ok(snapshots.iter().any(|it| of_peer(it.kind)))
}
