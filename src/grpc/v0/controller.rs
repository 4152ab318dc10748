//! csi.Controller.

use protobuf::{EnumOrUnknown, MessageField};

use crate::backend::{Service, Unpublished, Volume};
use crate::error::{Error, Result};
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::proto::csi as wire;
use crate::grpc::v0::{decode, encode};
use crate::volume::lock_keys::LockSet;
use crate::volume::request::{
    ControllerPublish, ControllerUnpublish, CreateVolume, DeleteVolume, GetCapacity, Map, PageRequest,
    TopologyRequirement, Validate, validate,
};
use crate::volume::{Listed, Verdict};

impl Services {
    /// If this copy does not serve the controller, every rpc refuses with that reason.
    fn admit_to_controller(&self, version: &MessageField<wire::Version>) -> Result<()> {
        self.ensure_controller()?;
        decode::version(version)
    }
}

/// The optional capabilities of the controller: all are offered.
fn offered() -> Vec<wire::controller_service_capability::rpc::Type> {
    use wire::controller_service_capability::rpc::Type;
    vec![Type::CREATE_DELETE_VOLUME, Type::PUBLISH_UNPUBLISH_VOLUME, Type::LIST_VOLUMES, Type::GET_CAPACITY]
}

/// Makes, gives, looks at and deletes volumes.
impl wire::Controller for Services {
    fn create_volume(&self, (caller, request): Asked<wire::CreateVolumeRequest>) -> Answer {
        self.admit_to_controller(&request.version)?;
        let request = CreateVolume {
            name: request.name,
            size: decode::size(&request.capacity_range)?,
            capabilities: decode::capabilities(request.volume_capabilities)?,
            parameters: decode::map("parameters", request.parameters)?,
            mutable_parameters: Map::new(),
            secrets: decode::credentials(request.user_credentials)?,
            source: None,
            topology: TopologyRequirement::default(),
        }
        .checked()?;
        let new = self.operations.plan_creation(request)?;
        let locks = self.operations.locks_of_creation(&new);
        caller.run(locks, new, |call, new| {
            let volume = self.operations.create(call, new)?;
            Ok(wire::CreateVolumeResponse { volume_info: encode::volume(volume), ..Default::default() })
        })
    }

