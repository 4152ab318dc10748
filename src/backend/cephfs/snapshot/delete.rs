//! Deleting a snapshot: it is marked as deleted, and from then on its ID means nothing. The snapshot itself
//! goes when no volume [shares](share) it and no copy of it is being made; then its entry goes, and the
//! subvolume, if that was retained only for it.

use crate::backend::Deleted;
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::State;
use crate::backend::cephfs::names;
use crate::backend::cephfs::snapshot::find::{self, new_entry};
use crate::backend::cephfs::subvolumes::SnapshotRemoved;
use crate::backend::cephfs::volumes::{delete, share};
use crate::error::Result;
use crate::ids::SnapshotId;

/// Deletes a snapshot.
pub(crate) fn delete(fs: &Fs<'_>, id: &SnapshotId) -> Result<Deleted> {
    let (snapshot, name) = (names::snapshot(&id.snapshot), fs.snapshot_name(id.name_key()));
    let path = fs.snapshot_path(&id.source, &snapshot);
    let claim = name.find()?.filter(|claim| claim.of == path);
    let known = fs.index().get(&path)?;
    let is_known = match &known {
        Some(entry) => entry.state != State::Deleted,
        None => fs.subvolumes().has_snapshot(&id.source, &snapshot)?,
    };
    if is_known {
        let entry = known.unwrap_or_else(|| new_entry(fs, None));
        fs.index().set(&path, &entry.become_state(State::Deleted, &fs.context.identity.tag))?;
    }
    finish(fs, &id.source, &snapshot)?;
    match (&claim, is_known) {
        (Some(claim), true) => name.give_back(claim)?,
        // It was gone before, so another controller may be about to claim the name.
        (Some(claim), false) => name.release(claim)?,
        (None, _) => {}
    }
    Ok(if is_known { Deleted::Gone } else { Deleted::Absent })
}

/// Removes a snapshot that no request has asked for since it was begun. It is marked here, as a deletion by
/// its ID would also mark one that a request has finished meanwhile.
pub(crate) fn remove_unfinished(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> Result<()> {
    let (path, timing) = (fs.snapshot_path(subvolume, snapshot), &fs.context.timing);
    let entry = fs.index().get(&path)?.filter(|entry| entry.is_abandoned(timing.abandoned));
    let Some((entry, key_and_drawn)) = entry.zip(names::in_snapshot(snapshot)) else { return Ok(()) };
    fs.index().set(&path, &entry.become_state(State::Deleted, &fs.context.identity.tag))?;
    delete(fs, &find::snapshot(fs, subvolume, key_and_drawn, &entry).id).map(drop)
}

/// Removes a snapshot that is marked as deleted, and its entry. It stays, for the sweep, while volumes share
/// it or copies of it are made.
pub(crate) fn finish(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> Result<()> {
    if share::is_shared(fs, subvolume, snapshot)?
        || fs.subvolumes().remove_snapshot(subvolume, snapshot)? == SnapshotRemoved::HasCopies
    {
        return Ok(());
    }
    fs.index().remove(&fs.snapshot_path(subvolume, snapshot))?;
    let volume = fs.index().get(&fs.path(subvolume))?;
    match volume.filter(|entry| entry.state == State::Deleted) {
        Some(entry) => delete::finish(fs, subvolume, &entry),
        None => Ok(()),
    }
}
