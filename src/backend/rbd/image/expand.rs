//! Making a volume larger.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::tool::Changed;
use crate::backend::size::{BLOCK, Bounds};
use crate::csi::SizeRange;
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
