//! csi.Node.

use protobuf::MessageField;

use crate::backend::Service;
use crate::error::Result;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::fields::path;
use crate::grpc::proto::csi as wire;
use crate::grpc::v0::decode;
use crate::volume::request::{NodePublishUnstaged, NodeUnpublish};

impl Services {
    fn admit_to_node(&self, version: &MessageField<wire::Version>) -> Result<()> {
        self.ensure_node()?;
        decode::version(version)
    }
}

/// Publishes volumes on this node.
impl wire::Node for Services {
    fn node_publish_volume(&self, (caller, request): Asked<wire::NodePublishVolumeRequest>) -> Answer {
        self.admit_to_node(&request.version)?;
        let request = NodePublishUnstaged {
            volume: self.operations.volume_to_use(request.volume_id),
            publish_context: decode::map("publish_volume_info", request.publish_volume_info)?,
            target_path: path(request.target_path),
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::credentials(request.user_credentials)?,
            volume_context: decode::map("volume_attributes", request.volume_attributes)?,
            by_operator: false,
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.publish_unstaged(call, request).map(|()| Default::default())
        })
    }

    fn node_unpublish_volume(&self, (caller, request): Asked<wire::NodeUnpublishVolumeRequest>) -> Answer {
        self.admit_to_node(&request.version)?;
        let (target_path, secrets) =
            (path(request.target_path), decode::credentials(request.user_credentials)?);
        let volume = self.operations.volume_here(request.volume_id);
        let request = NodeUnpublish { volume, target_path, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.refuse_absent(call, request)?;
            self.operations.unpublish(call, request).map(|()| Default::default())
        })
    }

    fn get_node_id(&self, (caller, request): Asked<wire::GetNodeIDRequest>) -> Answer {
        self.admit_to_node(&request.version)?;
        caller
            .reply(wire::GetNodeIDResponse { node_id: self.operations.node_id.clone(), ..Default::default() })
    }

    fn node_probe(&self, (caller, request): Asked<wire::NodeProbeRequest>) -> Answer {
        self.admit_to_node(&request.version)?;
        self.operations.health(Service::Node)?;
        caller.reply(Default::default())
    }

    /// In this version a node has no optional capabilities.
    fn node_get_capabilities(&self, (caller, request): Asked<wire::NodeGetCapabilitiesRequest>) -> Answer {
        self.admit_to_node(&request.version)?;
        caller.reply(Default::default())
    }
}
