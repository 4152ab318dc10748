//! Making a volume.
//!
//! The manager makes a subvolume that exists once more, and may carry out a command minutes after the client
//! that sent it has died. So names of subvolumes are drawn for each attempt and never used again, and the
//! name of the request is [claimed](crate::backend::ceph::claim) for the subvolume that is whole first:
//!
//! 1. look which subvolume the name is claimed for; if it is a volume, it is the answer
//! 2. write *making* to the index, under a drawn name; or take over a copy that the same request has begun
//! 3. make the subvolume, or a [`copy`] of its source; nothing, if the volume [shares](share) a snapshot
//! 4. claim the name for it; if it is claimed for another one meanwhile, remove this one and answer from that
//! 5. write *whole* to the index
//!
//! | a crash after | leaves | ended by |
//! |---|---|---|
//! | 2, or in 3 | an entry *making*, perhaps a subvolume | the repeat, if a copy; the sweep, a day later |
//! | 4 | a claim of a subvolume that is *making* | the repeat: the claim means that all is made |
//! | 5 | the transient snapshot of a copy | the repeat, or the sweep |

use std::time::Instant;

use crate::backend::ceph::claim::Description;
use crate::backend::cephfs::FS_TYPE;
use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::parameters::Settings;
use crate::backend::cephfs::subvolumes::NewSubvolume;
use crate::backend::cephfs::volumes::delete::remove_unused;
use crate::backend::cephfs::volumes::find::volume;
use crate::backend::cephfs::volumes::{copy, place, share, size};
use crate::backend::creation_record::{CreationRequest, Placed};
use crate::backend::{NewVolume, Volume};
use crate::error::{Error, Kind, Result};
use crate::ids::{self, MAX_CEPHFS_PLACE};

/// A repeated request renews an entry that is older than this part (1/24) of the time after which it counts
/// as abandoned.
const RENEWALS: u32 = 24;

/// Makes the volume, or finds the one that the same request made.
pub(crate) fn create(fs: &Fs<'_>, new: &NewVolume) -> Result<Volume> {
    let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
    fs.place.fits(None, MAX_CEPHFS_PLACE)?;
    if let Some(volume) = find_claimed(fs, new)? {
        return Ok(volume);
    }
    let (object, entry) = begin(fs, new, &settings)?;
    let (path, size) = (fs.path(&object), entry.size);
    let pool = entry.placed.data_pool.clone().or(settings.layout.pool.clone());
    let made = match (&entry.shares, &entry.copy_of) {
        (Some(of), _) => share::admit(fs, of),
        (None, Some(_)) => copy::make(fs, &object, &entry, pool.as_deref()),
        (None, None) => make(fs, &object, &NewSubvolume { size, pool, owner: settings.root.owner }),
    };
    made.map_err(|error| forget_refused(fs, &object, &entry, error))?;
    if entry.copy_of.is_some() && !copy::is_being_made(fs, &path)? {
        // This call may have taken the transient snapshot anew.
        tidy(fs, &object, &entry);
        return find_of_other(fs, new);
    }
    let (key, description) = (key_of(new)?, Description::new(&new.name, entry.placed.clone()));
    let name = fs.name(key);
    let Some(share) = name.claim(&path, &description)? else {
        // Another controller was faster. No client has heard of this subvolume.
        remove_unused(fs, &object, &entry)?;
        return find_of_other(fs, new);
    };
    let entry = entry.become_state(State::Whole, &fs.context.identity.tag);
    fs.index().set(&path, &entry)?;
    if !name.confirm(&share)? {
        // Another controller may have answered with this one before the name was claimed anew, so it stays.
        return Err(Error::unavailable(format!(
            "it took so long that its name was claimed for another subvolume: try again, and delete volume {} if no \
             client knows it",
            fs.id_of(&object)
        )));
    }
    tidy(fs, &object, &entry);
    Ok(volume(fs, &object, &entry))
}

/// The volume that another controller has made meanwhile.
fn find_of_other(fs: &Fs<'_>, new: &NewVolume) -> Result<Volume> {
    find_claimed(fs, new)?.ok_or_else(|| {
        Error::unavailable("another controller made and deleted it during this call: try again")
    })
}

/// The subvolume to make, and its entry, which is in the index; for a copy that the same request has begun,
/// that one. The size is checked before anything is made.
fn begin(fs: &Fs<'_>, new: &NewVolume, settings: &Settings) -> Result<(String, Entry)> {
    let tag = &fs.context.identity.tag;
    let shares = share::is_wanted(settings, new)?;
    if new.source.is_some()
        && let Some((object, entry)) = copy::find_begun(fs, new)?
    {
        if entry.age() > fs.context.timing.abandoned / RENEWALS {
            fs.index().set(&fs.path(&object), &entry.become_state(State::Making, tag))?;
        }
        return Ok((object, entry));
    }
    let object = ids::drawn_object(&new.object)?;
    let source = copy::find_source(fs, new, &object)?;
    let size = size::of_new(&new.size, source.as_ref().map(|(_, size, _)| *size))?;
    let placed = match source.as_ref().filter(|_| shares) {
        Some((_, shared, placed)) => {
            share::refuse_larger(&new.size, *shared)?;
            share::placed(fs, new, placed)?
        }
        None => place::choose(fs, new, settings)?,
    };
    let request = CreationRequest::new(new, Some(FS_TYPE.to_string()));
    let of = source.map(|(of, ..)| of);
    let (shares, copy_of) = if shares { (of, None) } else { (None, of) };
    let entry = Entry::new(State::Making, tag, size, Some(request));
    let entry = Entry { placed, shares, copy_of, ..entry };
    fs.index().set(&fs.path(&object), &entry)?;
    Ok((object, entry))
}

