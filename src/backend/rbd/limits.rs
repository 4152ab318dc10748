//! Being written.

use super::Rbd;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::terms::Map;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn modify_volume(&self, _: &Call, _: &VolumeId, _: &Map, _: &Secrets) -> Result<()> {
        Err(unfinished())
    }
}
