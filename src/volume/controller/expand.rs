//! Making a volume larger.

use crate::dispatch::Call;
use crate::error::Result;
use crate::volume::Operations;
use crate::volume::request::Expand;

impl Operations {
    /// Makes the volume at least as large as asked; returns its size in bytes, and whether the nodes that use
    /// it have to follow.
    pub fn expand(&self, call: &Call, request: &Expand) -> Result<(u64, bool)> {
        let (id, backend) = request.volume.get()?;
        let size = backend.volumes().expand(call, id, &request.size, &request.secrets)?;
        Ok((size, backend.traits().grows_on_nodes))
    }
}
