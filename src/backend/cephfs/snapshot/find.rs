//! Finding snapshots, and lists of them. The manager decides whether a snapshot exists; the index has when it
//! was taken, and how large a volume made from it is.

use std::time::{Duration, UNIX_EPOCH};

use crate::backend::cephfs::context::{Context, Fs, may_exist};
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::names;
use crate::backend::cephfs::subvolumes::Subvolume;
use crate::backend::cephfs::volumes::list::of_every_file_system;
use crate::backend::{Page, Snapshot, SnapshotFilter};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;

/// The snapshot of this subvolume with this `KEY-R`, and this entry.
pub(crate) fn snapshot(fs: &Fs<'_>, subvolume: &str, key_and_drawn: &str, entry: &Entry) -> Snapshot {
    Snapshot {
        id: id(fs, subvolume, key_and_drawn),
        source: fs.id_of(subvolume),
        size: entry.size,
        created: UNIX_EPOCH + Duration::from_secs(entry.since),
        topology: entry.placed.domains.accessible(&fs.context.identity.plugin),
    }
}

/// The ID of the snapshot of this subvolume with this `KEY-R`.
pub(crate) fn id(fs: &Fs<'_>, subvolume: &str, key_and_drawn: &str) -> SnapshotId {
    let (source, snapshot) = (subvolume.to_string(), key_and_drawn.to_string());
    SnapshotId { place: fs.place.clone(), object: None, source, snapshot }
}

/// The entry of a new snapshot of this subvolume, which may have been retained only.
pub(crate) fn new_entry(fs: &Fs<'_>, of: Option<&Subvolume>) -> Entry {
    let (size, path) = (of.and_then(|of| of.size).unwrap_or_default(), of.map(|of| of.path.clone()));
    Entry { path, ..Entry::new(State::Whole, &fs.context.identity.tag, size, None) }
}

/// The entry of the snapshot of this subvolume with this `KEY-R`, if there is that snapshot. If the entry was
/// lost, or not written to the end, it is written again. One that was begun long ago is left to the sweep,
/// which may have read its entry already; no request was answered with it.
pub(crate) fn find(fs: &Fs<'_>, subvolume: &str, key_and_drawn: &str) -> Result<Option<Entry>> {
    let snapshot = names::snapshot(key_and_drawn);
    let path = fs.snapshot_path(subvolume, &snapshot);
    let known = fs.index().get(&path)?;
    let is_over = |entry: &Entry| match entry.state {
        State::Deleted => true,
        State::Making => entry.age() > fs.context.timing.abandoned / 2,
        State::Whole => false,
    };
    if known.as_ref().is_some_and(is_over) || !fs.subvolumes().has_snapshot(subvolume, &snapshot)? {
        return Ok(None);
    }
    let entry = match known {
        Some(entry) if entry.state == State::Whole => return Ok(Some(entry)),
        Some(entry) => entry.become_state(State::Whole, &fs.context.identity.tag),
        None => new_entry(fs, fs.subvolumes().info(subvolume)?.as_ref()),
    };
    fs.index().set(&path, &entry)?;
    Ok(Some(entry))
}

/// Whether there is a snapshot that is not marked as deleted.
pub(crate) fn is_whole(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> Result<bool> {
    let marked = fs.index().get(&fs.snapshot_path(subvolume, snapshot))?;
    Ok(marked.is_none_or(|entry| entry.state != State::Deleted)
        && fs.subvolumes().has_snapshot(subvolume, snapshot)?)
}

/// The same, or NOT_FOUND.
pub(crate) fn existing(fs: &Fs<'_>, id: &SnapshotId) -> Result<Entry> {
    let found = match may_exist(&id.place, &id.source) {
        true => find(fs, &id.source, &id.snapshot)?,
        false => None,
    };
    found.ok_or_else(|| {
        Error::not_found(format!("snapshot {id} does not exist: check the ID, or take it again"))
    })
}

/// Up to `limit` snapshots (0: all) whose keys follow `after`.
pub(crate) fn list(
    context: &Context,
    call: &Call,
    filter: &SnapshotFilter,
    (after, limit): (&str, usize),
) -> Result<Page<Snapshot>> {
    of_every_file_system(context, call, (after, limit), &Err, |fs, path, entry| {
        let (subvolume, snapshot) = path.split_once('@')?;
        let key_and_drawn = names::in_snapshot(snapshot).filter(|_| entry.state == State::Whole)?;
        let found = self::snapshot(fs, subvolume, key_and_drawn, entry);
        let is_meant = match filter {
            SnapshotFilter::All => true,
            SnapshotFilter::Of(volume) => {
                (context.canonical(&volume.place), &volume.place.pool, &volume.object)
                    == (context.canonical(&fs.place), &fs.place.pool, &found.source.object)
            }
        };
        is_meant.then(|| (found.id.to_string(), found))
    })
}
