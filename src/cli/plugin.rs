//! The daemon as the command line sees it: the rpcs it uses, on the daemon's socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grpcio::{CallOption, ChannelBuilder, EnvBuilder};

use crate::error::{Error, Result};
use crate::grpc::proto::{csi_v1 as wire, fence, replication};
use crate::grpc::status;

/// Declares the rpcs once: for the daemon, and for what stands in its place in tests.
macro_rules! rpcs {
    ($($client:ident.$rpc:ident($package:ident::$request:ident) -> $reply:ident;)*) => {
        /// The rpcs that the command line uses, named as in csi.v1 and csi-addons.
        pub trait Plugin {
            $(fn $rpc(&self, request: &$package::$request) -> Result<$package::$reply>;)*
        }

        impl Plugin for Client {
            $(fn $rpc(&self, request: &$package::$request) -> Result<$package::$reply> {
                self.$client.$rpc(request, self.options()).map_err(|failure| status::error(stringify!($rpc), failure))
            })*
        }

        #[cfg(test)]
        impl Plugin for super::fake::Fake {
            $(fn $rpc(&self, request: &$package::$request) -> Result<$package::$reply> {
                self.answer(stringify!($rpc), request)
            })*
        }
    };
}

rpcs! {
    identity.get_plugin_info(wire::GetPluginInfoRequest) -> GetPluginInfoResponse;
    identity.get_plugin_capabilities(wire::GetPluginCapabilitiesRequest) -> GetPluginCapabilitiesResponse;
    identity.probe(wire::ProbeRequest) -> ProbeResponse;
    controller.controller_get_capabilities(wire::ControllerGetCapabilitiesRequest) -> ControllerGetCapabilitiesResponse;
    controller.create_volume(wire::CreateVolumeRequest) -> CreateVolumeResponse;
    controller.delete_volume(wire::DeleteVolumeRequest) -> DeleteVolumeResponse;
    controller.controller_publish_volume(wire::ControllerPublishVolumeRequest) -> ControllerPublishVolumeResponse;
    controller.controller_unpublish_volume(wire::ControllerUnpublishVolumeRequest) -> ControllerUnpublishVolumeResponse;
    controller.list_volumes(wire::ListVolumesRequest) -> ListVolumesResponse;
    controller.get_capacity(wire::GetCapacityRequest) -> GetCapacityResponse;
    controller.create_snapshot(wire::CreateSnapshotRequest) -> CreateSnapshotResponse;
    controller.delete_snapshot(wire::DeleteSnapshotRequest) -> DeleteSnapshotResponse;
    controller.list_snapshots(wire::ListSnapshotsRequest) -> ListSnapshotsResponse;
    controller.get_snapshot(wire::GetSnapshotRequest) -> GetSnapshotResponse;
    controller.controller_expand_volume(wire::ControllerExpandVolumeRequest) -> ControllerExpandVolumeResponse;
    controller.controller_modify_volume(wire::ControllerModifyVolumeRequest) -> ControllerModifyVolumeResponse;
    controller.controller_get_volume(wire::ControllerGetVolumeRequest) -> ControllerGetVolumeResponse;
    node.node_stage_volume(wire::NodeStageVolumeRequest) -> NodeStageVolumeResponse;
    node.node_unstage_volume(wire::NodeUnstageVolumeRequest) -> NodeUnstageVolumeResponse;
    node.node_publish_volume(wire::NodePublishVolumeRequest) -> NodePublishVolumeResponse;
    node.node_unpublish_volume(wire::NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse;
    node.node_get_volume_stats(wire::NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse;
    node.node_expand_volume(wire::NodeExpandVolumeRequest) -> NodeExpandVolumeResponse;
    node.node_get_capabilities(wire::NodeGetCapabilitiesRequest) -> NodeGetCapabilitiesResponse;
    node.node_get_info(wire::NodeGetInfoRequest) -> NodeGetInfoResponse;
    fences.fence_cluster_network(fence::FenceClusterNetworkRequest) -> FenceClusterNetworkResponse;
    fences.unfence_cluster_network(fence::UnfenceClusterNetworkRequest) -> UnfenceClusterNetworkResponse;
    fences.list_cluster_fence(fence::ListClusterFenceRequest) -> ListClusterFenceResponse;
    fences.get_fence_clients(fence::GetFenceClientsRequest) -> GetFenceClientsResponse;
    replicas.enable_volume_replication(replication::EnableVolumeReplicationRequest) -> EnableVolumeReplicationResponse;
    replicas.disable_volume_replication(replication::DisableVolumeReplicationRequest) -> DisableVolumeReplicationResponse;
    replicas.promote_volume(replication::PromoteVolumeRequest) -> PromoteVolumeResponse;
    replicas.demote_volume(replication::DemoteVolumeRequest) -> DemoteVolumeResponse;
    replicas.resync_volume(replication::ResyncVolumeRequest) -> ResyncVolumeResponse;
    replicas.get_volume_replication_info(replication::GetVolumeReplicationInfoRequest) -> GetVolumeReplicationInfoResponse;
    replicas.get_replication_destination_info(replication::GetReplicationDestinationInfoRequest) -> GetReplicationDestinationInfoResponse;
}

/// A connection to the daemon.
pub struct Client {
    identity: wire::IdentityClient,
    controller: wire::ControllerClient,
    node: wire::NodeClient,
    fences: fence::FenceControllerClient,
    replicas: replication::ControllerClient,
    timeout: Option<Duration>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Connects to the daemon at `socket`. Each call may take `timeout`; without one it takes as long as the
    /// daemon works.
    ///
    /// # Errors
    /// UNAVAILABLE if nobody answers there. It is tried before gRPC tries it, whose own words for it are hard
    /// to read.
    pub fn connect(socket: &Path, timeout: Option<Duration>) -> Result<Self> {
        UnixStream::connect(socket).map_err(|error| {
            Error::unavailable(format!(
                "no daemon answers at {}: {error}; is it running, and are --socket or CSI_ENDPOINT right?",
                socket.display()
            ))
        })?;
        let environment = Arc::new(EnvBuilder::new().cq_count(1).build());
        let channel = ChannelBuilder::new(environment)
            .default_authority("localhost")
            .connect(&format!("unix:{}", socket.display()));
        Ok(Self {
            identity: wire::IdentityClient::new(channel.clone()),
            controller: wire::ControllerClient::new(channel.clone()),
            node: wire::NodeClient::new(channel.clone()),
            fences: fence::FenceControllerClient::new(channel.clone()),
            replicas: replication::ControllerClient::new(channel),
            timeout,
        })
    }

    fn options(&self) -> CallOption {
        let options = CallOption::default();
        match self.timeout {
            Some(timeout) => options.timeout(timeout),
            None => options,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_socket_where_nobody_answers_is_unavailable_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let absent = Client::connect(&socket, None).unwrap_err();
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        let stale = Client::connect(&socket, None).unwrap_err();
        for error in [absent, stale] {
            assert_eq!(error.kind(), Kind::Unavailable);
            assert!(
                error.message().starts_with(&format!("no daemon answers at {}: ", socket.display())),
                "{error}"
            );
        }
    }
}
