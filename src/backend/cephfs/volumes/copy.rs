//! Copies of snapshots and volumes. The manager makes them, file by file, which may take hours; a call waits
//! for that without a worker, within its deadline.
//!
//! Nothing can be written to a clone before it is complete, so the entry in the index has the request, and
//! the snapshot that is copied. A repeated request takes the entry over, whichever controller began it, and
//! waits for the same clone, unless that was asked for last half a day ago. A volume is copied from a
//! transient snapshot, which is removed when the copy is whole.
//!
//! So two controllers may wait for one clone. The first one writes *whole*, and its client may expand or
//! delete the volume then: the other one looks before it changes anything.

use std::time::{Duration, Instant};

use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, SnapshotPath, State};
use crate::backend::cephfs::subvolumes::{Begun, CloneState, SnapshotRemoved};
use crate::backend::cephfs::volumes::share::difference;
use crate::backend::cephfs::volumes::{find, place};
use crate::backend::cephfs::{names, snapshot};
use crate::backend::creation_record::Placed;
use crate::backend::{NewVolume, Origin};
use crate::clock;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place};

/// The snapshot to copy, its size in bytes, and where its data are; None for an empty volume. `object` is the
/// name of the copy.
pub(crate) fn find_source(
    fs: &Fs<'_>,
    new: &NewVolume,
    object: &str,
) -> Result<Option<(SnapshotPath, u64, Placed)>> {
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
            let taken = snapshot::existing(&there, id)?;
            (SnapshotPath { group, subvolume, snapshot }, taken.size, taken.placed)
        }
        Origin::Volume(id) => {
            let found = find::existing(&there, id)?;
            let size = found.subvolume.size.unwrap_or_default();
            let (shares, placed) = found.entry.map(|it| (it.shares, it.placed)).unwrap_or_default();
            if let Some(of) = shares {
                return Ok(Some((of, size, placed)));
            }
            let snapshot = names::transient(&fs.context.identity.tag, key_and_drawn(object)?);
            let subvolume = id.object.clone();
            (SnapshotPath { group, subvolume, snapshot }, size, placed)
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
        has_source
            && entry.request.is_some()
            && difference(fs, entry, new).is_none()
            && place::suits(fs, new, &entry.placed).is_ok()
    };
    let here = fs.index().all()?.into_iter().filter(|(group, ..)| *group == fs.place.namespace);
    let mut begun = here.filter(|(.., entry)| entry.state == State::Making && is_recent(entry));
    let same = begun.find(|(_, object, it)| ids::undrawn(object) == Some(&new.object) && is_same(it));
    Ok(same.map(|(_, object, entry)| (object, entry)))
}

/// Makes the copy, or waits for it; then its size is what was asked for, not that of its source. Ends early
/// if another controller has finished or removed it.
pub(crate) fn make(fs: &Fs<'_>, object: &str, entry: &Entry, pool: Option<&str>) -> Result<()> {
    let Some(of) = &entry.copy_of else {
        return Err(Error::internal("nothing is said of what it is a copy of"));
    };
    let timing = &fs.context.timing;
    let what = format!("copy {}@{} to {object}", of.subvolume, of.snapshot);
    let mut copy = Copy { fs, object, entry, of, pool, what, shown: String::new(), is_second: false };
    let what = format!("the manager to {}", copy.what);
    // A manager that dies never answers. The next look asks its successor, until the client's deadline.
    let patient =
        || copy.look().or_else(|error| if error.kind() == Kind::Timeout { Ok(None) } else { Err(error) });
    if fs.call.wait_for(what, timing.copy_wait, timing.copy_look, patient)?.is_none() {
        return Err(Error::unavailable("it is still being copied: try again"));
    }
    if !is_being_made(fs, &fs.path(object))? {
        return Ok(());
    }
    match fs.subvolumes().resize(object, entry.size)? {
        true => Ok(()),
        false => Err(Error::unavailable("it was removed during this call: try again")),
    }
}

