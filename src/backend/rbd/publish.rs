//! Being written.

use super::Rbd;
use crate::backend::Publication;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::terms::Map;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn publish_volume(&self, _: &Call, _: &VolumeId, _: &Publication, _: &Secrets) -> Result<Map> {
        Err(unfinished())
    }

    pub(super) fn unpublish_volume(&self, _: &Call, _: &VolumeId, _: Option<&str>, _: &Secrets) -> Result<()> {
        Err(unfinished())
    }
}
