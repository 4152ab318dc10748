//! csi.v1.GroupController: not offered. Its rpcs say so, and the plugin's capabilities do not claim it.

use crate::error::{Error, Result};
use crate::grpc::bridge::{Caller, Encoded};
use crate::grpc::proto::csi_v1 as wire;

/// Answers UNIMPLEMENTED.
#[derive(Debug)]
pub struct GroupController;

fn not_offered<R>() -> Result<R> {
    Err(Error::unimplemented(
        "snapshots of groups of volumes are not offered: take one snapshot of each volume",
    ))
}

impl wire::GroupController for GroupController {
    fn group_controller_get_capabilities(
        &self,
        _: &Caller<'_>,
        _: wire::GroupControllerGetCapabilitiesRequest,
    ) -> Result<Encoded<wire::GroupControllerGetCapabilitiesResponse>> {
        not_offered()
    }

    fn create_volume_group_snapshot(
        &self,
        _: &Caller<'_>,
        _: wire::CreateVolumeGroupSnapshotRequest,
    ) -> Result<Encoded<wire::CreateVolumeGroupSnapshotResponse>> {
        not_offered()
    }

    fn delete_volume_group_snapshot(
        &self,
        _: &Caller<'_>,
        _: wire::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<Encoded<wire::DeleteVolumeGroupSnapshotResponse>> {
        not_offered()
    }

    fn get_volume_group_snapshot(
        &self,
        _: &Caller<'_>,
        _: wire::GetVolumeGroupSnapshotRequest,
    ) -> Result<Encoded<wire::GetVolumeGroupSnapshotResponse>> {
        not_offered()
    }
}
