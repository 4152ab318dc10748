//! csi.Node.

use std::sync::Arc;

use protobuf::MessageField;

use crate::backend::Service;
use crate::error::Result;
use crate::grpc::bridge::Plan;
use crate::grpc::operation::path;
use crate::grpc::proto::csi as wire;
use crate::grpc::v0::{decode, not_served, plan};
use crate::volume::Operations;
use crate::volume::request::{NodePublishUnstaged, NodeUnpublish};

/// Gives volumes to consumers on this node.
#[derive(Debug)]
pub struct Node {
    /// The operations.
    pub operations: Arc<Operations>,
    /// Whether this copy serves it. Otherwise every rpc says so: gRPC by itself would give no reason.
    pub served: bool,
}

impl Node {
    fn admit(&self, version: &MessageField<wire::Version>) -> Result<()> {
        if !self.served {
            return Err(not_served("node"));
        }
        decode::version(version)
    }
}

impl wire::Node for Node {
    fn node_publish_volume(
        &self,
        request: wire::NodePublishVolumeRequest,
    ) -> Result<Plan<wire::NodePublishVolumeResponse>> {
        self.admit(&request.version)?;
        let request = NodePublishUnstaged {
            volume_id: request.volume_id,
            publish_context: decode::map("publish_volume_info", request.publish_volume_info)?,
            target_path: path(request.target_path),
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::credentials(request.user_credentials)?,
            volume_context: decode::map("volume_attributes", request.volume_attributes)?,
        }
        .checked()?;
        let locks = self.operations.locks_of_volume(&request.volume_id);
        Ok(plan(&self.operations, locks, request, |operations, call, request| {
            operations.publish_unstaged(call, request).map(|()| wire::NodePublishVolumeResponse::default())
        }))
    }

    fn node_unpublish_volume(
        &self,
        request: wire::NodeUnpublishVolumeRequest,
    ) -> Result<Plan<wire::NodeUnpublishVolumeResponse>> {
        self.admit(&request.version)?;
        let (target_path, secrets) =
            (path(request.target_path), decode::credentials(request.user_credentials)?);
        let request = NodeUnpublish { volume_id: request.volume_id, target_path, secrets }.checked()?;
        let locks = self.operations.locks_of_volume(&request.volume_id);
        Ok(plan(&self.operations, locks, request, |operations, call, request| {
            operations.refuse_absent(call, &request.volume_id, &request.secrets)?;
            operations.unpublish(call, request).map(|()| wire::NodeUnpublishVolumeResponse::default())
        }))
    }

    fn get_node_id(&self, request: wire::GetNodeIDRequest) -> Result<Plan<wire::GetNodeIDResponse>> {
        self.admit(&request.version)?;
        Ok(Plan::now(wire::GetNodeIDResponse {
            node_id: self.operations.node_id.clone(),
            ..Default::default()
        }))
    }

    fn node_probe(&self, request: wire::NodeProbeRequest) -> Result<Plan<wire::NodeProbeResponse>> {
        self.admit(&request.version)?;
        self.operations.health(Service::Node)?;
        Ok(Plan::now(wire::NodeProbeResponse::default()))
    }

    /// There is nothing in this version that a node could offer or not.
    fn node_get_capabilities(
        &self,
        request: wire::NodeGetCapabilitiesRequest,
    ) -> Result<Plan<wire::NodeGetCapabilitiesResponse>> {
        self.admit(&request.version)?;
        Ok(Plan::now(wire::NodeGetCapabilitiesResponse::default()))
    }
}
