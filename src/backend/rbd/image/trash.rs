//! Large images, whose removal takes too long for a call: they are moved to the trash, and purged by the
//! cluster's manager, or by this daemon if there is none.
//!
//! Another controller may take a snapshot between the look at an image and its move. Nobody purges an image
//! with snapshots, but they cannot be used in the trash either. So a job looks at the image until it is gone,
//! and one with snapshots is restored and retained for them. What the daemon did not live to look at the next
//! start's sweep looks at.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::deletion_lock::DeletionLock;
use crate::backend::rbd::image::removal::restore_wrong;
use crate::backend::rbd::image::retain::has_live_snapshots;
use crate::backend::rbd::image::trash_mark;
use crate::backend::rbd::image::watchers::{MayBeMirrored, refuse_watched};
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::tool::{Changed, ImageInfo, ManagerTask, Parent, Renamed, TrashSource};
use crate::error::{Error, Result};

/// Images with more bytes are not removed while a call waits: that is 1024 objects of the usual 4 MiB.
const LARGE: u64 = 4 << 30;

/// Whether an image is too large to be removed while a call waits.
pub(crate) fn is_large(info: &ImageInfo) -> bool {
    info.size > LARGE
}

/// Whether an image was restored from the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Restored {
    /// It was: it has snapshots.
    Done,
    /// There was no need to, or it is not in the trash.
    NotNeeded,
}

/// Whether a purge was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purge {
    /// It was, and the image is no volume any more.
    Scheduled,
    /// The image is not in the trash.
    NotInTrash,
}

/// Moves an image to the trash, [marked](trash_mark) as deleted, unless it is in use.
pub(crate) fn move_to_trash(pool: &Pool<'_>, info: &ImageInfo, lock: DeletionLock) -> Result<Changed> {
    // The trash takes images that are in use.
    refuse_watched(pool, &info.name, MayBeMirrored::as_said_by(info))?;
    trash_mark::mark(pool, &info.id)?;
    lock.under(pool, |pool| pool.move_to_trash(&info.name))
}

/// Sees to the purge of an image that was just moved. The purge is by id and says whether the image is in the
/// trash: if it is not, another was moved in its place, and is restored.
pub(crate) fn purge_moved(pool: &Pool<'_>, info: &ImageInfo, moved: Changed) -> Result<()> {
    match (schedule_purge(pool, &info.id, &info.name, info.parent.as_ref())?, moved) {
        // Also if it was moved before, by an attempt that died.
        (Purge::Scheduled, _) => Ok(()),
        (Purge::NotInTrash, Changed::Done) => restore_wrong(pool, &info.name, &info.id),
        (Purge::NotInTrash, Changed::Absent) => {
            Err(Error::unavailable(format!("image {:?} is gone at this moment: try again", info.name)))
        }
    }
}

/// Has an image in the trash, which has this name there, purged by whoever can; `parent` as far as it is
/// known.
pub(crate) fn schedule_purge(
    pool: &Pool<'_>,
    image: &str,
    name: &str,
    parent: Option<&Parent>,
) -> Result<Purge> {
    let (at, image_id, name) = (pool.at.clone(), image.to_string(), name.to_string());
    let jobs = &pool.context.jobs;
    match pool.purge_by_manager(image)? {
        ManagerTask::Accepted => {
            let pause = pool.timing().first_look_at_trash;
            jobs.add(pause, Job::FollowPurge { at, image: image_id, name, parent: parent.cloned(), pause });
        }
        ManagerTask::Absent => return Ok(Purge::NotInTrash),
        ManagerTask::NoManager if is_in_trash(pool, image)? => {
            jobs.add_now(Job::Purge { at, image: image_id, name });
        }
        ManagerTask::NoManager => return Ok(Purge::NotInTrash),
    }
    Ok(Purge::Scheduled)
}

/// Whether the trash has the image, and not for its clones.
pub(crate) fn is_in_trash(pool: &Pool<'_>, image: &str) -> Result<bool> {
    Ok(pool.trash()?.iter().any(|it| it.id == image && it.source != TrashSource::Clones))
}

/// Whether the image was put into the trash by somebody else than a controller.
pub(crate) fn is_put_aside(pool: &Pool<'_>, image: &str) -> Result<bool> {
    match pool.trash()?.iter().find(|it| it.id == image) {
        Some(trashed) => trash_mark::is_marked(pool, trashed).map(|is_ours| !is_ours),
        None => Ok(false),
    }
}

/// Restores an image from the trash if it has snapshots: they were taken between the last look and the move,
/// and would keep it there for good.
pub(crate) fn restore_snapshotted(pool: &Pool<'_>, info: &ImageInfo) -> Result<Restored> {
    if !has_live_snapshots(pool, &info.id)? {
        return Ok(Restored::NotNeeded);
    }
    match pool.restore_from_trash(&info.id, &info.name)? {
        Renamed::Done => Ok(Restored::Done),
        Renamed::Absent => Ok(Restored::NotNeeded),
        Renamed::Taken => Err(Error::precondition(format!(
            "it has a new snapshot, but is in the trash, and another image has its name: give it another one with \
             `rbd trash restore {}/{} --image NAME`",
            pool.at.spec(),
            info.id
        ))),
    }
}
