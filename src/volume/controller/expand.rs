//! Making a volume larger. The node has to follow.

use crate::dispatch::Call;
use crate::error::Result;
use crate::volume::Operations;
use crate::volume::request::Expand;

impl Operations {
    /// Makes the volume at least as large as asked; returns its size in bytes. The node has to follow.
    pub fn expand(&self, call: &Call, request: &Expand) -> Result<u64> {
        let (id, backend) = request.volume.get()?;
        backend.volumes().expand(call, id, &request.size, &request.secrets)
    }
}
