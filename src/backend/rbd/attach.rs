//! Being written.

use super::Rbd;
use crate::backend::{Device, NodeContext};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn attach_volume(&self, _: &Call, _: &VolumeId, _: &NodeContext<'_>) -> Result<Device> {
        Err(unfinished())
    }

    pub(super) fn device_of(&self, _: &VolumeId) -> Result<Option<Device>> {
        Err(unfinished())
    }

    pub(super) fn detach_volume(&self, _: &Call, _: &VolumeId) -> Result<()> {
        Err(unfinished())
    }

    pub(super) fn refresh_device(&self, _: &Call, _: &VolumeId, _: &Device) -> Result<()> {
        Err(unfinished())
    }
}
