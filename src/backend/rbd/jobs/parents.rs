//! Deleted volumes that only clones need.
//!
//! Such an image is [retained](crate::backend::rbd::image::retain), and its snapshot goes with the last of
//! its clones. Whoever has removed a clone looks after its parent a little later, and a job looks from time
//! to time for what a daemon has left that died before.
//!
//! 0.1.0 had librbd keep them in the trash (`rbd rm --rbd-move-parent-to-trash-on-remove`). librbd removes
//! such an image with the last of its clones, but where the last two are removed at once, each of them may
//! find the other's client on the parent ("image has watchers - not removing"), and then it stays, with all
//! its data and without a snapshot. It is this daemon's work to purge it also where it is large: the
//! cluster's manager fails on an entry that librbd has put into the trash (status 22, Ceph 16.2).
//!
//! Nobody can be about to clone from either: without a snapshot there is nothing to clone, and a clone that
//! exists keeps one, with which an image is neither removed nor purged.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::retain::remove_trashed;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, Removed, TrashSource};
use crate::error::Result;

/// What became of a parent in the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It is gone, or still needed.
    Settled,
    /// Nobody needs it, but a client has it open.
    Watched,
}

/// Purges a parent that librbd keeps in the trash, if it has no clones any more. One that somebody put there
/// by hand is his to remove.
pub(crate) fn purge_if_childless(pool: &Pool<'_>, image: &str) -> Result<Checked> {
    if !is_kept_for_clones(pool, image)? {
        return Ok(Checked::Settled);
    }
    let info = pool.info(ImageRef::Id(image))?;
    let Some(info) = info.filter(|info| names::is_ours(&info.name)) else { return Ok(Checked::Settled) };
    if info.snapshots > 0 {
        let snapshots = pool.snapshots(ImageRef::Id(image))?.unwrap_or_default();
        if remove_trashed(pool, image, &snapshots)? < info.snapshots {
            return Ok(Checked::Settled);
        }
    }
    match pool.purge(image)? {
        Removed::Gone => {
            log::info!("{}: purged {} ({image}), which no clone needs any more", pool.at, info.name);
            Ok(Checked::Settled)
        }
        Removed::Absent | Removed::HasSnapshots => Ok(Checked::Settled),
        Removed::Watched => Ok(Checked::Watched),
    }
}

/// Whether librbd has put the image into the trash.
fn is_kept_for_clones(pool: &Pool<'_>, image: &str) -> Result<bool> {
    Ok(pool.trash()?.iter().any(|it| it.id == image && it.source == TrashSource::Clones))
}
