//! Limits of a volume that can be changed while it is used: operations and bytes a second.

use crate::backend::rbd::Rbd;
use crate::backend::rbd::parameters;
use crate::backend::rbd::tool::Changed;
use crate::call::Call;
use crate::csi::Map;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Rbd {
    pub(crate) fn modify_volume(
        &self,
        call: &Call,
        id: &VolumeId,
        parameters: &Map,
        secrets: &Secrets,
    ) -> Result<()> {
        let limits = parameters::limits(parameters)?;
        let limits: Vec<_> = limits.iter().map(|(key, limit)| (parameters::setting(key), *limit)).collect();
        let spot = self.spot(&id.place, secrets)?;
        self.existing(call, &spot, id)?;
        if !limits.is_empty() && self.tool.set_limits(call, &spot, &id.object, &limits)? == Changed::Absent {
            // Deleted at this moment: says so.
            self.existing(call, &spot, id)?;
        }
        Ok(())
    }
}
