//! The schedules of the snapshots by which an image is mirrored.

use crate::backend::MirroringMode;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, MirrorState, Mirroring};
use crate::backend::replication::Schedule;
use crate::error::Result;

/// Leaves the image only this schedule, or none. The new schedule is added before the old one is removed.
pub(super) fn ensure_schedule(pool: &Pool<'_>, image: &str, wanted: Option<&Schedule>) -> Result<()> {
    let present = pool.schedules(image)?;
    if let Some(wanted) = wanted.filter(|wanted| !present.contains(wanted)) {
        pool.add_schedule(image, wanted)?;
    }
    let others = present.iter().filter(|schedule| Some(*schedule) != wanted);
    others.into_iter().try_for_each(|schedule| pool.remove_schedule(image, Some(schedule)))
}

/// Removes the schedule of an image before its mirroring ends: afterwards the schedule would stay, and could
/// not be removed.
pub(super) fn remove_schedule(pool: &Pool<'_>, info: &ImageInfo, mirroring: &Mirroring) -> Result<()> {
    if mirroring.mode == MirroringMode::Journal || mirroring.state != MirrorState::Enabled {
        return Ok(());
    }
    pool.remove_schedule(&info.name, None)
}
