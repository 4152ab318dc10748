//! Read-only volumes that share a snapshot: the volume is the tree of the snapshot, and nothing is copied.
//!
//! Such a volume is an entry of the index that names its snapshot; no subvolume is made. A snapshot that is
//! deleted while volumes share it is only marked as deleted, and goes with the last of them. No lock is
//! needed for that, since all these entries are keys of one object, whose operations have one order:
//!
//! - who makes a volume writes its entry first, and looks then whether the snapshot is marked
//! - who deletes a snapshot marks it first, and looks then for volumes that share it
//!
//! So at least one of them sees the other. A mark is never taken back, so a removal that the manager carries
//! out late finds no new volume.
//!
//! | a crash after | leaves | ended by |
//! |---|---|---|
//! | the entry of the volume | an entry *making* | the repeat, which takes it over; the sweep, a day later |
//! | the mark of the snapshot | an entry *deleted* of the snapshot | the repeat, the sweep |
//! | the removal of the last volume's entry | the same | the sweep |

use crate::backend::cephfs::context::Fs;
use crate::backend::cephfs::index::{Entry, SnapshotPath, State};
use crate::backend::cephfs::parameters::{SHARES, Settings};
use crate::backend::cephfs::snapshot;
use crate::backend::cephfs::volumes::place;
use crate::backend::creation_record::Placed;
use crate::backend::{NewVolume, Origin};
use crate::csi::SizeRange;
use crate::error::{Error, Kind, Result};
use crate::ids::Place;
use crate::kernel::ceph::Mounter;

/// How a volume that only reads is made from a snapshot instead.
const COPY_INSTEAD: &str = "a copy is made with the parameter \"backingSnapshot\" = \"false\"";

/// Whether the volume shares its snapshot: no node is to write to it, and the kernel mounts it.
///
/// # Errors
/// Invalid: the parameters ask for that, and a node is to write to it, or ceph-fuse to mount it.
pub(crate) fn is_wanted(settings: &Settings, new: &NewVolume) -> Result<bool> {
    if !matches!(new.source, Some((_, Origin::Snapshot(_)))) {
        return Ok(false);
    }
    match (settings.shares, is_only_read(new), settings.mounter) {
        (Some(true), false, _) => Err(Error::invalid(format!(
            "the parameter {SHARES:?} is true, and the access mode writes, but a snapshot can only be read: ask for a \
             reader-only access mode, or leave the parameter out for a copy"
        ))),
        (Some(true), true, Mounter::Fuse) => Err(Error::invalid(format!(
            "the parameter {SHARES:?} is true, and \"mounter\" is \"fuse\", but only the kernel mounts a snapshot: leave \
             one of the two out; without {SHARES:?} the volume is a copy"
        ))),
        (wanted, is_only_read, mounter) => Ok(wanted.unwrap_or(mounter == Mounter::Kernel) && is_only_read),
    }
}

/// Whether no node may write to the volume.
pub(crate) fn is_only_read(new: &NewVolume) -> bool {
    !new.capabilities.is_empty() && new.capabilities.iter().all(|it| it.mode.is_read_only())
}

/// How the request differs from the one that made this volume, or began it; None if it is the same.
pub(crate) fn difference(fs: &Fs<'_>, entry: &Entry, new: &NewVolume) -> Option<String> {
    let made = entry.request.as_ref();
    let canonical = |place: &Place| fs.context.canonical(place);
    let difference = made.and_then(|made| made.difference(new, entry.size, &canonical));
    let of = entry.shares.as_ref().filter(|_| !is_only_read(new));
    difference.or_else(|| {
        of.map(|of| format!("{}, and this request has an access mode that writes", why_read_only(of)))
    })
}

/// Refuses another size than that of the snapshot.
pub(crate) fn refuse_larger(range: &SizeRange, size: u64) -> Result<()> {
    match range.required <= size {
        true => Ok(()),
        false => Err(Error::out_of_range(format!(
            "it shares its snapshot, which has {size} bytes, so it cannot have {}: ask for no more; {COPY_INSTEAD}",
            range.required
        ))),
    }
}

/// The place of a volume that shares a snapshot, which is at this place.
///
/// # Errors
/// No space: it is not reachable from where the request asks for.
pub(crate) fn placed(fs: &Fs<'_>, new: &NewVolume, snapshot: &Placed) -> Result<Placed> {
    place::suits(fs, new, snapshot).map_err(|_| {
        Error::new(
            Kind::NoSpace,
            format!(
                "it shares its snapshot, which is reachable from {} only, none of the domains that are asked for; \
                 {COPY_INSTEAD}",
                snapshot.domains
            ),
        )
    })?;
    Ok(Placed { data_pool: None, ..snapshot.clone() })
}

/// Looks whether the snapshot may still be shared, after the entry of the volume was written.
pub(crate) fn admit(fs: &Fs<'_>, of: &SnapshotPath) -> Result<()> {
    match snapshot::is_whole(&fs.in_group(&of.group), &of.subvolume, &of.snapshot)? {
        true => Ok(()),
        false => Err(Error::not_found(format!("its snapshot {} was deleted meanwhile", of.snapshot))),
    }
}

/// Whether there is what the volume shares, even if that is marked as deleted.
pub(crate) fn is_there(fs: &Fs<'_>, of: &SnapshotPath) -> Result<bool> {
    fs.in_group(&of.group).subvolumes().has_snapshot(&of.subvolume, &of.snapshot)
}

/// Why a volume can only be read.
pub(crate) fn why_read_only(of: &SnapshotPath) -> String {
    format!("it shares the snapshot {} of {}/{}, which can only be read", of.snapshot, of.group, of.subvolume)
}

/// Refuses what a volume that shares a snapshot cannot do.
pub(crate) fn refuse(entry: Option<&Entry>, what: &str) -> Result<()> {
    match entry.and_then(|entry| entry.shares.as_ref()) {
        None => Ok(()),
        Some(of) => Err(Error::precondition(format!("{}, so it {what}; {COPY_INSTEAD}", why_read_only(of)))),
    }
}

/// Removes the snapshot of a volume that is gone, if it was deleted meanwhile and no other volume shares it.
pub(crate) fn let_go(fs: &Fs<'_>, of: &SnapshotPath) -> Result<()> {
    let there = fs.in_group(&of.group);
    let taken = there.index().get(&there.snapshot_path(&of.subvolume, &of.snapshot))?;
    match taken.is_some_and(|taken| taken.state == State::Deleted) {
        true => snapshot::finish(&there, &of.subvolume, &of.snapshot),
        false => Ok(()),
    }
}

/// Whether any volume shares the snapshot, also one that is being made or removed.
pub(crate) fn is_shared(fs: &Fs<'_>, subvolume: &str, snapshot: &str) -> Result<bool> {
    let group = &fs.place.namespace;
    let is_this = |of: &SnapshotPath| {
        (&of.group, of.subvolume.as_str(), of.snapshot.as_str()) == (group, subvolume, snapshot)
    };
    fs.index().has(|entry| entry.shares.as_ref().is_some_and(is_this))
}
