//! csi.v1.SnapshotMetadata: not offered. Its rpcs say so, and the plugin's capabilities do not claim it.

use crate::error::{Error, Result};
use crate::grpc::proto::csi_v1 as wire;
use crate::grpc::stream::Chunks;

/// Answers UNIMPLEMENTED.
#[derive(Debug)]
pub struct SnapshotMetadata;

fn not_offered<R>() -> Result<R> {
    Err(Error::unimplemented("lists of the blocks of a snapshot are not offered"))
}

impl wire::SnapshotMetadata for SnapshotMetadata {
    fn get_metadata_allocated(
        &self,
        _: wire::GetMetadataAllocatedRequest,
    ) -> Result<Chunks<wire::GetMetadataAllocatedResponse>> {
        not_offered()
    }

    fn get_metadata_delta(
        &self,
        _: wire::GetMetadataDeltaRequest,
    ) -> Result<Chunks<wire::GetMetadataDeltaResponse>> {
        not_offered()
    }
}
