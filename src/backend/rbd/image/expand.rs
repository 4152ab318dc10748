//! Making a volume larger.

use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::tool::Changed;
use crate::backend::size::{BLOCK, Bounds};
use crate::csi::SizeRange;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// Makes the volume at least as large as asked, never smaller; gives its size.
pub(crate) fn expand(
    context: &Context,
    call: &Call,
    id: &VolumeId,
    range: &SizeRange,
    secrets: &Secrets,
) -> Result<u64> {
    let at = context.locate(&id.place, secrets)?;
    let pool = context.pool(call, &at);
    let info = existing_volume(&pool, id)?;
    let size = Bounds { smallest: BLOCK, largest: info.largest, fs_type: None }
        .of_expanded(range, info.size)
        .map_err(|error| error.context(format_args!("expand volume {id}")))?;
    if size > info.size {
        refuse_secondary(id, &info, "expanded")?;
    }
    if size > info.size && pool.resize(&id.object, size)? == Changed::Absent {
        existing_volume(&pool, id)?;
        return Err(Error::unavailable(format!("volume {id} was replaced during this call: try again")));
    }
    Ok(size)
}
