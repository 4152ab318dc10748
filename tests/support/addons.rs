//! A client that speaks csi-addons.

use cephlet::proto::{fence, identity, replication};
use grpcio::CallOption;
use protobuf::MessageField;

use super::client::{Answer, Failure};
use super::requests::map;
use super::{Daemon, PATIENCE};

/// A connection of its own to a daemon.
pub struct Client {
    identity: identity::IdentityClient,
    fences: fence::FenceControllerClient,
    pub replicas: replication::ControllerClient,
}

pub fn options() -> CallOption {
    CallOption::default().timeout(PATIENCE)
}

/// The volume of this ID.
pub fn source(id: &str) -> MessageField<replication::ReplicationSource> {
    use replication::replication_source::{Type, VolumeSource};
    let volume = VolumeSource { volume_id: id.to_string(), ..Default::default() };
    MessageField::some(replication::ReplicationSource {
        type_: Some(Type::Volume(volume)),
        ..Default::default()
    })
}

impl Client {
    pub fn of(daemon: &Daemon) -> Self {
        let channel = daemon.client().channel;
        Self {
            identity: identity::IdentityClient::new(channel.clone()),
            fences: fence::FenceControllerClient::new(channel.clone()),
            replicas: replication::ControllerClient::new(channel),
        }
    }

    /// The name, and the capabilities by their names, in order.
    #[track_caller]
    pub fn identity(&self) -> (String, Vec<String>) {
        use identity::capability::Type;
        let who =
            self.identity.get_identity(&identity::GetIdentityRequest::new(), options()).expect("identity");
        let asked = identity::GetCapabilitiesRequest::new();
        let reply = self.identity.get_capabilities(&asked, options()).expect("capabilities");
        let name = |it: identity::Capability| match it.type_.expect("a capability has a type") {
            Type::Service(it) => format!("{:?}", it.type_.unwrap()),
            Type::NetworkFence(it) => format!("{:?}", it.type_.unwrap()),
            Type::VolumeReplication(it) => format!("{:?}", it.type_.unwrap()),
            other => panic!("not offered: {other:?}"),
        };
        let mut names: Vec<String> = reply.capabilities.into_iter().map(name).collect();
        names.sort();
        (who.name, names)
    }

    pub fn is_ready(&self) -> bool {
        let reply = self.identity.probe(&identity::ProbeRequest::new(), options()).expect("probe");
        reply.ready.as_ref().is_some_and(|ready| ready.value)
    }

    pub fn fence_with(&self, parameters: &[(&str, &str)], cidrs: &[&str]) -> Answer<()> {
        let asked = fence::FenceClusterNetworkRequest {
            parameters: map(parameters),
            cidrs: self::cidrs(cidrs),
            ..Default::default()
        };
        self.fences.fence_cluster_network(&asked, options()).map(drop).map_err(Failure::from)
    }

    pub fn fence(&self, cidrs: &[&str]) -> Answer<()> {
        self.fence_with(&[], cidrs)
    }

    pub fn unfence(&self, cidrs: &[&str]) -> Answer<()> {
        let asked = fence::UnfenceClusterNetworkRequest { cidrs: self::cidrs(cidrs), ..Default::default() };
        self.fences.unfence_cluster_network(&asked, options()).map(drop).map_err(Failure::from)
    }

    pub fn fences(&self) -> Answer<Vec<String>> {
        let reply = self.fences.list_cluster_fence(&fence::ListClusterFenceRequest::new(), options());
        reply.map(|it| texts(it.cidrs)).map_err(Failure::from)
    }

    /// The cluster's own ID, and this host's addresses there.
    pub fn fence_clients(&self) -> Answer<Vec<(String, Vec<String>)>> {
        let reply = self.fences.get_fence_clients(&fence::GetFenceClientsRequest::new(), options());
        let client = |it: fence::ClientDetails| (it.id, texts(it.addresses));
        reply.map(|it| it.clients.into_iter().map(client).collect()).map_err(Failure::from)
    }

    pub fn enable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::EnableVolumeReplicationRequest {
            replication_source: source(id),
            parameters: map(parameters),
            ..Default::default()
        };
        self.replicas.enable_volume_replication(&asked, options()).map(drop).map_err(Failure::from)
    }

    pub fn disable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::DisableVolumeReplicationRequest {
            replication_source: source(id),
            parameters: map(parameters),
            ..Default::default()
        };
        self.replicas.disable_volume_replication(&asked, options()).map(drop).map_err(Failure::from)
    }

    pub fn promote(&self, id: &str, force: bool, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::PromoteVolumeRequest {
            replication_source: source(id),
            force,
            parameters: map(parameters),
            ..Default::default()
        };
        self.replicas.promote_volume(&asked, options()).map(drop).map_err(Failure::from)
    }

    pub fn demote(&self, id: &str, force: bool) -> Answer<()> {
        let asked =
            replication::DemoteVolumeRequest { replication_source: source(id), force, ..Default::default() };
        self.replicas.demote_volume(&asked, options()).map(drop).map_err(Failure::from)
    }
}

fn cidrs(texts: &[&str]) -> Vec<fence::CIDR> {
    texts.iter().map(|text| fence::CIDR { cidr: text.to_string(), ..Default::default() }).collect()
}

fn texts(cidrs: Vec<fence::CIDR>) -> Vec<String> {
    cidrs.into_iter().map(|it| it.cidr).collect()
}
