//! csi.v1.Controller.

use std::time::Duration;

use protobuf::well_known_types::wrappers::Int64Value;
use protobuf::{EnumOrUnknown, MessageField};

use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::proto::csi_v1 as wire;
use crate::grpc::v1::{decode, encode};
use crate::secrets::Secrets;
use crate::volume::lock_keys::LockSet;
use crate::volume::request::{
    ControllerPublish, ControllerUnpublish, CreateSnapshot, CreateVolume, DeleteVolume, Expand, GetCapacity,
    GetVolume, ListHealth, ListSnapshots, Modify, PageRequest, SnapshotById, Validate,
};
use crate::volume::{Listed, Verdict};

/// How long volumes are looked at for a page of their health: each look takes some questions to a cluster,
/// and an orchestrator waits for an answer some ten seconds.
const LOOKING: Duration = Duration::from_secs(5);

/// The optional capabilities of the controller. A list without the nodes of some volumes would claim that no
/// node has them.
fn offered(lists_nodes: bool) -> Vec<wire::controller_service_capability::rpc::Type> {
    use wire::controller_service_capability::rpc::Type;
    let mut offered = vec![
        Type::CREATE_DELETE_VOLUME,
        Type::PUBLISH_UNPUBLISH_VOLUME,
        Type::LIST_VOLUMES,
        Type::GET_CAPACITY,
        Type::CREATE_DELETE_SNAPSHOT,
        Type::LIST_SNAPSHOTS,
        Type::CLONE_VOLUME,
        Type::PUBLISH_READONLY,
        Type::EXPAND_VOLUME,
        Type::VOLUME_CONDITION,
        Type::GET_VOLUME,
        Type::SINGLE_NODE_MULTI_WRITER,
        Type::MODIFY_VOLUME,
        Type::GET_SNAPSHOT,
        Type::GET_VOLUME_HEALTH,
        Type::LIST_VOLUME_HEALTH,
    ];
    if lists_nodes {
        offered.push(Type::LIST_VOLUMES_PUBLISHED_NODES);
    }
    offered
}

/// Makes, gives, looks at and deletes volumes and snapshots.
impl wire::Controller for Services {
    fn create_volume(&self, (caller, request): Asked<wire::CreateVolumeRequest>) -> Answer {
        let request = CreateVolume {
            name: request.name,
            size: decode::size(&request.capacity_range)?,
            capabilities: decode::capabilities(request.volume_capabilities)?,
            parameters: decode::map(request.parameters),
            mutable_parameters: decode::map(request.mutable_parameters),
            secrets: decode::secrets(request.secrets),
            source: decode::source(request.volume_content_source)?,
            topology: decode::topology(request.accessibility_requirements),
        }
        .checked()?;
        let new = self.operations.plan_creation(request)?;
        let locks = self.operations.locks_of_creation(&new);
        caller.run(locks, new, |call, new| {
            let volume = MessageField::some(encode::volume(self.operations.create(call, new)?));
            Ok(wire::CreateVolumeResponse { volume, ..Default::default() })
        })
    }