/// Whether no other controller has finished it, or removed it.
pub(crate) fn is_being_made(fs: &Fs<'_>, path: &str) -> Result<bool> {
    Ok(fs.index().get(path)?.is_some_and(|entry| entry.state == State::Making))
}

/// A copy in the making.
struct Copy<'a> {
    fs: &'a Fs<'a>,
    object: &'a str,
    entry: &'a Entry,
    of: &'a SnapshotPath,
    /// The pool for its data; None for that of its source.
    pool: Option<&'a str>,
    /// What the manager does, for the log.
    what: String,
    /// How far it was when the log showed it last.
    shown: String,
    /// Whether the first attempt has failed.
    is_second: bool,
}

impl Copy<'_> {
    /// Some if the copy is complete.
    fn look(&mut self) -> Result<Option<()>> {
        let (subvolumes, asked) = (self.fs.subvolumes(), clock::since_boot());
        let state = subvolumes.clone_state(self.object)?;
        if matches!(state, CloneState::Absent | CloneState::Failed(_))
            && !is_being_made(self.fs, &self.fs.path(self.object))?
        {
            return Ok(Some(()));
        }
        match state {
            // The manager needs the snapshot until the clone leaves its list, a moment later.
            CloneState::Complete => {
                let is_listed = subvolumes.is_queued(self.object, self.of)? == Some(true);
                return Ok((!is_listed).then_some(()));
            }
            CloneState::Absent => self.begin()?,
            CloneState::Pending => {
                self.show("pending");
                return self.give_up_if_lost();
            }
            CloneState::Unfinished(state) => self.show(&state),
            CloneState::Failed(why) if self.is_second => {
                return Err(Error::internal(format!("the manager could not copy it: {why}")));
            }
            CloneState::Failed(why) => {
                log::warn!("{}: it has failed, and is begun again: {why}", self.what);
                remove_failed(self.fs, self.object, asked)?;
                self.is_second = true;
            }
        }
        Ok(None)
    }

    fn begin(&self) -> Result<()> {
        let Self { fs, object, of, .. } = self;
        if is_transient(of) {
            let there = fs.in_group(&of.group);
            match there.subvolumes().take_snapshot(&of.subvolume, &of.snapshot) {
                // The volume was deleted after the snapshot was taken, which retains it.
                Err(error)
                    if error.kind() == Kind::NotFound
                        && there.subvolumes().has_snapshot(&of.subvolume, &of.snapshot)? => {}
                taken => taken?,
            }
        }
        match fs.subvolumes().begin_clone(object, of, self.pool)? {
            Begun::Yes | Begun::NotYet => Ok(()),
            // Another controller that has taken the entry over may have finished the copy, and tidied up.
            Begun::NoSource => match fs.subvolumes().clone_state(object)? {
                CloneState::Absent => Err(Error::not_found("its source was deleted meanwhile")),
                _ => Ok(()),
            },
        }
    }

    fn show(&mut self, state: &str) {
        if self.shown != state {
            log::info!("{}: {state}", self.what);
            self.shown = state.to_string();
        }
    }

    /// Asks the manager once a minute for its list, which it reads from the file system. The next attempt of
    /// the request takes another name. Should the manager come to this clone after all, the sweep removes it.
    /// Some if another controller has given it up.
    fn give_up_if_lost(&self) -> Result<Option<()>> {
        let (fs, entry, path) = (self.fs, self.entry, self.fs.path(self.object));
        let pending = &fs.context.pending_copies;
        let since = pending.get_or_ask(path.clone(), || Ok(Instant::now()))?;
        if since.elapsed() < fs.context.timing.lost_copy {
            return Ok(None);
        }
        if !is_lost(fs, self.object, entry)? {
            pending.remember(path, Instant::now());
            return Ok(None);
        }
        if !is_being_made(fs, &path)? {
            return Ok(Some(()));
        }
        fs.index().set(&path, &entry.become_state(State::Deleted, &fs.context.identity.tag))?;
        remove_transient(fs, entry)?;
        Err(Error::unavailable(
            "the manager died when it began to copy, and its successor does not know of the copy: try again",
        ))
    }
}

