//! Deleting a snapshot.

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::retain::remove_retained;
use crate::backend::rbd::snapshot::find::{all_named, find_in};
use crate::backend::rbd::snapshot::name_lock::{self, NameOwner};
use crate::backend::rbd::tool::{RemovedByNumber, SnapshotInfo};
use crate::backend::{Deleted, Interrupted};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

/// Deletes a snapshot, by its number: never a later one of its name. The snapshot first, then its name, then
/// perhaps the image that was only retained for it.
pub(crate) fn delete(context: &Context, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
    let at = context.locate(&id.place, secrets)?;
    if context.lets_go(call, &at, format_args!("snapshot {id}"))? {
        return Ok(Deleted::Absent);
    }
    let deleted = delete_in(&context.pool(call, &at), id);
    deleted.map_err(|error| error.context(format_args!("delete snapshot {id}")))
}

/// Who has the name is asked first: the claim of a snapshot that is seen afterwards is its own.
fn delete_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Deleted> {
    let owner = name_lock::owner(pool, &id.snapshot, &id.source)?;
    let named = all_named(pool, &id.source, &id.snapshot)?;
    let deleted = match named.iter().find(|it| is_meant(id, it)) {
        Some(snapshot) => remove(pool, id, snapshot)?,
        None => Deleted::Absent,
    };
    pool.memory().snapshots.forget(id);
    match deleted {
        Deleted::Gone => name_lock::release(pool, &id.snapshot, &owner)?,
        Deleted::Absent => release_left_over(pool, id, &owner, &named)?,
    }
    // Asked afterwards: its volume may be deleted at this moment.
    remove_retained(pool, &id.source)?;
    Ok(deleted)
}

/// Whether an ID means this one of the snapshots that were taken by its name. Of those in the trash, where
/// a deletion that was killed leaves them, only one that it names by its number.
fn is_meant(id: &SnapshotId, snapshot: &SnapshotInfo) -> bool {
    id.means(&snapshot.id.to_string()) && (!snapshot.trashed || id.incarnation.is_some())
}

/// Removes a snapshot. One that is in the trash was deleted before; there it stays as long as clones read
/// from it.
fn remove(pool: &Pool<'_>, id: &SnapshotId, snapshot: &SnapshotInfo) -> Result<Deleted> {
    let removed = pool.remove_snapshot_by_number(&id.source, snapshot.id)?;
    match removed {
        RemovedByNumber::Gone if !snapshot.trashed => return Ok(Deleted::Gone),
        RemovedByNumber::Protected if !snapshot.trashed => {}
        _ => return Ok(Deleted::Absent),
    }
    let exact = SnapshotId { incarnation: Some(snapshot.id.to_string()), ..id.clone() };
    if find_in(pool, &exact)?.is_none() {
        // Others have deleted it since it was seen.
        return Ok(Deleted::Absent);
    }
    Err(Error::precondition(format!(
        "snapshot {} of image {} in {} is protected, perhaps for clones of version 1: delete or flatten them, \
         then `rbd snap unprotect` it",
        snapshot.name, id.source, pool.at
    )))
}

/// Gives back the name of a snapshot that is gone, unless a later one has it.
fn release_left_over(
    pool: &Pool<'_>,
    id: &SnapshotId,
    owner: &NameOwner,
    named: &[SnapshotInfo],
) -> Result<()> {
    match named.iter().any(|it| !it.trashed && !is_meant(id, it)) {
        true => Ok(()),
        false => name_lock::release_left_over(pool, &id.snapshot, &id.source, owner),
    }
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
    if context.lets_go(call, &at, format_args!("snapshot {id}"))? {
        return Ok(Interrupted::Gone);
    }
    let finished = finish_deletion_in(&context.pool(call, &at), id);
    finished.map_err(|error| error.context(format_args!("finish the deletion of snapshot {id}")))
}

fn finish_deletion_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Interrupted> {
    let owner = name_lock::owner(pool, &id.snapshot, &id.source)?;
    let named = all_named(pool, &id.source, &id.snapshot)?;
    if named.iter().any(|it| !it.trashed && is_meant(id, it)) {
        return Ok(Interrupted::Whole);
    }
    release_left_over(pool, id, &owner, &named)?;
    remove_retained(pool, &id.source)?;
    Ok(Interrupted::Gone)
}
