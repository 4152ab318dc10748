//! Deleting a snapshot: the snapshot first, then its entry and the claim of its name, then the subvolume if
//! it was retained only for it.

use crate::backend::Deleted;
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::State;
use crate::backend::cephfs::names;
use crate::backend::cephfs::subvolumes::SnapshotRemoved;
use crate::backend::cephfs::volumes::delete::finish;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;

/// Deletes a snapshot that no unfinished copy reads.
pub(crate) fn delete(fs: &Fs<'_>, id: &SnapshotId) -> Result<Deleted> {
    let (snapshot, name) = (names::snapshot(&id.snapshot), fs.snapshot_name(id.name_key()));
    let path = fs.snapshot_path(&id.source, &snapshot);
    let claim = name.find()?.filter(|claim| claim.of == path);
    let removed = fs.subvolumes().remove_snapshot(&id.source, &snapshot)?;
    if removed == SnapshotRemoved::HasCopies {
        return Err(Error::precondition("copies are being made of it: wait for them, or delete them"));
    }
    fs.index().remove(&path)?;
    match (&claim, removed) {
        (Some(claim), SnapshotRemoved::Gone) => name.give_back(claim)?,
        // It was gone before, so another controller may be about to claim the name.
        (Some(claim), _) => name.release(claim)?,
        (None, _) => {}
    }
    if let Some(entry) = fs.index().get(&fs.path(&id.source))?.filter(|entry| entry.state == State::Deleted) {
        finish(fs, &id.source, &entry)?;
    }
    Ok(if removed == SnapshotRemoved::Gone { Deleted::Gone } else { Deleted::Absent })
}
