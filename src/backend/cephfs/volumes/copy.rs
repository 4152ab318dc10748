//! Copies of snapshots and volumes. The manager makes them, file by file, which may take hours; a call waits
//! for that without a worker, within its deadline.
//!
//! Nothing can be written to a clone before it is complete, so the entry in the index has the request, and
//! the snapshot that is copied. A repeated request takes the entry over, whichever controller began it, and
//! waits for the same clone. A volume is copied from a transient snapshot, which is removed when the copy is
//! whole.

use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, SnapshotPath, State};
use crate::backend::cephfs::subvolumes::{Begun, CloneState, NewClone, SnapshotRemoved};
use crate::backend::cephfs::volumes::find;
use crate::backend::cephfs::volumes::share::difference;
use crate::backend::cephfs::{names, snapshot};
use crate::backend::{NewVolume, Origin};
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place};

/// The snapshot to copy, and its size in bytes; None for an empty volume. `object` is the name of the copy.
pub(crate) fn find_source(fs: &Fs<'_>, new: &NewVolume, object: &str) -> Result<Option<(SnapshotPath, u64)>> {
    let Some((_, origin)) = &new.source else { return Ok(None) };
    let place = match origin {
        Origin::Snapshot(id) => &id.place,
        Origin::Volume(id) => &id.place,
    };
    refuse_elsewhere(fs, place)?;
    let (there, group) = (fs.in_group(&place.namespace), place.namespace.clone());
    Ok(Some(match origin {
        Origin::Snapshot(id) => {
            let (subvolume, snapshot) = (id.source.clone(), names::snapshot(&id.snapshot));
            (SnapshotPath { group, subvolume, snapshot }, snapshot::existing(&there, id)?.size)
        }
        Origin::Volume(id) => {
            let found = find::existing(&there, id)?;
            let size = found.subvolume.size.unwrap_or_default();
            if let Some(of) = found.entry.and_then(|entry| entry.shares) {
                return Ok(Some((of, size)));
            }
            let snapshot = names::transient(&fs.context.identity.tag, key_and_drawn(object)?);
            let subvolume = id.object.clone();
            (SnapshotPath { group, subvolume, snapshot }, size)
        }
    }))
}

/// `KEY-R` in `csi-vol-[SLUG-]KEY-R`.
fn key_and_drawn(object: &str) -> Result<&str> {
    let key = ids::undrawn(object).and_then(ids::volume_key);
    let from = key.and_then(|key| object.rfind(key));
    from.map(|from| &object[from..])
        .ok_or_else(|| Error::internal(format!("{object:?} is no name that cephlet draws")))
}

fn refuse_elsewhere(fs: &Fs<'_>, place: &Place) -> Result<()> {
    let canonical = |place: &Place| fs.context.canonical(place).cluster;
    if (place.backend.as_str(), canonical(place), place.pool.as_str())
        == (names::NAME, canonical(&fs.place), fs.place.pool.as_str())
    {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "its source is in {:?} of cluster {:?}, and a copy stays in the file system of its source: name that with \
         the parameters cluster and fsName",
        place.pool, place.cluster
    )))
}

/// A copy, or a volume that shares a snapshot, that the same request has begun. One that was not asked for
/// lately is left to the sweep, which may have read its entry already, and would remove what a request has
/// just taken over.
pub(crate) fn find_begun(fs: &Fs<'_>, new: &NewVolume) -> Result<Option<(String, Entry)>> {
    let is_recent = |entry: &Entry| entry.age() <= fs.context.timing.abandoned / 2;
    let is_same = |entry: &Entry| {
        let has_source = entry.copy_of.is_some() || entry.shares.is_some();
        has_source && entry.request.is_some() && difference(fs, entry, new).is_none()
    };
    let begun =
        fs.index().all()?.into_iter().filter(|(_, entry)| entry.state == State::Making && is_recent(entry));
    let here = begun.filter_map(|(path, entry)| Some((path.strip_prefix(&fs.path(""))?.to_string(), entry)));
    let mut same = here.filter(|(object, entry)| ids::undrawn(object) == Some(&new.object) && is_same(entry));
    Ok(same.next())
}

