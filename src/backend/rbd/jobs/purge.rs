//! Images in the trash: purged, or restored when they have snapshots.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::header_lock::deletion_lock;
use crate::backend::rbd::image::parent::check_any_parent_later;
use crate::backend::rbd::image::remove::remove_retained;
use crate::backend::rbd::image::retain::{live_snapshots, remove_transient};
use crate::backend::rbd::names::{self, OBJECT_KEY};
use crate::backend::rbd::tool::{ImageRef, Parent, Removed, Renamed};
use crate::error::{Error, Result};

/// What became of an image in the trash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is gone, or restored.
    Over,
    /// It is still there.
    StillInTrash,
}

/// Purges an image in the trash.
pub(crate) fn purge(pool: &Pool<'_>, image: &str, name: &str) -> Result<Outcome> {
    let parent = pool.info(ImageRef::Id(image))?.and_then(|info| info.parent);
    match pool.purge(image)? {
        Removed::Gone | Removed::Absent => {
            check_any_parent_later(pool, parent.as_ref());
            Ok(Outcome::Over)
        }
        Removed::Watched => {
            Err(Error::unavailable("it is in use, or its purge was interrupted a moment ago"))
        }
        Removed::HasSnapshots => restore_if_snapshotted(pool, image, name),
    }
}

/// Looks at an image in the trash that the cluster's manager is to purge. Its parent, as far as it is known,
/// is looked at when it is gone.
pub(crate) fn follow_purge(
    pool: &Pool<'_>,
    image: &str,
    name: &str,
    parent: &mut Option<Parent>,
) -> Result<Outcome> {
    let Some(info) = pool.info(ImageRef::Id(image))? else {
        check_any_parent_later(pool, parent.as_ref());
        return Ok(Outcome::Over);
    };
    *parent = info.parent;
    if info.snapshots == 0 { Ok(Outcome::StillInTrash) } else { restore_if_snapshotted(pool, image, name) }
}

/// Restores an image in the trash if it has snapshots that live, and retains it for them.
fn restore_if_snapshotted(pool: &Pool<'_>, image: &str, name: &str) -> Result<Outcome> {
    let Some(live) = live_snapshots(pool, image)? else { return Ok(Outcome::Over) };
    if live.iter().all(|snapshot| names::is_transient(snapshot)) {
        remove_transient(pool, image, &live)?;
        return Ok(Outcome::StillInTrash);
    }
    restore_retained(pool, image, name)?;
    deletion_lock::release(pool, image);
    // The last of them may be deleted since.
    remove_retained(pool, image).map(|()| Outcome::Over)
}

/// Restores an image from the trash as one that is retained.
fn restore_retained(pool: &Pool<'_>, image: &str, name: &str) -> Result<()> {
    let retained = names::retained(image);
    match pool.restore_from_trash(image, &retained)? {
        Renamed::Done => {
            log::warn!(
                "image {name:?} of {} got a snapshot while it was deleted: it is {retained:?}",
                pool.at
            );
        }
        // By an attempt that came no further; or by an operator, whose image it is then.
        Renamed::Absent => {}
        Renamed::Taken => {
            return Err(Error::precondition(format!(
                "its snapshots live, but the name {retained:?} is taken: look at that image and remove it"
            )));
        }
    }
    if names::id_of_retained(name).is_none() {
        pool.set_metadata(&retained, OBJECT_KEY, name)?;
    }
    Ok(())
}
