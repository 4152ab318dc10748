//! Deleting a snapshot.

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::remove::remove_retained;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::find::find_in;
use crate::backend::rbd::snapshot::name_lock;
use crate::backend::rbd::tool::{ImageRef, Removed};
use crate::backend::{Deleted, Interrupted};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

/// Deletes a snapshot: the snapshot first, then its name, then perhaps the image that was only retained for
/// it.
pub(crate) fn delete(context: &Context, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
    let at = context.locate(&id.place, secrets)?;
    let deleted = delete_in(&context.pool(call, &at), id);
    deleted.map_err(|error| error.context(format_args!("delete snapshot {id}")))
}

fn delete_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Deleted> {
    let owner = name_lock::owner(pool, &id.snapshot, &id.source)?;
    let deleted = match pool.remove_snapshot(ImageRef::Id(&id.source), &names::snapshot(&id.snapshot))? {
        Removed::Gone => Deleted::Gone,
        Removed::Absent => Deleted::Absent,
        Removed::Watched | Removed::HasSnapshots => {
            return Err(Error::precondition("it is in use: look at the image with `rbd status`"));
        }
    };
    pool.memory().snapshots.forget(id);
    name_lock::release(pool, &id.snapshot, &owner)?;
    // Asked afterwards: its volume may be deleted at this moment.
    remove_retained(pool, &id.source)?;
    Ok(deleted)
}

/// Finishes a deletion that was interrupted, if the snapshot is gone: its name is given back, and the image
/// goes that was only retained for it.
pub(crate) fn finish_deletion(
    context: &Context,
    call: &Call,
    id: &SnapshotId,
    secrets: &Secrets,
) -> Result<Interrupted> {
    let at = context.locate(&id.place, secrets)?;
    let finished = finish_deletion_in(&context.pool(call, &at), id);
    finished.map_err(|error| error.context(format_args!("finish the deletion of snapshot {id}")))
}

fn finish_deletion_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Interrupted> {
    let owner = name_lock::owner(pool, &id.snapshot, &id.source)?;
    if find_in(pool, id)?.is_some() {
        return Ok(Interrupted::Whole);
    }
    name_lock::await_snapshot(pool, &id.snapshot, &owner)?;
    name_lock::release(pool, &id.snapshot, &owner)?;
    remove_retained(pool, &id.source)?;
    Ok(Interrupted::Gone)
}
