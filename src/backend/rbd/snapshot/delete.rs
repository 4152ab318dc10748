//! Deleting a snapshot.

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::remove::remove_retained;
use crate::backend::rbd::snapshot::find::{find_in, find_named};
use crate::backend::rbd::snapshot::name_lock::{self, NameOwner};
use crate::backend::rbd::tool::NumberedSnapshot;
use crate::backend::{Deleted, Interrupted};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

/// Deletes a snapshot, by its number: never a later one of its name. The snapshot first, then its name, then
/// perhaps the image that was only retained for it.
pub(crate) fn delete(context: &Context, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
    let at = context.locate(&id.place, secrets)?;
    let deleted = delete_in(&context.pool(call, &at), id);
    deleted.map_err(|error| error.context(format_args!("delete snapshot {id}")))
}

fn delete_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Deleted> {
    let owner = name_lock::owner(pool, &id.snapshot, &id.source)?;
    let deleted = match number_of(pool, id)? {
        Some(number) => remove(pool, id, number)?,
        None => Deleted::Absent,
    };
    pool.memory().snapshots.forget(id);
    match deleted {
        Deleted::Gone => name_lock::release(pool, &id.snapshot, &owner)?,
        Deleted::Absent => release_if_left(pool, id, &owner)?,
    }
    // Asked afterwards: its volume may be deleted at this moment.
    remove_retained(pool, &id.source)?;
    Ok(deleted)
}

/// The number of the snapshot that an ID means, which says that itself only where name and number were seen
/// together: whatever else has that number is not ours to delete. None if there is none.
fn number_of(pool: &Pool<'_>, id: &SnapshotId) -> Result<Option<u64>> {
    let known = pool.memory().snapshots.get(id).filter(|_| id.incarnation.is_some());
    match known {
        Some(known) => Ok(Some(known.id)),
        None => Ok(find_in(pool, id)?.map(|found| found.id)),
    }
}

fn remove(pool: &Pool<'_>, id: &SnapshotId, number: u64) -> Result<Deleted> {
    match pool.remove_numbered_snapshot(&id.source, number)? {
        NumberedSnapshot::Gone => return Ok(Deleted::Gone),
        NumberedSnapshot::Absent => return Ok(Deleted::Absent),
        NumberedSnapshot::Protected => {}
    }
    if find_in(pool, id)?.is_none() {
        // Deleted by others since it was seen, and kept in the trash for its clones.
        return Ok(Deleted::Absent);
    }
    Err(Error::precondition(
        "it is protected, perhaps for clones of version 1: delete or flatten them, then `rbd snap unprotect` it",
    ))
}

/// Gives back the name of a snapshot that is gone, unless a later one has it, or is about to.
fn release_if_left(pool: &Pool<'_>, id: &SnapshotId, owner: &NameOwner) -> Result<()> {
    if let NameOwner::Ours(_) = owner
        && find_named(pool, &id.source, &id.snapshot)?.is_some()
    {
        return Ok(());
    }
    name_lock::await_snapshot(pool, &id.snapshot, owner)?;
    name_lock::release(pool, &id.snapshot, owner)
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
    release_if_left(pool, id, &owner)?;
    remove_retained(pool, &id.source)?;
    Ok(Interrupted::Gone)
}
