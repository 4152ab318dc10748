//! Deleted volumes that are large, or that snapshots or clones need. The image is renamed to `csi-held-<id>`,
//! which ends the volume, and removed from there in the background once nothing needs it. The name is never
//! used again, so `rbd rm` of it hits no other image, whenever it runs and however often it is killed.
//!
//! The trash would not do: snapshots of an image in it cannot be cloned, and operators have images there.
//!
//! A retained image is looked at once it has the name, when its last snapshot or clone is deleted, and by the
//! hourly sweep.

use std::time::Duration;

use crate::backend::ceph::publication::deletion::{Acquired, DeletionLock, is_published};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::remove::{is_large, remove_for_good, remove_left_over};
use crate::backend::rbd::image::rename::{ensure_renamed, find_by_own_name, remove_second_name};
use crate::backend::rbd::image::retained_checks::check_retained_in;
use crate::backend::rbd::image::watchers::{refuse_watched, refuse_watched_in_removal};
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::names::{self, OBJECT_KEY};
use crate::backend::rbd::tool::{
    ImageInfo, ImageRef, LockTarget, Removed, RemovedByNumber, Renamed, SnapshotInfo,
};
use crate::error::{Error, Result};

/// Gives an image the name of a retained one. The caller holds its deletion lock, which is not given back: it
/// is removed with the image, or expires.
pub(crate) fn retain(pool: &Pool<'_>, info: &ImageInfo, lock: DeletionLock) -> Result<()> {
    let ImageInfo { name, id, .. } = info;
    // `rbd rename` also renames an image that is in use.
    refuse_watched(pool, info)?;
    let retained = names::retained(id);
    let call = lock.call(pool.call)?;
    let in_time = pool.with_call(&call);
    // The name serves the image's snapshots, even one that is taken between the look and the rename.
    in_time.set_metadata(name, OBJECT_KEY, name)?;
    match ensure_renamed(&in_time, info, &retained)? {
        Renamed::Done => {
            // The volume ends only when its name does not open the image any more.
            remove_second_name(&in_time, info)?;
            check_retained_in(pool, id, Duration::ZERO);
            Ok(())
        }
        Renamed::Absent => refuse_unless_gone(pool, info, &retained),
        Renamed::Taken => Err(Error::precondition(format!(
            "the name {retained:?} that it would have until it is removed is taken: look at that image and \
             remove it"
        ))),
    }
}

/// The image did not get its retained name: another controller may have removed it since. Or another image
/// may have had the old name by then: a rename goes by the name alone, so that image gets its name back.
fn refuse_unless_gone(pool: &Pool<'_>, info: &ImageInfo, retained: &str) -> Result<()> {
    let ImageInfo { name, id, .. } = info;
    let other = pool.info(ImageRef::Name(retained))?.filter(|found| found.id != *id);
    if other.is_some() {
        pool.rename(retained, name)?;
    } else if pool.info(ImageRef::Id(id))?.is_none() {
        return Ok(());
    }
    Err(Error::unavailable(format!("image {name:?} was replaced during this call: try again")))
}

/// Removes an image, or the rest of one, if it is retained and nothing needs it. A large image gets a job of
/// its own, so no small one waits for it.
///
/// # Errors
/// Nothing needs it, but it is published to a node, or a client has it open.
///
/// One caller at a time looks and removes: the lock of a second one would make the header object anew after
/// the first has removed the image, and a crash then would leave that object.
pub(crate) fn check_retained(pool: &Pool<'_>, image: &str) -> Result<()> {
    let retained = names::retained(image);
    let _working = pool.lock_internal(&retained)?;
    match pool.info(ImageRef::Id(image))? {
        // The rest of a removal that was killed at its end: an entry in the trash without a header. If an
        // image of another id has the name, it is an operator's that was renamed by mistake.
        None if pool.info(ImageRef::Name(&retained))?.is_some() => Ok(()),
        None => remove_left_over(pool, &retained).map(drop),
        Some(info) if !is_unneeded(pool, &info)? => Ok(()),
        Some(info) if is_large(&info) => {
            let (at, image) = (pool.at.clone(), image.to_string());
            pool.context.jobs.add_now(Job::RemoveLarge { at, image });
            Ok(())
        }
        Some(info) => remove_unneeded(pool, &info),
    }
}

/// Removes a retained image of any size if nothing needs it.
pub(crate) fn remove_large(pool: &Pool<'_>, image: &str) -> Result<()> {
    match pool.info(ImageRef::Id(image))? {
        Some(info) if is_unneeded(pool, &info)? => remove_unneeded(pool, &info),
        _ => Ok(()),
    }
}

/// Whether an image is retained and nothing needs it: it has no clone, and no snapshots except leftovers of
/// killed copies or of killed removals of clones. Once this is true, it stays true.
///
/// Its name is the one that the directory has for its id. A killed rename may have left `csi-held-<id>`
/// beside the name of a volume that is whole.
pub(crate) fn is_unneeded(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    if info.name != names::retained(&info.id) {
        return Ok(false);
    }
    if info.snapshots == 0 {
        return Ok(true);
    }
    let snapshots = pool.snapshots(ImageRef::Id(&info.id))?.unwrap_or_default();
    Ok(names_of_live(&snapshots).is_empty() && !pool.has_clones(&info.name)?)
}

/// Removes a retained image that nothing needs.
fn remove_unneeded(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    // The volume's name may still open the image if the rename was killed. No node may be given the image by
    // that name, and `rbd rm` would leave the name behind, taken by no image.
    if let Some(former) = pool.metadata(&info.name, OBJECT_KEY)? {
        find_by_own_name(pool, &former)?;
    }
    match pool.deleter().acquire(LockTarget::Header(&info.id))? {
        // Another controller's lock keeps nodes out as well, and two may remove the image at once.
        Acquired::Locked(_) | Acquired::HeldElsewhere => {}
        // The image was published to a node by that name.
        Acquired::Published(nodes) => return Err(is_published(&nodes)),
    }
    remove_snapshots(pool, info)?;
    match remove_for_good(pool, info)? {
        Removed::Gone => {
            log::info!("{}: removed {}, a deleted volume that nothing needs any more", pool.at, info.name);
            Ok(())
        }
        // Another controller removed it first, and the lock may have made an object without an image.
        Removed::Absent => pool.remove_lockable(LockTarget::Header(&info.id)),
        Removed::HasSnapshots => Ok(()),
        Removed::Watched => {
            refuse_watched_in_removal(pool, info)?;
            Err(Error::precondition(format!("a client had image {:?} open until now", info.name)))
        }
    }
}

/// Removes the snapshots that keep a retained image for nothing. The snapshot of a killed copy goes to the
/// image's trash as long as a clone reads from it. librbd removes it from there with its last clone, but
/// leaves it if the removal of that clone is killed in between.
fn remove_snapshots(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    if info.snapshots == 0 {
        return Ok(());
    }
    for snapshot in pool.snapshots(ImageRef::Id(&info.id))?.unwrap_or_default() {
        let is_left_over = snapshot.trashed || names::is_transient(&snapshot.name);
        if !is_left_over
            || pool.remove_snapshot_by_number(&info.id, snapshot.id)? == RemovedByNumber::Protected
        {
            break;
        }
    }
    Ok(())
}

/// The names of the snapshots that were asked for: neither in the image's trash, nor taken for a copy.
pub(crate) fn names_of_live(snapshots: &[SnapshotInfo]) -> Vec<&str> {
    let is_live = |it: &&SnapshotInfo| !it.trashed && !names::is_transient(&it.name);
    snapshots.iter().filter(is_live).map(|it| it.name.as_str()).collect()
}
