//! identity.Identity of csi-addons.

use protobuf::well_known_types::wrappers::BoolValue;
use protobuf::{EnumOrUnknown, MessageField};

use crate::backend::Service;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::proto::identity as wire;

/// Says who the plugin is, and what it offers beyond CSI.
impl wire::Identity for Services {
    fn get_identity(&self, (caller, _): Asked<wire::GetIdentityRequest>) -> Answer {
        caller.reply(wire::GetIdentityResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Default::default()
        })
    }

    /// What this copy alone serves: a caller asks every copy.
    fn get_capabilities(&self, (caller, _): Asked<wire::GetCapabilitiesRequest>) -> Answer {
        use wire::capability::network_fence::Type as Fence;
        use wire::capability::service::Type as Service;
        use wire::capability::volume_replication::Type as Replication;
        let (controller, fences) = (self.controller, self.operations.offers_fencing());
        let replicates = controller && self.operations.offers_replication();
        let offered = [
            (service(Service::CONTROLLER_SERVICE), controller),
            (fence(Fence::NETWORK_FENCE), controller && fences),
            (replication(Replication::VOLUME_REPLICATION), replicates),
            (replication(Replication::GET_REPLICATION_DESTINATION_INFO), replicates),
            // Each host only knows its own addresses.
            (fence(Fence::GET_CLIENTS_TO_FENCE), fences),
        ];
        let capabilities = offered.into_iter().filter(|(_, offered)| *offered).map(|(it, _)| it).collect();
        caller.reply(wire::GetCapabilitiesResponse { capabilities, ..Default::default() })
    }

    fn probe(&self, (caller, _): Asked<wire::ProbeRequest>) -> Answer {
        self.operations.health(Service::Any)?;
        let ready = MessageField::some(BoolValue { value: true, ..Default::default() });
        caller.reply(wire::ProbeResponse { ready, ..Default::default() })
    }
}

fn service(kind: wire::capability::service::Type) -> wire::Capability {
    use wire::capability::{Service, Type};
    let service = Service { type_: EnumOrUnknown::new(kind), ..Default::default() };
    wire::Capability { type_: Some(Type::Service(service)), ..Default::default() }
}

fn fence(kind: wire::capability::network_fence::Type) -> wire::Capability {
    use wire::capability::{NetworkFence, Type};
    let fence = NetworkFence { type_: EnumOrUnknown::new(kind), ..Default::default() };
    wire::Capability { type_: Some(Type::NetworkFence(fence)), ..Default::default() }
}

fn replication(kind: wire::capability::volume_replication::Type) -> wire::Capability {
    use wire::capability::{Type, VolumeReplication};
    let replication = VolumeReplication { type_: EnumOrUnknown::new(kind), ..Default::default() };
    wire::Capability { type_: Some(Type::VolumeReplication(replication)), ..Default::default() }
}