/// Makes the copy, or waits for it; then its size is what was asked for, not that of its source.
pub(crate) fn make(fs: &Fs<'_>, object: &str, entry: &Entry, pool: Option<&str>) -> Result<()> {
    let Some(SnapshotPath { group, subvolume, snapshot }) = &entry.copy_of else {
        return Err(Error::internal("nothing is said of what it is a copy of"));
    };
    let (subvolumes, timing) = (fs.subvolumes(), &fs.context.timing);
    let new = NewClone { group, source: subvolume, snapshot, pool };
    let (mut is_second, mut shown) = (false, String::new());
    let mut look = || match subvolumes.clone_state(object)? {
        CloneState::Complete => Ok(Some(())),
        CloneState::Absent => begin(fs, object, new).map(|()| None),
        CloneState::Unfinished(state) => {
            if shown != state {
                log::info!("the copy of {subvolume}@{snapshot} to {object} is {state}");
                shown = state;
            }
            Ok(None)
        }
        CloneState::Failed(why) if is_second => {
            Err(Error::internal(format!("the manager could not copy it: {why}")))
        }
        CloneState::Failed(why) => {
            log::warn!(
                "the copy of {subvolume}@{snapshot} to {object} has failed, and is begun again: {why}"
            );
            is_second = true;
            subvolumes.remove_unfinished(object).map(|()| None)
        }
    };
    let what = format!("the manager to copy {subvolume}@{snapshot} to {object}");
    // A manager that dies never answers. The next look asks its successor, until the client's deadline.
    let patient =
        || look().or_else(|error| if error.kind() == Kind::Timeout { Ok(None) } else { Err(error) });
    if fs.call.wait_for(what, timing.copy_wait, timing.copy_look, patient)?.is_none() {
        return Err(Error::unavailable("it is still being copied: try again"));
    }
    match subvolumes.resize(object, entry.size)? {
        true => Ok(()),
        false => Err(Error::unavailable("it was removed during this call: try again")),
    }
}

fn begin(fs: &Fs<'_>, object: &str, new: NewClone<'_>) -> Result<()> {
    if names::tag_of_transient(new.snapshot).is_some() {
        fs.in_group(new.group).subvolumes().take_snapshot(new.source, new.snapshot)?;
    }
    match fs.subvolumes().begin_clone(object, new)? {
        Begun::Yes | Begun::NotYet => Ok(()),
        Begun::NoGroup => fs.subvolumes().ensure_group(),
        // Another controller that has taken the entry over may have finished the copy, and tidied up.
        Begun::NoSource => match fs.subvolumes().clone_state(object)? {
            CloneState::Absent => Err(Error::not_found("its source was deleted meanwhile")),
            _ => Ok(()),
        },
    }
}

/// Removes what there is of a copy that is not made any more, if the manager does not copy to it.
pub(crate) fn remove_begun(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    match fs.subvolumes().clone_state(object)? {
        CloneState::Unfinished(state) => {
            return Err(Error::unavailable(format!("{object} is still being copied: {state}")));
        }
        CloneState::Complete => fs.subvolumes().remove(object)?,
        CloneState::Failed(_) => fs.subvolumes().remove_unfinished(object)?,
        CloneState::Absent => {}
    }
    remove_transient(fs, entry).map(drop)
}

/// Removes what was made for a copy only, once the copy is a volume: its entry says so until then.
pub(crate) fn tidy(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    if entry.copy_of.is_none() || !remove_transient(fs, entry)? {
        return Ok(());
    }
    let path = fs.path(object);
    match fs.index().get(&path)?.filter(|now| now.state == State::Whole) {
        Some(now) => fs.index().set(&path, &now.tidied()),
        None => Ok(()),
    }
}

/// Removes the transient snapshot that a volume was copied from. False: the manager still needs it.
pub(crate) fn remove_transient(fs: &Fs<'_>, entry: &Entry) -> Result<bool> {
    let is_transient = |of: &&SnapshotPath| names::tag_of_transient(&of.snapshot).is_some();
    let Some(of) = entry.copy_of.as_ref().filter(is_transient) else { return Ok(true) };
    let removed = fs.in_group(&of.group).subvolumes().remove_snapshot(&of.subvolume, &of.snapshot)?;
    Ok(removed != SnapshotRemoved::HasCopies)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_transient_snapshot_of_a_copy_has_its_digits() {
        for object in ["csi-vol-web-abcdefghij234-zyxw7654", "csi-vol-abcdefghij234-zyxw7654"] {
            assert_eq!(key_and_drawn(object).unwrap(), "abcdefghij234-zyxw7654");
        }
        assert!(key_and_drawn("by-hand").is_err());
    }
}
