//! Deleted volumes that are retained for their snapshots and their clones. The image keeps existing under
//! another name, `csi-held-<id>`, until the last of these is gone. The trash would not do: snapshots of an
//! image in it cannot be used. And what librbd itself moves there for the clones, it removes with the last of
//! them in a way that loses track of data, and leaves it there for ever where the last two go at once (Ceph
//! 16.2).

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::deletion_lock::{self, DeletionLock};
use crate::backend::rbd::image::parent::check_retained_later;
use crate::backend::rbd::image::rename::{Named, ensure_renamed};
use crate::backend::rbd::image::watchers::{MayBeMirrored, refuse_watched};
use crate::backend::rbd::names::{self, OBJECT_KEY};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, RemovedByNumber, SnapshotInfo};
use crate::error::{Error, Result};

/// Gives an image with snapshots the name of a retained one. A rename takes what has the old name, whatever
/// that is by then, and even what is in use.
pub(crate) fn retain(pool: &Pool<'_>, info: &ImageInfo, lock: DeletionLock) -> Result<()> {
    let ImageInfo { name, id, .. } = info;
    refuse_watched(pool, name, MayBeMirrored::as_said_by(info))?;
    let retained = names::retained(id);
    let named = lock.under(pool, |pool| {
        pool.set_metadata(name, OBJECT_KEY, name)?;
        ensure_renamed(pool, info, &retained)
    })?;
    match named {
        // Whoever removed the last clone before the image had this name has left it alone.
        Named::Done(renamed) if renamed.snapshots == 0 => check_retained_later(pool, id),
        Named::Done(_) => {}
        Named::Absent => return Err(undo(pool, info, &retained)),
        Named::Taken => {
            return Err(Error::precondition(format!(
                "it has snapshots, and the name {retained:?} that would keep them is taken: look at that image \
                 and remove it"
            )));
        }
    }
    deletion_lock::release(pool, id);
    Ok(())
}

/// Gives an image its name back that was found in the place of the one to be retained.
fn undo(pool: &Pool<'_>, info: &ImageInfo, retained: &str) -> Error {
    let ImageInfo { name, id, .. } = info;
    let other = pool.info(ImageRef::Name(retained)).map(|found| found.is_some_and(|found| found.id != *id));
    match other.and_then(|other| if other { pool.rename(retained, name).map(drop) } else { Ok(()) }) {
        Ok(()) => Error::unavailable(format!("image {name:?} is gone or replaced at this moment: try again")),
        Err(error) => error,
    }
}

/// The names of an image's snapshots, without those that only clones keep; None where the image is absent.
pub(crate) fn live_snapshots(pool: &Pool<'_>, image: &str) -> Result<Option<Vec<String>>> {
    Ok(pool.snapshots(ImageRef::Id(image))?.as_deref().map(names_of_live))
}

/// The names of snapshots, without those in the trash.
pub(crate) fn names_of_live(snapshots: &[SnapshotInfo]) -> Vec<String> {
    snapshots.iter().filter(|it| !it.trashed).map(|it| it.name.clone()).collect()
}

/// Whether an image is there and has such snapshots.
pub(crate) fn has_live_snapshots(pool: &Pool<'_>, image: &str) -> Result<bool> {
    Ok(live_snapshots(pool, image)?.is_some_and(|live| !live.is_empty()))
}

/// Removes the snapshots among `live` that killed copies left, from which their clones read on. Gives how
/// many there were.
pub(crate) fn remove_transient(pool: &Pool<'_>, image: &str, live: &[String]) -> Result<usize> {
    let transient = || live.iter().filter(|name| names::is_transient(name));
    for name in transient() {
        pool.remove_snapshot(ImageRef::Id(image), name)?;
    }
    Ok(transient().count())
}

/// Removes those of an image's snapshots that are in its trash, up to one that clones read from. Gives how
/// many there were. librbd removes such a snapshot with its last clone, but leaves it where that removal is
/// killed in between.
pub(crate) fn remove_trashed(pool: &Pool<'_>, image: &str, snapshots: &[SnapshotInfo]) -> Result<u64> {
    let mut removed = 0;
    for snapshot in snapshots.iter().filter(|snapshot| snapshot.trashed) {
        match pool.remove_snapshot_by_number(image, snapshot.id)? {
            RemovedByNumber::Gone | RemovedByNumber::Absent => removed += 1,
            RemovedByNumber::Protected => break,
        }
    }
    Ok(removed)
}

/// The refusal of a volume whose deletion would free nothing, because its snapshots need the image.
pub(crate) fn needed_by(snapshots: &[String]) -> Error {
    Error::has_snapshots(format!(
        "its storage cannot be freed, it has the snapshots {}: delete them first",
        snapshots.join(", ")
    ))
}