/// Removes the entry of a subvolume if the error means that it was not made, and will not be. Returns the
/// error.
fn forget_refused(fs: &Fs<'_>, object: &str, entry: &Entry, refusal: Error) -> Error {
    let is_over = !matches!(refusal.kind(), Kind::Timeout | Kind::Unavailable | Kind::Internal);
    let path = fs.path(object);
    let forget = || {
        if entry.shares.is_some() {
            return remove_unused(fs, object, entry);
        }
        if entry.copy_of.is_some() {
            // Another controller may have finished it, from a source that was deleted since.
            if !copy::is_being_made(fs, &path)? {
                return Ok(());
            }
            copy::remove_begun(fs, object, entry)?;
        }
        fs.index().remove(&path)
    };
    if is_over && let Err(error) = forget() {
        log::warn!("{object} stays in the index of volumes for a day: {error}");
    }
    refusal
}

/// The volume that the name is claimed for.
fn find_claimed(fs: &Fs<'_>, new: &NewVolume) -> Result<Option<Volume>> {
    let name = fs.name(key_of(new)?);
    let Some(claim) = name.find()? else { return Ok(None) };
    let Some((group, object)) = claim.of.split_once('/') else {
        return Err(name.unreadable(&claim));
    };
    // Another request with the name may have asked for another group.
    let there = &fs.in_group(group);
    let found = name.await_maker(&claim, || find_made(there, object, new, &claim.description.placed))?;
    let Some(entry) = found else { return Ok(None) };
    place::suits(fs, new, &entry.placed)?;
    match share::difference(fs, &entry, new) {
        None => Ok(Some(volume(there, object, &entry))),
        Some(difference) => Err(Error::already_exists(format!("it exists: {difference}"))),
    }
}

/// The entry of the subvolume that a name is claimed for, if that is a volume. The name is claimed last, so
/// nothing is missing but the state. Without an entry the index was lost, and gets it again.
fn find_made(fs: &Fs<'_>, object: &str, new: &NewVolume, placed: &Placed) -> Result<Option<Entry>> {
    let path = fs.path(object);
    let known = match fs.index().get(&path)? {
        Some(entry) if entry.state == State::Whole => return Ok(Some(entry)),
        Some(entry) if entry.state == State::Deleted => return Ok(None),
        known => known,
    };
    // Others may have finished and deleted it since: the subvolume itself tells.
    let Some(size) = size_of_present(fs, object, known.as_ref())? else { return Ok(None) };
    let tag = &fs.context.identity.tag;
    let entry = match known {
        Some(entry) => entry.become_state(State::Whole, tag),
        None if !new.size.admits(size) => {
            return Err(Error::already_exists(format!("it exists: it has {size} bytes")));
        }
        None => {
            let request = CreationRequest::new(new, Some(FS_TYPE.to_string()));
            Entry { placed: placed.clone(), ..Entry::new(State::Whole, tag, size, Some(request)) }
        }
    };
    fs.index().set(&path, &entry)?;
    // Before the look: it writes the entry, which another controller may have marked deleted meanwhile.
    tidy(fs, object, &entry);
    match size_of_present(fs, object, Some(&entry))? {
        Some(_) => Ok(Some(entry)),
        None => fs.index().remove(&path).map(|()| None),
    }
}

/// Removes what was made for a copy only. What cannot be removed now is left to the sweep.
fn tidy(fs: &Fs<'_>, object: &str, entry: &Entry) {
    if let Err(error) = copy::tidy(fs, object, entry) {
        log::warn!("what {object} was copied from is removed later: {error}");
    }
}

/// The size of a volume whose subvolume, or the snapshot that it shares, is there.
fn size_of_present(fs: &Fs<'_>, object: &str, entry: Option<&Entry>) -> Result<Option<u64>> {
    match entry.and_then(|entry| Some((entry.size, entry.shares.as_ref()?))) {
        Some((size, of)) => Ok(share::is_there(fs, of)?.then_some(size)),
        None => Ok(fs.subvolumes().info(object)?.map(|present| present.size.unwrap_or_default())),
    }
}

/// Makes a subvolume of a new name. If the manager may have died meanwhile, the subvolume may be one of the
/// old form, without an id of its own; it is made again then.
fn make(fs: &Fs<'_>, object: &str, wanted: &NewSubvolume) -> Result<()> {
    let (subvolumes, begun) = (fs.subvolumes(), Instant::now());
    subvolumes.create(object, wanted)?;
    if begun.elapsed() < fs.context.timing.same_manager {
        return Ok(());
    }
    match subvolumes.info(object)? {
        Some(made) if made.uuid.is_some() => Ok(()),
        _ => Err(Error::unavailable(format!(
            "the manager has made only a part of subvolume {object:?}: try again, it is removed later"
        ))),
    }
}

/// The key of the request's name.
fn key_of(new: &NewVolume) -> Result<&str> {
    ids::volume_key(&new.object)
        .ok_or_else(|| Error::internal(format!("{:?} is no name of a volume's object", new.object)))
}
