//! replication.Controller of csi-addons.

use std::collections::HashMap;
use std::time::Duration;

use protobuf::well_known_types::duration::Duration as WireDuration;
use protobuf::{EnumOrUnknown, Message, MessageField};

use crate::backend::{ReplicationHealth, ReplicationInfo};
use crate::dispatch::Call;
use crate::error::Result;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked, Caller};
use crate::grpc::proto::replication as wire;
use crate::grpc::v1::decode::{map, secrets};
use crate::grpc::v1::encode;
use crate::volume::VolumeTarget;
use crate::volume::lock_keys::LockSet;
use crate::volume::request::{
    ReplicatedObject, ReplicationParameters, ReplicationRequest, replicated_volume,
};

/// Strings as in messages.
type Strings = HashMap<String, String>;

/// How a request names its volume: the older field, and the newer.
type Named = (String, MessageField<wire::ReplicationSource>);

/// What else a request says: parameters, secrets, and whether to act by force.
type Settings = (Strings, Strings, bool);

impl Services {
    /// A change, which holds the volume's lock.
    fn change_replication<R: Message>(
        &self,
        caller: Caller<'_, R>,
        named: Named,
        settings: Settings,
        work: impl FnOnce(&Call, &ReplicationRequest) -> Result<R>,
    ) -> Answer {
        let request = request(named, |id| self.operations.controller_volume(id), settings)?;
        caller.run(request.volume.locks()?, request, work)
    }

    /// A read-only request, which is answered even while a change takes its time.
    fn ask_of_replication<R: Message>(
        &self,
        caller: Caller<'_, R>,
        named: Named,
        secrets: Strings,
        work: impl FnOnce(&Call, &ReplicationRequest) -> Result<R>,
    ) -> Answer {
        let settings = (Strings::new(), secrets, false);
        let request = request(named, |id| self.operations.volume(id), settings)?;
        let occupied = LockSet { keys: Vec::new(), ..request.volume.locks()? };
        caller.run(occupied, request, work)
    }
}

fn request(
    (volume_id, source): Named,
    volume: impl FnOnce(String) -> VolumeTarget,
    (parameters, credentials, force): Settings,
) -> Result<ReplicationRequest> {
    ReplicationRequest {
        volume: volume(replicated_volume(volume_id, source.into_option().and_then(object))?),
        force,
        parameters: ReplicationParameters::parse(&map(parameters))?,
        secrets: secrets(credentials),
    }
    .checked()
}

fn object(source: wire::ReplicationSource) -> Option<ReplicatedObject> {
    use wire::replication_source::Type;
    Some(match source.type_? {
        Type::Volume(volume) => ReplicatedObject::Volume(volume.volume_id),
        Type::Volumegroup(group) => ReplicatedObject::Group(group.volume_group_id),
    })
}

/// Replicates volumes to other clusters.
impl wire::Controller for Services {
    fn enable_volume_replication(
        &self,
        (caller, request): Asked<wire::EnableVolumeReplicationRequest>,
    ) -> Answer {
        let named = (request.volume_id, request.replication_source);
        let settings = (request.parameters, request.secrets, false);
        self.change_replication(caller, named, settings, |call, request| {
            self.operations.enable_replication(call, request).map(|()| Default::default())
        })
    }

    fn disable_volume_replication(
        &self,
        (caller, request): Asked<wire::DisableVolumeReplicationRequest>,
    ) -> Answer {
        let named = (request.volume_id, request.replication_source);
        let settings = (request.parameters, request.secrets, false);
        self.change_replication(caller, named, settings, |call, request| {
            self.operations.disable_replication(call, request).map(|()| Default::default())
        })
    }

    fn promote_volume(&self, (caller, request): Asked<wire::PromoteVolumeRequest>) -> Answer {
        let named = (request.volume_id, request.replication_source);
        let settings = (request.parameters, request.secrets, request.force);
        self.change_replication(caller, named, settings, |call, request| {
            self.operations.promote(call, request).map(|()| Default::default())
        })
    }

    fn demote_volume(&self, (caller, request): Asked<wire::DemoteVolumeRequest>) -> Answer {
        let named = (request.volume_id, request.replication_source);
        let settings = (request.parameters, request.secrets, request.force);
        self.change_replication(caller, named, settings, |call, request| {
            self.operations.demote(call, request).map(|()| Default::default())
        })
    }

    fn resync_volume(&self, (caller, request): Asked<wire::ResyncVolumeRequest>) -> Answer {
        let named = (request.volume_id, request.replication_source);
        let settings = (request.parameters, request.secrets, request.force);
        self.change_replication(caller, named, settings, |call, request| {
            let ready = self.operations.resync(call, request)?;
            Ok(wire::ResyncVolumeResponse { ready, ..Default::default() })
        })
    }

    fn get_volume_replication_info(
        &self,
        (caller, request): Asked<wire::GetVolumeReplicationInfoRequest>,
    ) -> Answer {
        let named = (request.volume_id, request.replication_source);
        self.ask_of_replication(caller, named, request.secrets, |call, request| {
            self.operations.replication_info(call, request).map(info)
        })
    }

    fn get_replication_destination_info(
        &self,
        (caller, request): Asked<wire::GetReplicationDestinationInfoRequest>,
    ) -> Answer {
        let named = (String::new(), request.replication_source);
        self.ask_of_replication(caller, named, request.secrets, |call, request| {
            self.operations.replication_destination(call, request).map(destination)
        })
    }
}

/// Unknown fields stay unset.
fn info(info: ReplicationInfo) -> wire::GetVolumeReplicationInfoResponse {
    use wire::get_volume_replication_info_response::Status;
    let status = match info.health {
        ReplicationHealth::Healthy => Status::HEALTHY,
        ReplicationHealth::Degraded => Status::DEGRADED,
        ReplicationHealth::Error => Status::ERROR,
    };
    wire::GetVolumeReplicationInfoResponse {
        last_sync_time: info.last_sync.map(encode::timestamp).into(),
        last_sync_duration: info.duration.map(duration).into(),
        last_sync_bytes: info.bytes.map(encode::bytes).unwrap_or_default(),
        status: EnumOrUnknown::new(status),
        status_message: info.message,
        ..Default::default()
    }
}

fn duration(duration: Duration) -> WireDuration {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    WireDuration { seconds, ..Default::default() }
}

fn destination(volume_id: String) -> wire::GetReplicationDestinationInfoResponse {
    use wire::replication_destination::{Type, VolumeDestination};
    let volume = VolumeDestination { volume_id, ..Default::default() };
    let destination =
        wire::ReplicationDestination { type_: Some(Type::Volume(volume)), ..Default::default() };
    wire::GetReplicationDestinationInfoResponse {
        replication_destination: MessageField::some(destination),
        ..Default::default()
    }
}
