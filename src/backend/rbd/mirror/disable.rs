//! Ending the replication of a volume. On the primary that deletes the copy.

use super::begin;
use super::role::{follows, refuse_between_roles};
use super::terms::{self, Terms};
use super::way::ensure_whole;
use crate::backend::MirroringMode;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::names::REPLICATION_KEY;
use crate::backend::rbd::tool::{ImageInfo, MirrorState, Mirroring};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Ends the replication of a volume, or finds it ended.
pub(super) fn disable(pool: &Pool<'_>, id: &VolumeId, force: bool) -> Result<()> {
    let info = existing_volume(pool, id)?;
    let Some(mirroring) = &info.mirroring else { return Ok(()) };
    begin(pool, &info)?;
    if mirroring.is_secondary() {
        return disable_copy(pool, id, &info, (mirroring, force));
    }
    refuse_between_roles(id, &info)?;
    if has_schedules(mirroring) {
        forget_schedule(pool, &info)?;
    }
    // If it was broken off, the former role is unknown, and for a copy the rest takes force.
    let is_broken_off = mirroring.state == MirrorState::Disabling;
    let ended = end(pool, id, &info, force && is_broken_off);
    if is_broken_off && !force {
        return ended.map_err(|error| error.hint("if it was a copy, disable it by force"));
    }
    ended
}

/// A copy that follows its primary is removed when the primary's replication ends, so there is nothing to do.
/// A copy that is cut off becomes a volume of its own.
fn disable_copy(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    (mirroring, force): (&Mirroring, bool),
) -> Result<()> {
    let status = pool.mirror_status(&info.name)?;
    if status.is_some_and(|status| follows(&status)) {
        return Ok(());
    }
    if force {
        // The command promotes the copy by force, which goes wrong here too while a copy is in progress.
        ensure_whole(pool, id, info, mirroring)
            .map_err(|error| error.context(format_args!("disable volume {id} by force, as if promoted")))?;
        // A copy's metadata cannot be written. Without the cluster's manager, the call goes on.
        if has_schedules(mirroring)
            && let Err(error) = pool.remove_schedule(&info.name, None)
        {
            log::warn!("the schedule of volume {id} may outlive its replication: {error}");
        }
        return end(pool, id, info, true);
    }
    Err(Error::precondition(format!(
        "volume {id} is a copy (secondary) that does not follow its primary at this moment: disable it there, or \
         make it a volume of its own with the parameter force=true (`cephlet replication disable {id} --force`); \
         then the two have nothing in common any more"
    )))
}

/// Whether the image can have a schedule. It is removed before the mirroring ends: afterwards it would stay,
/// and could not be removed.
fn has_schedules(mirroring: &Mirroring) -> bool {
    mirroring.mode == MirroringMode::Snapshot && mirroring.state == MirrorState::Enabled
}

/// Removes the schedule, and its record in the metadata.
fn forget_schedule(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    pool.remove_schedule(&info.name, None)?;
    if terms::period(pool, info)?.is_some() {
        pool.set_metadata(&info.name, REPLICATION_KEY, &Terms::new(None).text()?)?;
    }
    pool.memory().schedules.0.remember(info.id.clone(), None);
    Ok(())
}

/// Ends the mirroring of the image, or finds it ended.
fn end(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, force: bool) -> Result<()> {
    pool.memory().enabled.0.forget(&info.id);
    let Err(failure) = pool.disable_mirroring(&info.name, force) else { return Ok(()) };
    match existing_volume(pool, id)?.mirroring {
        None => Ok(()),
        Some(_) => Err(failure),
    }
}
