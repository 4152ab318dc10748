//! Limits of a volume that can be changed while it is used: operations and bytes a second.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::parameters;
use crate::backend::rbd::tool::Changed;
use crate::csi::Map;
use crate::error::Result;
use crate::ids::VolumeId;

/// Changes the limits of a volume; without limits, only checks that the volume exists.
pub(crate) fn modify(pool: &Pool<'_>, id: &VolumeId, parameters: &Map) -> Result<()> {
    let limits = parameters::limits(parameters)?;
    let limits: Vec<_> = limits.iter().map(|(key, limit)| (parameters::setting(key), *limit)).collect();
    let info = existing_volume(pool, id)?;
    if !limits.is_empty() {
        refuse_secondary(id, &info, "modified")?;
    }
    if !limits.is_empty() && pool.set_limits(&id.object, &limits)? == Changed::Absent {
        // The volume was deleted just now: say so.
        existing_volume(pool, id)?;
    }
    Ok(())
}
