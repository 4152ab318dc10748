//! Being written.

use super::Rbd;
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
}
