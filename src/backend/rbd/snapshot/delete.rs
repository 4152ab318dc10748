//! Deleting a snapshot.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::retain::check_retained;
use crate::backend::rbd::image::retained_checks::check_retained_later;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::create::claimed_as;
use crate::backend::rbd::snapshot::find::find_in;
use crate::backend::rbd::tool::{ImageRef, Removed};
use crate::backend::{Deleted, Interrupted};
use crate::error::{Kind, Result};
use crate::ids::SnapshotId;

/// Deletes a snapshot: the snapshot first, then the claim of its name, then the image if it was retained only
/// for it.
pub(crate) fn delete(pool: &Pool<'_>, id: &SnapshotId) -> Result<Deleted> {
    if pool.lets_go(format_args!("snapshot {id}"))? {
        return Ok(Deleted::Absent);
    }
    delete_in(pool, id).map_err(|error| error.context(format_args!("delete snapshot {id}")))
}

fn delete_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Deleted> {
    let name = pool.snapshot_name(id.name_key());
    let claim = name.find()?.filter(|claim| claim.of == claimed_as(id));
    let removed = pool.remove_snapshot(ImageRef::Id(&id.source), &names::snapshot(&id.snapshot))?;
    pool.memory().snapshots.forget(id);
    let deleted = if removed == Removed::Gone { Deleted::Gone } else { Deleted::Absent };
    match (deleted, &claim) {
        (Deleted::Gone, Some(claim)) => name.give_back(claim)?,
        // The snapshot was gone before, so another controller may be about to claim the name.
        (Deleted::Absent, Some(claim)) => name.release(claim)?,
        (_, None) => {}
    }
    if deleted == Deleted::Absent {
        remove_from_trash(pool, id)?;
    }
    // Checked last: its volume may be deleted now.
    match check_retained(pool, &id.source) {
        // The image is in use. The job says so, and goes on.
        Err(error) if error.kind() == Kind::Precondition => check_retained_later(pool, &id.source),
        checked => checked?,
    }
    Ok(deleted)
}

/// A deletion that was killed may have left the snapshot in its image's trash, where it stays as long as
/// clones read from it.
fn remove_from_trash(pool: &Pool<'_>, id: &SnapshotId) -> Result<()> {
    let name = names::snapshot(&id.snapshot);
    let all = pool.snapshots(ImageRef::Id(&id.source))?.unwrap_or_default();
    let mut trashed = all.iter().filter(|it| it.trashed && it.name == name);
    trashed.try_for_each(|it| pool.remove_snapshot_by_number(&id.source, it.id).map(drop))
}

/// Finishes a deletion that was interrupted, if the snapshot is gone: gives its name back, and removes the
/// image if it was retained only for it.
pub(crate) fn finish_deletion(pool: &Pool<'_>, id: &SnapshotId) -> Result<Interrupted> {
    if pool.lets_go(format_args!("snapshot {id}"))? {
        return Ok(Interrupted::Gone);
    }
    let finish = || match find_in(pool, id)? {
        Some(_) => Ok(Interrupted::Whole),
        None => delete_in(pool, id).map(|_| Interrupted::Gone),
    };
    finish().map_err(|error: crate::error::Error| {
        error.context(format_args!("finish the deletion of snapshot {id}"))
    })
}
