//! Being written.

use super::Rbd;
use super::tool::Info;
use super::volumes::Wanted;
use crate::backend::{Begin, Origin};
use crate::call::Call;
use crate::error::{Error, Result};

impl Rbd {
    pub(super) fn make_copy(&self, _: &Call, _: &Wanted<'_>, _: &Origin, _: Begin<'_>) -> Result<Info> {
        Err(Error::unimplemented("being written"))
    }
}
