//! Changing a volume while it is used: its size, and its limits in operations and bytes a second.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::parameters;
use crate::backend::rbd::tool::Changed;
use crate::backend::size::{BLOCK, Bounds};
use crate::csi::{Map, SizeRange};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Makes the volume at least as large as asked, never smaller; gives its size.
pub(crate) fn expand(pool: &Pool<'_>, id: &VolumeId, range: &SizeRange) -> Result<u64> {
    let info = existing_volume(pool, id)?;
    let size = Bounds { smallest: BLOCK, largest: info.largest, fs_type: None }
        .of_expanded(range, info.size)
        .map_err(|error| error.context(format_args!("expand volume {id}")))?;
    if size > info.size {
        refuse_secondary(id, &info, "expanded")?;
    }
    if size > info.size && pool.resize(&id.object, size)? == Changed::Absent {
        existing_volume(pool, id)?;
        return Err(Error::unavailable(format!("volume {id} was replaced during this call: try again")));
    }
    Ok(size)
}

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