    fn delete_volume(&self, (caller, request): Asked<wire::DeleteVolumeRequest>) -> Answer {
        let secrets = decode::secrets(request.secrets);
        let volume = self.operations.controller_volume(request.volume_id);
        let request = DeleteVolume { volume, snapshots_may_outlive: true, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            // In v1 the deletion of a missing volume succeeds.
            self.operations.delete(call, request).map(|_| Default::default())
        })
    }

    fn controller_publish_volume(
        &self,
        (caller, request): Asked<wire::ControllerPublishVolumeRequest>,
    ) -> Answer {
        let request = ControllerPublish {
            volume: self.operations.controller_volume(request.volume_id),
            node_id: request.node_id,
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::secrets(request.secrets),
            volume_context: decode::map(request.volume_context),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let context = self.operations.controller_publish(call, request)?;
            Ok(wire::ControllerPublishVolumeResponse {
                publish_context: context.into_iter().collect(),
                ..Default::default()
            })
        })
    }

    fn controller_unpublish_volume(
        &self,
        (caller, request): Asked<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer {
        let secrets = decode::secrets(request.secrets);
        let volume = self.operations.controller_volume(request.volume_id);
        let request = ControllerUnpublish { volume, node_id: request.node_id, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            // In v1 unpublishing succeeds if the volume or node is missing.
            self.operations.controller_unpublish(call, request).map(|_| Default::default())
        })
    }

    fn validate_volume_capabilities(
        &self,
        (caller, request): Asked<wire::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer {
        let request = Validate {
            volume: self.operations.controller_volume(request.volume_id),
            capabilities: decode::capabilities(request.volume_capabilities)?,
            volume_context: decode::map(request.volume_context),
            parameters: decode::map(request.parameters),
            mutable_parameters: decode::map(request.mutable_parameters),
            secrets: decode::secrets(request.secrets),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            Ok(verdict(self.operations.validate(call, request)?, request))
        })
    }

    fn list_volumes(&self, (caller, request): Asked<wire::ListVolumesRequest>) -> Answer {
        let max_entries = decode::max_entries(request.max_entries)?;
        let page = PageRequest { max_entries, token: request.starting_token }.checked()?;
        caller.run(LockSet::everything(), page, |call, page| {
            let Listed { entries, next_token } = self.operations.list(call, page)?;
            let entries = entries.into_iter().map(encode::volume_entry).collect();
            Ok(wire::ListVolumesResponse { entries, next_token, ..Default::default() })
        })
    }

    fn controller_list_volume_health(
        &self,
        (caller, request): Asked<wire::ControllerListVolumeHealthRequest>,
    ) -> Answer {
        let max_entries = decode::max_entries(request.max_entries)?;
        let page = PageRequest { max_entries, token: request.starting_token }.checked()?;
        let request = ListHealth { page, secrets: decode::secrets(request.secrets) }.checked()?;
        caller.run(LockSet::everything(), request, |call, request| {
            let Listed { entries, next_token } = self.operations.list_health(call, request, LOOKING)?;
            let entries =
                entries.into_iter().map(|(id, fault)| encode::health(id.to_string(), Some(fault))).collect();
            Ok(wire::ControllerListVolumeHealthResponse { entries, next_token, ..Default::default() })
        })
    }

    fn controller_get_volume_health(
        &self,
        (caller, request): Asked<wire::ControllerGetVolumeHealthRequest>,
    ) -> Answer {
        let volume = self.operations.controller_volume(request.volume_id);
        let request = GetVolume { volume, secrets: decode::secrets(request.secrets) }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let condition = self.operations.volume_health(call, request)?;
            let volume_health = MessageField::some(encode::health(request.volume.text.clone(), condition));
            Ok(wire::ControllerGetVolumeHealthResponse { volume_health, ..Default::default() })
        })
    }

    fn get_capacity(&self, (caller, request): Asked<wire::GetCapacityRequest>) -> Answer {
        let request = GetCapacity {
            capabilities: decode::capabilities(request.volume_capabilities)?,
            parameters: decode::map(request.parameters),
            topology: request
                .accessible_topology
                .into_option()
                .map(|topology| decode::map(topology.segments)),
        }
        .checked()?;
        caller.run(LockSet::everything(), request, |call, request| {
            let capacity = self.operations.capacity(call, request)?;
            let size =
                |bytes| MessageField::some(Int64Value { value: encode::bytes(bytes), ..Default::default() });
            Ok(wire::GetCapacityResponse {
                available_capacity: encode::bytes(capacity.available),
                maximum_volume_size: size(capacity.largest),
                minimum_volume_size: size(capacity.smallest),
                ..Default::default()
            })
        })
    }

    fn controller_get_capabilities(
        &self,
        (caller, _): Asked<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer {
        use wire::controller_service_capability::{RPC, Type};
        let capability = |kind| {
            let rpc = RPC { type_: EnumOrUnknown::new(kind), ..Default::default() };
            wire::ControllerServiceCapability { type_: Some(Type::Rpc(rpc)), ..Default::default() }
        };
        let lists_nodes =
            self.operations.backends.iter().all(|backend| backend.traits().lists_published_nodes);
        let capabilities = offered(lists_nodes).into_iter().map(capability).collect();
        caller.reply(wire::ControllerGetCapabilitiesResponse { capabilities, ..Default::default() })
    }

    fn create_snapshot(&self, (caller, request): Asked<wire::CreateSnapshotRequest>) -> Answer {
        let request = CreateSnapshot {
            source_volume_id: request.source_volume_id,
            name: request.name,
            parameters: decode::map(request.parameters),
            secrets: decode::secrets(request.secrets),
            topology: decode::topology(request.accessibility_requirements),
        }
        .checked()?;
        let new = self.operations.plan_snapshot(request)?;
        let locks = self.operations.locks_of_snapshot_creation(&new);
        caller.run(locks, new, |call, new| {
            let snapshot = MessageField::some(encode::snapshot(self.operations.create_snapshot(call, new)?));
            Ok(wire::CreateSnapshotResponse { snapshot, ..Default::default() })
        })
    }

    fn delete_snapshot(&self, (caller, request): Asked<wire::DeleteSnapshotRequest>) -> Answer {
        let snapshot = self.operations.controller_snapshot(request.snapshot_id);
        let request = SnapshotById { snapshot, secrets: decode::secrets(request.secrets) }.checked()?;
        caller.run(request.snapshot.locks()?, request, |call, request| {
            // In v1 the deletion of a missing snapshot succeeds.
            self.operations.delete_snapshot(call, request).map(|_| Default::default())
        })
    }

    fn list_snapshots(&self, (caller, request): Asked<wire::ListSnapshotsRequest>) -> Answer {
        let page = PageRequest {
            max_entries: decode::max_entries(request.max_entries)?,
            token: request.starting_token,
        }
        .checked()?;
        let request = ListSnapshots {
            page,
            source_volume_id: request.source_volume_id,
            snapshot_id: request.snapshot_id,
            secrets: decode::secrets(request.secrets),
        }
        .checked()?;
        caller.run(LockSet::everything(), request, |call, request| {
            let Listed { entries, next_token } = self.operations.list_snapshots(call, request)?;
            let entries = entries.into_iter().map(encode::snapshot_entry).collect();
            Ok(wire::ListSnapshotsResponse { entries, next_token, ..Default::default() })
        })
    }

    fn get_snapshot(&self, (caller, request): Asked<wire::GetSnapshotRequest>) -> Answer {
        let snapshot = self.operations.controller_snapshot(request.snapshot_id);
        let request = SnapshotById { snapshot, secrets: decode::secrets(request.secrets) }.checked()?;
        caller.run(request.snapshot.locks()?, request, |call, request| {
            let snapshot = MessageField::some(encode::snapshot(self.operations.get_snapshot(call, request)?));
            Ok(wire::GetSnapshotResponse { snapshot, ..Default::default() })
        })
    }

    fn controller_expand_volume(
        &self,
        (caller, request): Asked<wire::ControllerExpandVolumeRequest>,
    ) -> Answer {
        let request = Expand {
            volume: self.operations.controller_volume(request.volume_id),
            size: decode::size(&request.capacity_range)?,
            capability: decode::optional_capability(request.volume_capability)?,
            secrets: decode::secrets(request.secrets),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let (bytes, node_expansion_required) = self.operations.expand(call, request)?;
            Ok(wire::ControllerExpandVolumeResponse {
                capacity_bytes: encode::bytes(bytes),
                node_expansion_required,
                ..Default::default()
            })
        })
    }

    fn controller_get_volume(&self, (caller, request): Asked<wire::ControllerGetVolumeRequest>) -> Answer {
        let volume = self.operations.controller_volume(request.volume_id);
        let request = GetVolume { volume, secrets: Secrets::default() }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            Ok(encode::volume_with_status(self.operations.get(call, request)?))
        })
    }

    fn controller_modify_volume(
        &self,
        (caller, request): Asked<wire::ControllerModifyVolumeRequest>,
    ) -> Answer {
        let request = Modify {
            volume: self.operations.controller_volume(request.volume_id),
            mutable_parameters: decode::map(request.mutable_parameters),
            secrets: decode::secrets(request.secrets),
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            self.operations.modify(call, request).map(|()| Default::default())
        })
    }
}

fn verdict(verdict: Verdict, request: &Validate) -> wire::ValidateVolumeCapabilitiesResponse {
    use wire::validate_volume_capabilities_response::Confirmed;
    let refused = |message| wire::ValidateVolumeCapabilitiesResponse { message, ..Default::default() };
    match verdict {
        Verdict::Refused(message) => refused(message),
        Verdict::OtherContext(key) => {
            refused(format!("volume_context has {key:?} other than volume {}", request.volume.text))
        }
        Verdict::Confirmed => {
            let confirmed = MessageField::some(Confirmed {
                volume_context: request.volume_context.clone().into_iter().collect(),
                volume_capabilities: request.capabilities.iter().map(encode::capability).collect(),
                ..Default::default()
            });
            wire::ValidateVolumeCapabilitiesResponse { confirmed, ..Default::default() }
        }
    }
}
