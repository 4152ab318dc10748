//! `rbd rm`, which every removal by name goes through.
//!
//! - Status 2 does not prove that the image is gone. The image is looked up by its id.
//! - A killed command frees the name, and leaves an entry in the trash that no list of the trash shows.
//!   `rbd ls` shows the name. `rbd rm` of that name, or `rbd trash rm` of the id, finishes the removal.
//! - In a pool that has the option `rbd_move_to_trash_on_remove` itself, which no command line overrides, the
//!   image goes to the trash and stays there. `rbd trash rm` of the id follows. After a kill in between, the
//!   sweep tells cephlet's images from an operator's by their names. So in such a pool no image is removed
//!   while it has the name of a volume.
//! - `rbd rm` of a name that the directory does not have destroys the image: see [`rename`](super::rename).

use crate::backend::ceph::publication::deletion::Acquired;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::retained_checks::{check_all_retained_later, check_parent_later};
use crate::backend::rbd::image::watchers::users;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockTarget, Removed};
use crate::error::{Error, Result};

/// Images with more bytes are not removed while a call waits: that is 1024 objects of the usual 4 MiB.
const LARGE: u64 = 4 << 30;

/// Whether an image is too large to be removed while a call waits.
pub(crate) fn is_large(info: &ImageInfo) -> bool {
    info.size > LARGE
}

/// Removes an image without snapshots, by its own name, and has its parent checked.
pub(crate) fn remove_for_good(pool: &Pool<'_>, info: &ImageInfo) -> Result<Removed> {
    let ImageInfo { name, id, .. } = info;
    let is_trashed = pool.options()?.trashes_removed;
    // An image in use is moved to the trash, too.
    if is_trashed && !users(pool, info)?.is_empty() {
        return Ok(Removed::Watched);
    }
    let removed = if is_large(info) { pool.remove_large(name) } else { pool.remove(name) };
    let removed = removed.and_then(|removed| match removed {
        Removed::Gone if !is_trashed => Ok(Removed::Gone),
        Removed::Gone | Removed::Absent => purge_for_good(pool, id),
        refused @ (Removed::Watched | Removed::HasSnapshots) => Ok(refused),
    });
    // Also after a failure: the command may have been killed between the parent and the rest.
    info.parent.iter().for_each(|parent| check_parent_later(pool, parent));
    removed
}

/// Removes from the trash an image whose name is gone.
fn purge_for_good(pool: &Pool<'_>, image: &str) -> Result<Removed> {
    match pool.purge(image)? {
        // For example, the pool is at its quota.
        Removed::Absent if pool.info(ImageRef::Id(image))?.is_some() => Err(Error::unavailable(format!(
            "image {image} of {} is there, but `rbd rm` did not find it: try again",
            pool.at
        ))),
        removed => Ok(removed),
    }
}

/// Removes a name that opens no image, left by a killed creation or removal. Only `rbd rm` of the name does
/// so. The caller ensures that no image is given the name meanwhile.
pub(crate) fn remove_left_over(pool: &Pool<'_>, name: &str) -> Result<Removed> {
    let removed = pool.remove(name)?;
    if removed == Removed::Gone {
        check_all_retained_later(pool);
    }
    if removed == Removed::Gone && pool.options()?.trashes_removed {
        // The name goes to the trash, too.
        for entry in pool.trash()?.iter().filter(|entry| entry.name == name) {
            if pool.info(ImageRef::Id(&entry.id))?.is_none() {
                pool.purge(&entry.id)?;
            }
        }
    }
    Ok(removed)
}

/// Removes the name of a volume that opens no image. One controller at a time does so, and waits once more
/// for an image: another may have removed the name since, and be making the volume.
pub(crate) fn remove_bare_name(pool: &Pool<'_>, name: &str) -> Result<()> {
    let (target, deleter) = (LockTarget::BareName(name), pool.deleter());
    let Acquired::Locked(lock) = deleter.acquire(target)? else {
        return Err(deleter.held_elsewhere());
    };
    let (grace, poll) = (pool.timing().orphan_name_grace, pool.timing().poll);
    let removed = lock.call(pool.call).and_then(|call| {
        let pool = &pool.with_call(&call);
        let look = || pool.info(ImageRef::Name(name));
        match pool.call.wait_for(format!("image {name} to be there"), grace, poll, look)? {
            Some(_) => Ok(()),
            None => remove_left_over(pool, name).map(drop),
        }
    });
    let released = deleter.unlock_own(target);
    removed.and(released)
}

/// Whether the image of this id exists. If not, removes the object that a lock may have left behind as its
/// header, since the image was deleted meanwhile: ids are never reused, so it stays absent.
pub(crate) fn exists_or_cleared(pool: &Pool<'_>, image: &str) -> Result<bool> {
    let exists = pool.info(ImageRef::Id(image))?.is_some();
    if !exists {
        pool.remove_lockable(LockTarget::Header(image))?;
    }
    Ok(exists)
}

/// Removes an image, and tries again as long as a client watches it: for half a minute the cluster counts a
/// killed client as alive, and a killed `rbd rm` was such a client.
pub(crate) fn insist(
    pool: &Pool<'_>,
    image: &str,
    mut remove: impl FnMut() -> Result<Removed>,
) -> Result<Removed> {
    let timing = pool.timing();
    let what = format!("the clients of image {image} to close it or to be forgotten");
    let removed = pool.call.wait_for(what, timing.removal_repeats, timing.removal_pause, || {
        let removed = remove()?;
        Ok((removed != Removed::Watched).then_some(removed))
    })?;
    Ok(removed.unwrap_or(Removed::Watched))
}

/// The refusal of an image whose removal was interrupted, and whose client is not forgotten yet.
pub(crate) fn interrupted() -> Error {
    Error::unavailable(
        "its removal was interrupted a moment ago: try again, it can go on half a minute from now at the \
         latest",
    )
}
