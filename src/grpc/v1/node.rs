//! csi.v1.Node.

use protobuf::{EnumOrUnknown, MessageField};

use crate::error::Error;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::fields::path;
use crate::grpc::proto::csi_v1 as wire;
use crate::grpc::v1::{decode, encode};
use crate::volume::lock_keys::LockSet;
use crate::volume::request::{
    NodeExpand, NodePublish, NodePublishUnstaged, NodeStage, NodeUnpublish, NodeUnstage, NodeVolumeHealth,
    Stats,
};

/// The optional capabilities of the node. A mount group belongs to the record of a stage.
fn offered(stages: bool) -> Vec<wire::node_service_capability::rpc::Type> {
    use wire::node_service_capability::rpc::Type;
    let of_a_stage: &[Type] =
        if stages { &[Type::STAGE_UNSTAGE_VOLUME, Type::VOLUME_MOUNT_GROUP] } else { &[] };
    let others = [
        Type::GET_VOLUME_STATS,
        Type::EXPAND_VOLUME,
        Type::VOLUME_CONDITION,
        Type::SINGLE_NODE_MULTI_WRITER,
        Type::GET_VOLUME_HEALTH,
        Type::GET_STORAGE_HEALTH,
    ];
    of_a_stage.iter().copied().chain(others).collect()
}

impl Services {
    fn publish_unstaged(&self, (caller, request): Asked<wire::NodePublishVolumeRequest>) -> Answer {
        if decode::mount_group(&request.volume_capability)?.is_some() {
            return Err(Error::invalid("volume_mount_group is not offered while CEPHLET_STAGING is off"));
        }
        let request = NodePublishUnstaged {
            volume: self.operations.volume_to_use(request.volume_id),
            publish_context: decode::map(request.publish_context),
            target_path: path(request.target_path),
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::secrets(request.secrets),
            volume_context: decode::map(request.volume_context),
            by_operator: false,
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let published = self.operations.publish_unstaged(call, request);
            published.map(|()| Default::default())
        })
    }
}

/// Stages and publishes volumes on this node.
impl wire::Node for Services {
    fn node_stage_volume(&self, (caller, request): Asked<wire::NodeStageVolumeRequest>) -> Answer {
        let request = NodeStage {
            volume: self.operations.volume_to_use(request.volume_id),
            publish_context: decode::map(request.publish_context),
            staging_path: path(request.staging_target_path),
            mount_group: decode::mount_group(&request.volume_capability)?,
            capability: decode::capability(request.volume_capability)?,
            secrets: decode::secrets(request.secrets),
            volume_context: decode::map(request.volume_context),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.stage(call, request).map(|()| Default::default())
        })
    }

    fn node_unstage_volume(&self, (caller, request): Asked<wire::NodeUnstageVolumeRequest>) -> Answer {
        let volume = self.operations.volume_here(request.volume_id);
        let request = NodeUnstage { volume, staging_path: path(request.staging_target_path) }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.unstage(call, request).map(|()| Default::default())
        })
    }

    fn node_publish_volume(&self, (caller, request): Asked<wire::NodePublishVolumeRequest>) -> Answer {
        if !self.operations.stages && request.staging_target_path.is_empty() {
            return self.publish_unstaged((caller, request));
        }
        let request = NodePublish {
            volume: self.operations.volume_to_use(request.volume_id),
            publish_context: decode::map(request.publish_context),
            staging_path: path(request.staging_target_path),
            target_path: path(request.target_path),
            mount_group: decode::mount_group(&request.volume_capability)?,
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::secrets(request.secrets),
            volume_context: decode::map(request.volume_context),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.publish(call, request).map(|()| Default::default())
        })
    }

    fn node_unpublish_volume(&self, (caller, request): Asked<wire::NodeUnpublishVolumeRequest>) -> Answer {
        let (target_path, secrets) = (path(request.target_path), Default::default());
        let volume = self.operations.volume_here(request.volume_id);
        let request = NodeUnpublish { volume, target_path, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.unpublish(call, request).map(|()| Default::default())
        })
    }

    fn node_get_volume_stats(&self, (caller, request): Asked<wire::NodeGetVolumeStatsRequest>) -> Answer {
        let volume = self.operations.volume(request.volume_id);
        let request = Stats { volume, volume_path: path(request.volume_path) }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let usage = self.operations.stats(call, request)?;
            let volume_condition = encode::condition(usage.condition.clone(), None);
            Ok(wire::NodeGetVolumeStatsResponse {
                usage: encode::usage(&usage),
                volume_condition,
                ..Default::default()
            })
        })
    }

    fn node_get_volume_health(&self, (caller, request): Asked<wire::NodeGetVolumeHealthRequest>) -> Answer {
        let request = NodeVolumeHealth {
            volume: self.operations.volume(request.volume_id),
            publish_path: path(request.volume_publish_path),
            staging_path: path(request.staging_target_path),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let condition = self.operations.node_health(call, request)?;
            let health = encode::health(request.volume.text.clone(), condition);
            let volume_health = MessageField::some(health);
            Ok(wire::NodeGetVolumeHealthResponse { volume_health, ..Default::default() })
        })
    }

    /// A monitor answers before it is told a secret, so none is needed.
    fn node_get_storage_health(&self, (caller, _): Asked<wire::NodeGetStorageHealthRequest>) -> Answer {
        caller.run(LockSet::of_storage_health(), (), |_, ()| {
            let faults = self.operations.storage_health();
            let backend_health = faults.into_iter().map(encode::storage_health).collect();
            Ok(wire::NodeGetStorageHealthResponse { backend_health, ..Default::default() })
        })
    }

    fn node_expand_volume(&self, (caller, request): Asked<wire::NodeExpandVolumeRequest>) -> Answer {
        let request = NodeExpand {
            volume: self.operations.volume(request.volume_id),
            volume_path: path(request.volume_path),
            size: decode::size(&request.capacity_range)?,
            capability: decode::optional_capability(request.volume_capability)?,
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let capacity_bytes = encode::bytes(self.operations.node_expand(call, request)?);
            Ok(wire::NodeExpandVolumeResponse { capacity_bytes, ..Default::default() })
        })
    }

    fn node_get_capabilities(&self, (caller, _): Asked<wire::NodeGetCapabilitiesRequest>) -> Answer {
        use wire::node_service_capability::{RPC, Type};
        let capability = |kind| {
            let rpc = RPC { type_: EnumOrUnknown::new(kind), ..Default::default() };
            wire::NodeServiceCapability { type_: Some(Type::Rpc(rpc)), ..Default::default() }
        };
        let capabilities = offered(self.operations.stages).into_iter().map(capability).collect();
        caller.reply(wire::NodeGetCapabilitiesResponse { capabilities, ..Default::default() })
    }

    fn node_get_info(&self, (caller, _): Asked<wire::NodeGetInfoRequest>) -> Answer {
        let segments = self.operations.segments();
        let accessible_topology = match segments.is_empty() {
            true => MessageField::none(),
            false => MessageField::some(encode::topology(segments)),
        };
        caller.reply(wire::NodeGetInfoResponse {
            node_id: self.operations.node_id.clone(),
            accessible_topology,
            ..Default::default()
        })
    }
}
