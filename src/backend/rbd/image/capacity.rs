//! Room for new volumes.

use crate::backend::Capacity;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::create::GRAIN;
use crate::backend::rbd::parameters::Settings;
use crate::call::Call;
use crate::csi::Map;
use crate::error::Result;
use crate::secrets::Secrets;

impl Rbd {
    /// What the pool that takes the data still takes: copies taken off, quota included. Images take what is
    /// written to them, so a larger one could be made, but not filled.
    pub(crate) fn room_for(&self, call: &Call, parameters: &Map) -> Result<Capacity> {
        let place = self.place_for(parameters, &Map::new())?;
        let settings = Settings::parse(parameters, &Map::new())?;
        let spot = self.spot(&place, &Secrets::default())?;
        let pool = settings.layout.data_pool.as_deref().unwrap_or(&spot.pool);
        let room = self.tool.room(call, &spot, pool)?;
        let available = if room.full { 0 } else { room.available };
        let largest = available.min(i64::MAX as u64) / GRAIN * GRAIN;
        Ok(Capacity { available, largest, smallest: GRAIN })
    }
}
