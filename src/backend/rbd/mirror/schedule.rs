//! The schedules of the snapshots by which an image is mirrored.

use crate::backend::rbd::context::Pool;
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
