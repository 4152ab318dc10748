//! Volumes whose deletion would free nothing, because their snapshots need the image: it would only get another name.

use super::Rbd;
use super::names::COPY;
use super::tool::Image;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Rbd {
    /// Refuses a volume with snapshots, whoever took them. One that is gone has none.
    pub(super) fn refuse_live_snapshots(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<()> {
        let spot = self.spot(&id.place, secrets)?;
        let Some(info) = self.look_up(call, &spot, id)? else { return Ok(()) };
        if info.snapshots == 0 {
            return Ok(());
        }
        let snapshots = self.tool.snapshots(call, &spot, Image::Id(&info.id))?.unwrap_or_default();
        // What a copy in the making or a killed one left goes with the image.
        let live = snapshots.iter().filter(|it| !it.trashed && !it.name.starts_with(COPY));
        let names: Vec<&str> = live.map(|it| it.name.as_str()).collect();
        match names.is_empty() {
            true => Ok(()),
            false => Err(Error::precondition(format!(
                "delete volume {id}: its storage cannot be freed, it has the snapshots {}: delete them first",
                names.join(", ")
            ))),
        }
    }
}
