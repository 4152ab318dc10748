//! Taking a snapshot.
//!
//! The request's name is [claimed](crate::backend::ceph::claim) before the snapshot is taken, for one
//! subvolume and one snapshot, whose name is drawn. A repeated request finds that snapshot. If it is not
//! repeated, the entry *making*, which is written first, lets the sweep remove what was taken.

use crate::backend::ceph::claim::Description;
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::names;
use crate::backend::cephfs::snapshot::find::{self as taken, new_entry};
use crate::backend::cephfs::volumes::{find, share};
use crate::backend::creation_record::Placed;
use crate::backend::{NewSnapshot, Snapshot};
use crate::error::{Error, Result};
use crate::ids;

/// Takes the snapshot, or finds the one taken by the same request.
pub(crate) fn create(fs: &Fs<'_>, new: &NewSnapshot) -> Result<Snapshot> {
    let (subvolume, found) = (&new.source.object, find::existing(fs, &new.source)?);
    share::refuse(found.entry.as_ref(), "cannot have snapshots of its own: use that one")?;
    if let Some(taken) = find_claimed(fs, new)? {
        return Ok(taken);
    }
    let key_and_drawn = format!("{}-{}", new.key, ids::draw()?);
    let id = taken::id(fs, subvolume, &key_and_drawn);
    id.fits()?;
    let (snapshot, name) = (names::snapshot(&key_and_drawn), fs.snapshot_name(&new.key));
    let path = fs.snapshot_path(subvolume, &snapshot);
    let Some(share) = name.claim(&path, &Description::new(&new.name, Placed::default()))? else {
        return find_claimed(fs, new)?.ok_or_else(|| {
            Error::unavailable("another controller takes and deletes it during this call: try again")
        });
    };
    let placed = found.entry.map(|entry| entry.placed).unwrap_or_default();
    let entry = Entry { placed, ..new_entry(fs, Some(&found.subvolume)) };
    fs.index().set(&path, &entry.become_state(State::Making, &fs.context.identity.tag))?;
    let taken = fs.subvolumes().take_snapshot(subvolume, &snapshot);
    taken.map_err(|error| name.give_back_after(&share, error, || Ok(true)))?;
    fs.index().set(&path, &entry)?;
    match name.confirm(&share)? {
        true => Ok(taken::snapshot(fs, subvolume, &key_and_drawn, &entry)),
        // A caller may know of this one, so it stays.
        false => Err(Error::unavailable(format!(
            "it took so long that its name was claimed for another snapshot: try again, and delete snapshot {id} if \
             no client knows it"
        ))),
    }
}

/// The snapshot that the name is claimed for.
fn find_claimed(fs: &Fs<'_>, new: &NewSnapshot) -> Result<Option<Snapshot>> {
    let name = fs.snapshot_name(&new.key);
    let Some(claim) = name.find()? else { return Ok(None) };
    let claimed = || {
        let (group, rest) = claim.of.split_once('/')?;
        let (subvolume, snapshot) = rest.split_once('@')?;
        Some((group, subvolume, names::in_snapshot(snapshot)?))
    };
    let Some((group, subvolume, key_and_drawn)) = claimed() else {
        return Err(name.unreadable(&claim));
    };
    let there = &fs.in_group(group);
    let found = name.await_maker(&claim, || taken::find(there, subvolume, key_and_drawn))?;
    let Some(entry) = found else { return Ok(None) };
    let taken = taken::snapshot(there, subvolume, key_and_drawn, &entry);
    match taken.source.place == fs.place && taken.source.object == new.source.object {
        true => Ok(Some(taken)),
        false => Err(Error::already_exists(format!(
            "a snapshot of this name exists, of volume {}: choose another name",
            taken.source
        ))),
    }
}
