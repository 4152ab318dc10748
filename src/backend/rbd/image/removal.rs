//! `rbd rm`, whatever the pool says of it. With the pool's own option `rbd_move_to_trash_on_remove`, which no
//! command line overrides, `rbd rm` moves an image to the trash and leaves it there; with
//! `rbd_move_to_trash_on_remove_expire_seconds` it takes even an image that is in use. In such a pool an
//! image is moved to the trash [marked](trash_mark) as deleted, and purged. If that is killed in between, the
//! next sweep purges the image.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::trash::restore_wrong;
use crate::backend::rbd::image::trash_mark;
use crate::backend::rbd::image::watchers::{MayBeMirrored, users};
use crate::backend::rbd::tool::{Changed, ImageInfo, ImageRef, Removed};
use crate::error::Result;

/// Removes an image without snapshots by name, or what is left of one.
pub(crate) fn remove_for_good(pool: &Pool<'_>, name: &str) -> Result<Removed> {
    if !pool.options()?.trashes_removed {
        return pool.remove(name);
    }
    match pool.info(ImageRef::Name(name))? {
        Some(info) => remove_through_trash(pool, &info),
        None => remove_rest(pool, name),
    }
}

/// The trash takes images with snapshots, and images that are in use: these are refused as `rbd rm` does.
fn remove_through_trash(pool: &Pool<'_>, info: &ImageInfo) -> Result<Removed> {
    let ImageInfo { id, name, .. } = info;
    // Snapshots of mirroring go with the image.
    if info.snapshots > 0 && info.mirroring.is_none() {
        return Ok(Removed::HasSnapshots);
    }
    if !users(pool, name, MayBeMirrored::as_said_by(info))?.is_empty() {
        return Ok(Removed::Watched);
    }
    trash_mark::mark(pool, id)?;
    if pool.move_to_trash(name)? == Changed::Absent {
        return Ok(Removed::Absent);
    }
    match pool.purge(id)? {
        Removed::Gone => Ok(Removed::Gone),
        // The name meant another image by then.
        Removed::Absent => restore_wrong(pool, name, id).map(|()| Removed::Absent),
        refused @ (Removed::Watched | Removed::HasSnapshots) => {
            pool.restore_from_trash(id, name)?;
            Ok(refused)
        }
    }
}

/// A name without an image goes to the trash as well. The list of the trash purges such entries.
fn remove_rest(pool: &Pool<'_>, name: &str) -> Result<Removed> {
    let removed = pool.remove(name)?;
    if removed == Removed::Gone {
        pool.trash()?;
    }
    Ok(removed)
}
