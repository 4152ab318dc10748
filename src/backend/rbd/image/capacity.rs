//! Space for new volumes.

use crate::backend::Capacity;
use crate::backend::ceph::domains::Wishes;
use crate::backend::parameters::fs_type_for;
use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::place::asked;
use crate::backend::rbd::image::spec::bounds;
use crate::backend::rbd::parameters::Settings;
use crate::backend::size::round_down;
use crate::csi::{Capability, Map};
use crate::dispatch::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// What the data pool can still take, with its copies and its quota taken into account. Images take only what
/// is written to them, so a larger one could be made, but not filled.
pub(crate) fn capacity(
    context: &Context,
    call: &Call,
    parameters: &Map,
    uses: &[Capability],
    topology: Option<&Map>,
) -> Result<Capacity> {
    let settings = Settings::parse(parameters, &Map::new())?;
    let plugin = &context.identity.plugin;
    let wishes = topology.map(|segments| Wishes::within(plugin, segments)).unwrap_or_default();
    let space = match settings.leave_pool_to(&wishes) {
        true => {
            let at = context.locate(&settings.registry(&context.clusters)?, &Secrets::default())?;
            context.memory.domains.room(&asked(&context.pool(call, &at), &settings, &wishes))?
        }
        false => {
            let at = context.locate(&settings.place(&context.clusters)?, &Secrets::default())?;
            let by_default = context.pool(call, &at).options()?.data_pool;
            let data_pool = settings.layout.data_pool.clone().or(by_default);
            context.tool.free_space(call, &at, data_pool.as_deref().unwrap_or(&at.pool))?
        }
    };
    let available = if space.full { 0 } else { space.available };
    let fs_type = fs_type_for(settings.fs_type.as_deref(), uses);
    let bounds = bounds(&settings, uses, fs_type.as_deref());
    let largest = round_down(available).min(bounds.largest);
    Ok(Capacity { available, largest, smallest: bounds.least() })
}