/// Removes what there is of a copy that is not made any more, if the manager does not copy to it.
pub(crate) fn remove_begun(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    let asked = clock::since_boot();
    match fs.subvolumes().clone_state(object)? {
        CloneState::Pending if is_lost(fs, object, entry)? => {
            let how = how_to_remove_lost(fs, object);
            return Err(Error::precondition(format!("{object} is a copy that its manager has lost: {how}")));
        }
        CloneState::Pending | CloneState::Unfinished(_) => {
            return Err(Error::unavailable(format!("{object} is still being copied")));
        }
        CloneState::Complete => fs.subvolumes().remove(object)?,
        CloneState::Failed(_) => remove_failed(fs, object, asked)?,
        CloneState::Absent => {}
    }
    remove_transient(fs, entry).map(drop)
}

/// Removes a clone that the manager, `asked` at this time, has said to have failed. Another controller may
/// have heard the same, have removed the clone, and begin it anew after its next look. So the command begins
/// before that, or never.
fn remove_failed(fs: &Fs<'_>, object: &str, asked: Duration) -> Result<()> {
    let until = asked + fs.context.timing.copy_look;
    let call = fs.call.only_while(move || clock::since_boot() < until);
    fs.within_call(&call).subvolumes().remove_unfinished(object)
}

/// Whether the manager died when it began this copy, and its successor does not know of it. A copy that was
/// begun within the last minute may not be in its list yet. One that has ended has left the list, so its
/// state is asked for again after that.
pub(crate) fn is_lost(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<bool> {
    let is_new = entry.state == State::Making && entry.age() < fs.context.timing.lost_copy;
    let Some(of) = entry.copy_of.as_ref().filter(|_| !is_new) else { return Ok(false) };
    let subvolumes = fs.subvolumes();
    let is_pending = || subvolumes.clone_state(object).map(|state| state == CloneState::Pending);
    Ok(is_pending()? && subvolumes.is_queued(object, of)? == Some(false) && is_pending()?)
}

/// How an operator removes a lost copy: no command does.
pub(crate) fn how_to_remove_lost(fs: &Fs<'_>, object: &str) -> String {
    let directory = directory(&fs.place.namespace, object);
    format!("mount file system {:?} and remove its directory {directory}", fs.place.pool)
}

/// How an operator frees a snapshot that the manager keeps for a copy that has ended: no command does.
pub(crate) fn how_to_free(fs: &Fs<'_>, of: &SnapshotPath) -> String {
    format!(
        "mount file system {:?}, and in {}/.meta remove the lines of the section [clone snaps] that end with \"= {}\": \
         the next sweep removes the snapshot, if it was deleted",
        fs.place.pool,
        directory(&of.group, &of.subvolume),
        of.snapshot
    )
}

fn directory(group: &str, subvolume: &str) -> String {
    format!("/volumes/{}/{subvolume}", if group.is_empty() { "_nogroup" } else { group })
}

/// Removes what was made for a copy only, once the copy is a volume: its entry says so until then.
pub(crate) fn tidy(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    if entry.copy_of.is_none() || !remove_transient(fs, entry)? {
        return Ok(());
    }
    let path = fs.path(object);
    match fs.index().get(&path)?.filter(|now| now.state == State::Whole) {
        Some(now) => fs.index().set(&path, &Entry { copy_of: None, ..now }),
        None => Ok(()),
    }
}

/// Removes the transient snapshot that a volume was copied from. False: the manager still needs it.
pub(crate) fn remove_transient(fs: &Fs<'_>, entry: &Entry) -> Result<bool> {
    let Some(of) = entry.copy_of.as_ref().filter(|of| is_transient(of)) else { return Ok(true) };
    let removed = fs.in_group(&of.group).subvolumes().remove_snapshot(&of.subvolume, &of.snapshot)?;
    Ok(removed != SnapshotRemoved::HasCopies)
}

fn is_transient(of: &SnapshotPath) -> bool {
    names::tag_of_transient(&of.snapshot).is_some()
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