    fn delete_volume(&self, (caller, request): Asked<wire::DeleteVolumeRequest>) -> Answer {
        self.admit_to_controller(&request.version)?;
        let secrets = decode::credentials(request.user_credentials)?;
        // A deletion has to release the storage.
        let volume = self.operations.controller_volume(request.volume_id);
        let request = DeleteVolume { volume, snapshots_may_outlive: false, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            // The deletion of a missing volume succeeds.
            self.operations.delete(call, request).map(|_| Default::default())
        })
    }

    fn controller_publish_volume(
        &self,
        (caller, request): Asked<wire::ControllerPublishVolumeRequest>,
    ) -> Answer {
        self.admit_to_controller(&request.version)?;
        let request = ControllerPublish {
            volume: self.operations.controller_volume(request.volume_id),
            node_id: decode::node_id(request.node_id)?,
            capability: decode::capability(request.volume_capability)?,
            read_only: request.readonly,
            secrets: decode::credentials(request.user_credentials)?,
            volume_context: decode::map("volume_attributes", request.volume_attributes)?,
        }
        .checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let publish_volume_info =
                self.operations.controller_publish(call, request)?.into_iter().collect();
            Ok(wire::ControllerPublishVolumeResponse { publish_volume_info, ..Default::default() })
        })
    }

    fn controller_unpublish_volume(
        &self,
        (caller, request): Asked<wire::ControllerUnpublishVolumeRequest>,
    ) -> Answer {
        self.admit_to_controller(&request.version)?;
        let (node_id, secrets) =
            (decode::node_id(request.node_id)?, decode::credentials(request.user_credentials)?);
        let volume = self.operations.controller_volume(request.volume_id);
        let request = ControllerUnpublish { volume, node_id, secrets }.checked()?;
        caller.run(request.volume.locks()?, request, |call, request| {
            match self.operations.controller_unpublish(call, request)? {
                Unpublished::Done => Ok(Default::default()),
                Unpublished::NoVolume => Err(request.volume.absent()),
                Unpublished::NoNode => Err(Error::not_found(format!(
                    "there is no node {:?} that volume {} could be published to",
                    request.node_id, request.volume.text
                ))),
            }
        })
    }

    fn validate_volume_capabilities(
        &self,
        (caller, request): Asked<wire::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer {
        self.admit_to_controller(&request.version)?;
        let request = Validate {
            volume: self.operations.controller_volume(request.volume_id),
            capabilities: decode::capabilities(request.volume_capabilities)?,
            volume_context: decode::map("volume_attributes", request.volume_attributes)?,
            parameters: Map::new(),
            mutable_parameters: Map::new(),
            secrets: Default::default(),
        }
        .checked()?;
        validate::one_file_system(&request.capabilities, &request.parameters)?;
        caller.run(request.volume.locks()?, request, |call, request| {
            let (supported, message) = match self.operations.validate(call, request)? {
                Verdict::Confirmed => (true, String::new()),
                Verdict::Refused(reason) => (false, encode::text(reason)),
                Verdict::OtherContext(key) => {
                    (false, encode::text(format!("volume_attributes has another {key:?} than the volume")))
                }
            };
            Ok(wire::ValidateVolumeCapabilitiesResponse { supported, message, ..Default::default() })
        })
    }

    fn list_volumes(&self, (caller, request): Asked<wire::ListVolumesRequest>) -> Answer {
        self.admit_to_controller(&request.version)?;
        let page = PageRequest {
            max_entries: decode::max_entries(request.max_entries),
            token: request.starting_token,
        }
        .checked()?;
        caller.run(LockSet::everything(), page, |call, page| {
            let Listed { entries, next_token } = self.operations.list(call, page)?;
            let entries = entries.into_iter().map(entry).collect();
            Ok(wire::ListVolumesResponse { entries, next_token, ..Default::default() })
        })
    }

    fn get_capacity(&self, (caller, request): Asked<wire::GetCapacityRequest>) -> Answer {
        self.admit_to_controller(&request.version)?;
        let request = GetCapacity {
            capabilities: decode::capabilities(request.volume_capabilities)?,
            parameters: decode::map("parameters", request.parameters)?,
            topology: None,
        }
        .checked()?;
        caller.run(LockSet::everything(), request, |call, request| {
            let available_capacity = self.operations.capacity(call, request)?.available;
            Ok(wire::GetCapacityResponse { available_capacity, ..Default::default() })
        })
    }

    fn controller_probe(&self, (caller, request): Asked<wire::ControllerProbeRequest>) -> Answer {
        self.admit_to_controller(&request.version)?;
        self.operations.health(Service::Controller)?;
        caller.reply(Default::default())
    }

    fn controller_get_capabilities(
        &self,
        (caller, request): Asked<wire::ControllerGetCapabilitiesRequest>,
    ) -> Answer {
        use wire::controller_service_capability::{RPC, Type};
        self.admit_to_controller(&request.version)?;
        let capability = |kind| {
            let rpc = RPC { type_: EnumOrUnknown::new(kind), ..Default::default() };
            wire::ControllerServiceCapability { type_: Some(Type::Rpc(rpc)), ..Default::default() }
        };
        let capabilities = offered().into_iter().map(capability).collect();
        caller.reply(wire::ControllerGetCapabilitiesResponse { capabilities, ..Default::default() })
    }
}

fn entry(volume: Volume) -> wire::list_volumes_response::Entry {
    wire::list_volumes_response::Entry { volume_info: encode::volume(volume), ..Default::default() }
}
