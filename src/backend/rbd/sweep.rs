//! Being written.

use super::Rbd;
use crate::error::{Error, Result};

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn sweep(&self) -> Result<()> {
        Err(unfinished())
    }
}
