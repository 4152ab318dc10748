//! Space for new volumes.

use crate::backend::Capacity;
use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::size::SIZE_ALIGNMENT;
use crate::backend::rbd::parameters::Settings;
use crate::call::Call;
use crate::csi::Map;
use crate::error::Result;
use crate::secrets::Secrets;

/// What the pool that takes the data still takes: copies taken off, quota included. Images take what is
/// written to them, so a larger one could be made, but not filled.
pub(crate) fn capacity(context: &Context, call: &Call, parameters: &Map) -> Result<Capacity> {
    let settings = Settings::parse(parameters, &Map::new())?;
    let place = settings.place(&context.clusters)?;
    let at = context.locate(&place, &Secrets::default())?;
    let pool = settings.layout.data_pool.as_deref().unwrap_or(&at.pool);
    let space = context.tool.free_space(call, &at, pool)?;
    let available = if space.full { 0 } else { space.available };
    let largest = available.min(i64::MAX as u64) / SIZE_ALIGNMENT * SIZE_ALIGNMENT;
    Ok(Capacity { available, largest, smallest: SIZE_ALIGNMENT })
}
