//! Being written.

use super::Rbd;
use crate::backend::{Capacity, Part, Volume};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::terms::Map;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn list_volumes(&self, _: &Call, _: &str, _: usize) -> Result<Part<Volume>> {
        Err(unfinished())
    }

    pub(super) fn room_for(&self, _: &Call, _: &Map) -> Result<Capacity> {
        Err(unfinished())
    }
}
