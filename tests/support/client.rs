//! Clients for a daemon's socket: one method for each rpc, with a deadline that only a hang reaches.

use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cephlet::proto::{Rpc, csi_v1 as wire};
use grpcio::{
    CallOption, Channel, ChannelBuilder, Environment, Marshaller, Method, MethodType, RpcStatusCode,
};

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

/// The outcome of a call.
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

/// Calls the rpc that a request belongs to.
pub fn ask<Q: Rpc>(channel: &Channel, request: &Q, timeout: Duration) -> Answer<Q::Reply> {
    let req_mar = Marshaller { ser: grpcio::pb_ser, de: grpcio::pb_de };
    let resp_mar = Marshaller { ser: grpcio::pb_ser, de: grpcio::pb_de };
    let method = Method { ty: MethodType::Unary, name: Q::PATH, req_mar, resp_mar };
    let options = CallOption::default().timeout(timeout);
    grpcio::Client::new(channel.clone()).unary_call(&method, request, options).map_err(Failure::from)
}

/// A connection of its own to a socket. Clones share it.
#[derive(Clone)]
pub struct Client {
    pub channel: Channel,
}

/// The methods of a `Client` for these rpcs, whichever messages `wire` is.
macro_rules! rpcs {
    ($($rpc:ident: $request:ident,)*) => {
        impl Client {
            $(pub fn $rpc(&self, request: &wire::$request) -> Answer<<wire::$request as Rpc>::Reply> {
                ask(&self.channel, request, PATIENCE)
            })*
        }
    };
}
pub(super) use rpcs;

rpcs! {
    get_plugin_info: GetPluginInfoRequest,
    get_plugin_capabilities: GetPluginCapabilitiesRequest,
    probe: ProbeRequest,
    create_volume: CreateVolumeRequest,
    delete_volume: DeleteVolumeRequest,
    controller_publish_volume: ControllerPublishVolumeRequest,
    controller_unpublish_volume: ControllerUnpublishVolumeRequest,
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest,
    list_volumes: ListVolumesRequest,
    controller_list_volume_health: ControllerListVolumeHealthRequest,
    controller_get_volume_health: ControllerGetVolumeHealthRequest,
    get_capacity: GetCapacityRequest,
    controller_get_capabilities: ControllerGetCapabilitiesRequest,
    create_snapshot: CreateSnapshotRequest,
    delete_snapshot: DeleteSnapshotRequest,
    list_snapshots: ListSnapshotsRequest,
    get_snapshot: GetSnapshotRequest,
    controller_expand_volume: ControllerExpandVolumeRequest,
    controller_get_volume: ControllerGetVolumeRequest,
    controller_modify_volume: ControllerModifyVolumeRequest,
    node_stage_volume: NodeStageVolumeRequest,
    node_unstage_volume: NodeUnstageVolumeRequest,
    node_publish_volume: NodePublishVolumeRequest,
    node_unpublish_volume: NodeUnpublishVolumeRequest,
    node_get_volume_stats: NodeGetVolumeStatsRequest,
    node_get_volume_health: NodeGetVolumeHealthRequest,
    node_get_storage_health: NodeGetStorageHealthRequest,
    node_expand_volume: NodeExpandVolumeRequest,
    node_get_capabilities: NodeGetCapabilitiesRequest,
    node_get_info: NodeGetInfoRequest,
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
        Self { channel }
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
