//! A client that speaks csi-addons.

use cephlet::proto::{Rpc, fence, identity, replication};
use grpcio::Channel;
use protobuf::MessageField;

use super::client::{self, Answer};
use super::requests::map;
use super::{Daemon, PATIENCE};

/// A connection of its own to a daemon.
pub struct Client {
    channel: Channel,
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
        Self { channel: daemon.client().channel }
    }

    /// Calls the rpc that a request belongs to.
    pub fn ask<Q: Rpc>(&self, request: &Q) -> Answer<Q::Reply> {
        client::ask(&self.channel, request, PATIENCE)
    }

    /// The name, and the capabilities by their names, in order.
    #[track_caller]
    pub fn identity(&self) -> (String, Vec<String>) {
        use identity::capability::Type;
        let who = self.ask(&identity::GetIdentityRequest::new()).expect("identity");
        let asked = identity::GetCapabilitiesRequest::new();
        let reply = self.ask(&asked).expect("capabilities");
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
        let reply = self.ask(&identity::ProbeRequest::new()).expect("probe");
        reply.ready.as_ref().is_some_and(|ready| ready.value)
    }

    pub fn fence_with(&self, parameters: &[(&str, &str)], cidrs: &[&str]) -> Answer<()> {
        let asked = fence::FenceClusterNetworkRequest {
            parameters: map(parameters),
            cidrs: self::cidrs(cidrs),
            ..Default::default()
        };
        self.ask(&asked).map(drop)
    }

    pub fn fence(&self, cidrs: &[&str]) -> Answer<()> {
        self.fence_with(&[], cidrs)
    }

    pub fn unfence(&self, cidrs: &[&str]) -> Answer<()> {
        let asked = fence::UnfenceClusterNetworkRequest { cidrs: self::cidrs(cidrs), ..Default::default() };
        self.ask(&asked).map(drop)
    }

    pub fn fences(&self) -> Answer<Vec<String>> {
        let reply = self.ask(&fence::ListClusterFenceRequest::new());
        reply.map(|it| texts(it.cidrs))
    }

    /// The cluster's own ID, and this host's addresses there.
    pub fn fence_clients(&self) -> Answer<Vec<(String, Vec<String>)>> {
        let reply = self.ask(&fence::GetFenceClientsRequest::new());
        let client = |it: fence::ClientDetails| (it.id, texts(it.addresses));
        reply.map(|it| it.clients.into_iter().map(client).collect())
    }

    pub fn enable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::EnableVolumeReplicationRequest {
            replication_source: source(id),
            parameters: map(parameters),
            ..Default::default()
        };
        self.ask(&asked).map(drop)
    }

    pub fn disable(&self, id: &str, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::DisableVolumeReplicationRequest {
            replication_source: source(id),
            parameters: map(parameters),
            ..Default::default()
        };
        self.ask(&asked).map(drop)
    }

    pub fn promote(&self, id: &str, force: bool, parameters: &[(&str, &str)]) -> Answer<()> {
        let asked = replication::PromoteVolumeRequest {
            replication_source: source(id),
            force,
            parameters: map(parameters),
            ..Default::default()
        };
        self.ask(&asked).map(drop)
    }

    pub fn demote(&self, id: &str, force: bool) -> Answer<()> {
        let asked =
            replication::DemoteVolumeRequest { replication_source: source(id), force, ..Default::default() };
        self.ask(&asked).map(drop)
    }
}

fn cidrs(texts: &[&str]) -> Vec<fence::CIDR> {
    texts.iter().map(|text| fence::CIDR { cidr: text.to_string(), ..Default::default() }).collect()
}

fn texts(cidrs: Vec<fence::CIDR>) -> Vec<String> {
    cidrs.into_iter().map(|it| it.cidr).collect()
}
