//! csi.v1.Identity.

use protobuf::well_known_types::wrappers::BoolValue;
use protobuf::{EnumOrUnknown, MessageField};

use crate::backend::Service;
use crate::grpc::Services;
use crate::grpc::bridge::{Answer, Asked};
use crate::grpc::proto::csi_v1 as wire;

/// Says who the plugin is and whether it can work.
impl wire::Identity for Services {
    fn get_plugin_info(&self, (caller, _): Asked<wire::GetPluginInfoRequest>) -> Answer {
        caller.reply(wire::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_string(),
            ..Default::default()
        })
    }

    /// The answer does not depend on the services that this daemon serves (CSI, "GetPluginCapabilities").
    fn get_plugin_capabilities(&self, (caller, _): Asked<wire::GetPluginCapabilitiesRequest>) -> Answer {
        use wire::plugin_capability::service::Type as Service;
        use wire::plugin_capability::volume_expansion::Type as Expansion;
        let mut capabilities = vec![service(Service::CONTROLLER_SERVICE), expansion(Expansion::ONLINE)];
        if !self.operations.segments().is_empty() {
            capabilities.push(service(Service::VOLUME_ACCESSIBILITY_CONSTRAINTS));
            capabilities.push(service(Service::SNAPSHOT_ACCESSIBILITY_CONSTRAINTS));
        }
        caller.reply(wire::GetPluginCapabilitiesResponse { capabilities, ..Default::default() })
    }

    fn probe(&self, (caller, _): Asked<wire::ProbeRequest>) -> Answer {
        self.operations.health(Service::Any)?;
        let ready = MessageField::some(BoolValue { value: true, ..Default::default() });
        caller.reply(wire::ProbeResponse { ready, ..Default::default() })
    }
}

fn service(kind: wire::plugin_capability::service::Type) -> wire::PluginCapability {
    use wire::plugin_capability::{Service, Type};
    let service = Service { type_: EnumOrUnknown::new(kind), ..Default::default() };
    wire::PluginCapability { type_: Some(Type::Service(service)), ..Default::default() }
}

fn expansion(kind: wire::plugin_capability::volume_expansion::Type) -> wire::PluginCapability {
    use wire::plugin_capability::{Type, VolumeExpansion};
    let expansion = VolumeExpansion { type_: EnumOrUnknown::new(kind), ..Default::default() };
    wire::PluginCapability { type_: Some(Type::VolumeExpansion(expansion)), ..Default::default() }
}
