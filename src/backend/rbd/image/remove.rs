//! Removing an image, in the way that its snapshots and its size ask for: removed at once, moved to the
//! trash, or retained under another name.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::deletion_lock::{self, Acquired, DeletionLock};
use crate::backend::rbd::image::internal;
use crate::backend::rbd::image::parent::{check_parent_later, check_retained_in, check_retained_later};
use crate::backend::rbd::image::removal::remove_for_good;
use crate::backend::rbd::image::retain::{
    names_of_live, needed_by, remove_transient, remove_trashed, retain,
};
use crate::backend::rbd::image::trash::{
    Restored, is_large, move_to_trash, purge_moved, restore_snapshotted,
};
use crate::backend::rbd::image::watchers::{MayBeMirrored, refuse_watched};
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockTarget, Removed, SnapshotInfo};
use crate::dispatch::Held;
use crate::error::{Error, Result};
use crate::jobs::RETRY;

/// How often an image is looked at again that changes meanwhile.
const ATTEMPTS: usize = 4;

/// What becomes of an image whose snapshots need it. One that only clones need is retained in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WithSnapshots {
    /// It is retained under another name.
    Retain,
    /// It is not removed.
    Refuse,
}

/// On which terms an image is removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub lock: DeletionLock,
    pub with_snapshots: WithSnapshots,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The image is no volume any more.
    Done,
    /// The image is not what it was: it has to be looked at again.
    Changed,
}

/// Removes an image. The caller holds its deletion lock.
pub(crate) fn remove_image(pool: &Pool<'_>, info: ImageInfo, terms: Terms) -> Result<()> {
    let parent = info.parent.clone();
    let removed = remove_unchanged(pool, info, terms);
    // Also of one that failed: it may be killed between the parent and the rest.
    check_parent_later(pool, parent.as_ref());
    removed
}

/// Removes an image that others may be changing.
fn remove_unchanged(pool: &Pool<'_>, mut info: ImageInfo, terms: Terms) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if try_remove_image(pool, &info, terms)? == Attempt::Done {
            return Ok(());
        }
        // By the name that may be removed: the id would also find it in the trash, when the name means
        // another.
        info = match pool.info(ImageRef::Name(&info.name))? {
            Some(now) if now.id == info.id => now,
            _ => return Ok(()),
        };
    }
    Err(Error::unavailable("others change it at this moment: try again"))
}

fn try_remove_image(pool: &Pool<'_>, info: &ImageInfo, terms: Terms) -> Result<Attempt> {
    if info.snapshots == 0 {
        return try_remove_plain(pool, info, terms);
    }
    let Some(snapshots) = pool.snapshots(ImageRef::Id(&info.id))? else { return Ok(Attempt::Done) };
    // Those by which it is mirrored go with it, and so does its copy in another cluster.
    if snapshots.is_empty() && info.mirroring.is_some() {
        return try_remove_plain(pool, info, terms);
    }
    let live = names_of_live(&snapshots);
    if remove_transient(pool, &info.id, &live)? > 0 {
        return Ok(Attempt::Changed);
    }
    if names::id_of_retained(&info.name) == Some(&info.id) {
        if remove_trashed(pool, &info.id, &snapshots)? > 0 {
            return Ok(Attempt::Changed);
        }
        deletion_lock::release(pool, &info.id);
        return Ok(Attempt::Done);
    }
    if terms.with_snapshots == WithSnapshots::Refuse && !live.is_empty() {
        return Err(needed_by(&live));
    }
    retain(pool, info, terms.lock)?;
    if live.is_empty() {
        // Perhaps no clone needs it either.
        check_retained_later(pool, &info.id);
    }
    Ok(Attempt::Done)
}

/// Removes an image that has no snapshots.
fn try_remove_plain(pool: &Pool<'_>, info: &ImageInfo, terms: Terms) -> Result<Attempt> {
    match is_large(info) {
        true => try_move_to_trash(pool, info, terms),
        false => try_remove_by_name(pool, &info.name, &info.id, terms.lock),
    }
}

