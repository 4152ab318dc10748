//! Removing an image, in the way that its snapshots and its size ask for: removed at once, moved to the trash,
//! or retained under another name.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::deletion_lock::DeletionLock;
use crate::backend::rbd::image::parent::check_parent_later;
use crate::backend::rbd::image::retain::{live_snapshots, needed_by, remove_transient, retain};
use crate::backend::rbd::image::trash::{
    Restored, is_large, move_to_trash, purge_moved, restore_snapshotted,
};
use crate::backend::rbd::image::watchers::refuse_watched;
use crate::backend::rbd::jobs::preempt::preempt_flatten;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Removed};
use crate::error::{Error, Result};

/// How often an image is looked at again that changes meanwhile.
const ATTEMPTS: usize = 4;

/// What becomes of an image whose snapshots need it.
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
pub(crate) fn remove_image(pool: &Pool<'_>, mut info: ImageInfo, terms: Terms) -> Result<()> {
    preempt_flatten(pool, &info.id, &info.name)?;
    for _ in 0..ATTEMPTS {
        if try_remove_image(pool, &info, terms)? == Attempt::Done {
            check_parent_later(pool, info.parent.as_ref());
            return Ok(());
        }
        // By the name that may be removed: the id would also find it in the trash, when the name means another.
        info = match pool.info(ImageRef::Name(&info.name))? {
            Some(now) if now.id == info.id => now,
            _ => return Ok(()),
        };
    }
    Err(Error::unavailable("others change it at this moment: try again"))
}

fn try_remove_image(pool: &Pool<'_>, info: &ImageInfo, terms: Terms) -> Result<Attempt> {
    if info.snapshots == 0 {
        return if is_large(info) {
            try_move_to_trash(pool, info, terms)
        } else {
            try_remove_by_name(pool, &info.name, &info.id, terms.lock)
        };
    }
    let Some(live) = live_snapshots(pool, &info.id)? else { return Ok(Attempt::Done) };
    if remove_transient(pool, &info.id, &live)? > 0 {
        return Ok(Attempt::Changed);
    }
    match terms.with_snapshots {
        _ if live.is_empty() => try_remove_by_name(pool, &info.name, &info.id, terms.lock),
        _ if names::id_of_retained(&info.name) == Some(&info.id) => Ok(Attempt::Done),
        WithSnapshots::Retain => retain(pool, info, terms.lock).map(|()| Attempt::Done),
        WithSnapshots::Refuse => Err(needed_by(&live)),
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
    lock.check()?;
    match pool.remove(name)? {
        Removed::Gone => Ok(Attempt::Done),
        // A removal that its daemon did not survive was still under way, and may have ended half way.
        Removed::Absent => match pool.purge(image)? {
            Removed::Watched => Err(interrupted()),
            _ => Ok(Attempt::Done),
        },
        Removed::HasSnapshots => Ok(Attempt::Changed),
        Removed::Watched => refuse_watched(pool, name).map(|()| Attempt::Changed),
    }
}

/// Called when a snapshot of a retained image is deleted: removes the image if that was the last one.
pub(crate) fn remove_retained(pool: &Pool<'_>, image: &str) -> Result<()> {
    let terms = Terms { lock: DeletionLock::not_needed(), with_snapshots: WithSnapshots::Retain };
    match pool.info(ImageRef::Id(image))? {
        Some(info) if info.name == names::retained(image) => remove_image(pool, info, terms),
        _ => Ok(()),
    }
}

/// The refusal of an image whose removal was interrupted, and whose client is not forgotten yet.
pub(crate) fn interrupted() -> Error {
    Error::unavailable(
        "its removal was interrupted a moment ago: try again, it can go on half a minute from now at the \
         latest",
    )
}
