//! Being written.

use super::Rbd;
use super::tool::Spot;
use crate::backend::{BeginWith, Deleted};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn delete_volume(&self, _: &Call, _: &VolumeId, _: &Secrets, _: BeginWith<'_>) -> Result<Deleted> {
        Err(unfinished())
    }

    pub(super) fn release_held(&self, call: &Call, spot: &Spot, id: &str) -> Result<()> {
        self.tool.remove(call, spot, &format!("csi-held-{id}")).map(drop)
    }
}