/// Changed if the image had to be restored, as it has snapshots by now.
fn try_move_to_trash(pool: &Pool<'_>, info: &ImageInfo, terms: Terms) -> Result<Attempt> {
    let moved = move_to_trash(pool, info, terms.lock)?;
    if terms.with_snapshots == WithSnapshots::Refuse && restore_snapshotted(pool, info)? == Restored::Done {
        return Ok(Attempt::Changed);
    }
    purge_moved(pool, info, moved).map(|()| Attempt::Done)
}

/// Changed if the image has snapshots after all, or was in use for a moment only.
pub(crate) fn try_remove_by_name(
    pool: &Pool<'_>,
    name: &str,
    image: &str,
    lock: DeletionLock,
) -> Result<Attempt> {
    match lock.under(pool, |pool| remove_for_good(pool, name))? {
        Removed::Gone => Ok(Attempt::Done),
        // An earlier removal may have been killed half way.
        Removed::Absent => match pool.purge(image)? {
            Removed::Watched => Err(interrupted()),
            _ => Ok(Attempt::Done),
        },
        Removed::HasSnapshots => Ok(Attempt::Changed),
        Removed::Watched => refuse_watched(pool, name, MayBeMirrored::Yes).map(|()| Attempt::Changed),
    }
}

/// Called when a retained image may have lost its last snapshot or clone: removes it if so.
pub(crate) fn remove_retained(pool: &Pool<'_>, image: &str) -> Result<()> {
    let _working = begin_removal(pool, image)?;
    if is_referenced(pool, image, &names::retained(image))? {
        return Ok(());
    }
    // Two removals at once would leave a header behind, which the slower one locks when it is gone.
    let Acquired::Locked(lock) = deletion_lock::acquire(pool, image)? else {
        check_retained_in(pool, image, RETRY);
        return Ok(());
    };
    let removed = match pool.info(ImageRef::Id(image))? {
        Some(info) => remove_image(pool, info, Terms { lock, with_snapshots: WithSnapshots::Retain }),
        // Taking the lock has made an object where no image is.
        None => pool.remove_lockable(LockTarget::Header(image)),
    };
    removed.inspect_err(|_| deletion_lock::release(pool, image))
}

/// Removes what a killed creation has left: a name without an image, which only a removal by name takes away.
/// One controller at a time does so and looks once more, as another may have done it, and made the volume.
pub(crate) fn remove_bare_name(pool: &Pool<'_>, name: &str) -> Result<()> {
    let target = LockTarget::BareName(name);
    let Acquired::Locked(lock) = deletion_lock::acquire_on(pool, target, &format!("the name {name}"))? else {
        return Err(deletion_lock::held_elsewhere(pool.context));
    };
    let removed = lock.under(pool, |pool| match pool.info(ImageRef::Name(name))? {
        Some(_) => Ok(()),
        None => remove_for_good(pool, name).map(drop),
    });
    let released = deletion_lock::unlock_own(pool, target);
    removed.and(released)
}

/// Begins to remove an image, as one in this daemon at a time does: the deletion lock does not keep out what
/// is under way here.
pub(crate) fn begin_removal(pool: &Pool<'_>, image: &str) -> Result<Held> {
    internal::lock(pool, &names::retained(image))
}

/// Whether anything needs a retained image: it has a clone, or a snapshot that neither a killed copy nor the
/// killed removal of a clone has left. Once nothing does, that stays so.
fn is_referenced(pool: &Pool<'_>, image: &str, name: &str) -> Result<bool> {
    let info = pool.info(ImageRef::Id(image))?;
    let Some(info) = info.filter(|info| info.name == name) else { return Ok(true) };
    if info.snapshots == 0 {
        return Ok(false);
    }
    let snapshots = pool.snapshots(ImageRef::Id(image))?.unwrap_or_default();
    let is_needed = |it: &SnapshotInfo| !it.trashed && !names::is_transient(&it.name);
    Ok(snapshots.iter().any(is_needed) || pool.has_clones(name)?)
}

/// The refusal of an image whose removal was interrupted, and whose client is not forgotten yet.
pub(crate) fn interrupted() -> Error {
    Error::unavailable(
        "its removal was interrupted a moment ago: try again, it can go on half a minute from now at the \
         latest",
    )
}
