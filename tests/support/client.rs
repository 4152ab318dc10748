//! Clients for a daemon's socket: one method for each rpc, with a deadline that only a hang reaches.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use cephlet::proto::csi_v1 as wire;
use grpcio::{CallOption, Channel, ChannelBuilder, Environment, RpcStatusCode};

use super::PATIENCE;

/// gRPC's own thread, one for all clients of a test binary.
static ENVIRONMENT: LazyLock<Arc<Environment>> = LazyLock::new(|| Arc::new(Environment::new(1)));

/// A call that was answered with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: RpcStatusCode,
    pub message: String,
}

impl From<grpcio::Error> for Failure {
    fn from(error: grpcio::Error) -> Self {
        match error {
            grpcio::Error::RpcFailure(status) => {
                // CSI, "Error Scheme". gRPC gives no reason for not knowing a service.
                let reasoned = !status.message().is_empty() || status.code() == RpcStatusCode::UNIMPLEMENTED;
                assert!(status.details().is_empty() && reasoned, "{status:?}");
                Self { code: status.code(), message: status.message().to_string() }
            }
            other => panic!("not an answer: {other}"),
        }
    }
}

/// What a call comes to.
pub type Answer<T> = Result<T, Failure>;

/// Asserts that a call was refused with this code and a message that contains all of `parts`; gives the
/// message.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Answer<T>, code: RpcStatusCode, parts: &[&str]) -> String {
    match answer {
        Ok(answer) => panic!("accepted with {answer:?}, should have been {code}"),
        Err(failure) => {
            assert_eq!(failure.code, code, "{}", failure.message);
            let missing: Vec<&&str> = parts.iter().filter(|part| !failure.message.contains(**part)).collect();
            assert!(missing.is_empty(), "{:?} should mention {missing:?}", failure.message);
            failure.message
        }
    }
}

/// A connection of its own to a socket. Clones share it.
#[derive(Clone)]
pub struct Client {
    pub channel: Channel,
    identity: wire::IdentityClient,
    controller: wire::ControllerClient,
    node: wire::NodeClient,
}

/// The methods of a `Client` for the rpcs of its services, whichever messages `wire` is.
macro_rules! rpcs {
    ($($service:ident { $($rpc:ident: $request:ident => $reply:ident,)* })*) => {
        impl Client {
            $($(pub fn $rpc(&self, request: &wire::$request) -> Answer<wire::$reply> {
                self.$service.$rpc(request, CallOption::default().timeout(PATIENCE)).map_err(Failure::from)
            })*)*
        }
    };
}
pub(super) use rpcs;

rpcs! {
    identity {
        get_plugin_info: GetPluginInfoRequest => GetPluginInfoResponse,
        get_plugin_capabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse,
        probe: ProbeRequest => ProbeResponse,
    }
    controller {
        create_volume: CreateVolumeRequest => CreateVolumeResponse,
        delete_volume: DeleteVolumeRequest => DeleteVolumeResponse,
        controller_publish_volume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse,
        controller_unpublish_volume: ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse,
        validate_volume_capabilities: ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse,
        list_volumes: ListVolumesRequest => ListVolumesResponse,
        get_capacity: GetCapacityRequest => GetCapacityResponse,
        controller_get_capabilities: ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse,
        create_snapshot: CreateSnapshotRequest => CreateSnapshotResponse,
        delete_snapshot: DeleteSnapshotRequest => DeleteSnapshotResponse,
        list_snapshots: ListSnapshotsRequest => ListSnapshotsResponse,
        get_snapshot: GetSnapshotRequest => GetSnapshotResponse,
        controller_expand_volume: ControllerExpandVolumeRequest => ControllerExpandVolumeResponse,
        controller_get_volume: ControllerGetVolumeRequest => ControllerGetVolumeResponse,
        controller_modify_volume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse,
    }
    node {
        node_stage_volume: NodeStageVolumeRequest => NodeStageVolumeResponse,
        node_unstage_volume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse,
        node_publish_volume: NodePublishVolumeRequest => NodePublishVolumeResponse,
        node_unpublish_volume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse,
        node_get_volume_stats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse,
        node_expand_volume: NodeExpandVolumeRequest => NodeExpandVolumeResponse,
        node_get_capabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse,
        node_get_info: NodeGetInfoRequest => NodeGetInfoResponse,
    }
}

impl Client {
    /// Connects to the socket at `path`. The connection is shared with no other client: gRPC would otherwise
    /// make a new client wait out the back-off of an old one whose daemon was killed.
    pub fn connect(path: &Path) -> Self {
        Self::connect_by(path, |builder| builder)
    }

    /// The same with this `:authority` in its calls.
    pub fn connect_as(path: &Path, authority: &str) -> Self {
        Self::connect_by(path, |builder| builder.default_authority(authority))
    }

    fn connect_by(path: &Path, options: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Self {
        let builder = options(ChannelBuilder::new(Arc::clone(&ENVIRONMENT)).use_local_subchannel_pool(true));
        let channel = builder.connect(&format!("unix:{}", path.display()));
        Self {
            identity: wire::IdentityClient::new(channel.clone()),
            controller: wire::ControllerClient::new(channel.clone()),
            node: wire::NodeClient::new(channel.clone()),
            channel,
        }
    }

    /// Creates a volume; gives it.
    pub fn create(&self, request: &wire::CreateVolumeRequest) -> Answer<wire::Volume> {
        self.create_volume(request).map(|reply| reply.volume.into_option().expect("the reply has a volume"))
    }

    /// Whether the daemon says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.probe(&wire::ProbeRequest::default())
            .is_ok_and(|reply| reply.ready.as_ref().is_some_and(|ready| ready.value))
    }
}
