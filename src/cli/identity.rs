//! `probe`, `info` and `capacity`.

use std::collections::{BTreeMap, BTreeSet};

use protobuf::{Enum, EnumOrUnknown};
use serde::Serialize;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::{Report, fields, human};
use crate::cli::syntax::Given;
use crate::cli::values;
use crate::error::{Error, Kind, Result};
use crate::grpc::proto::csi_v1 as wire;
use crate::topology::Domain;

/// Whether the daemon can work. "Not ready yet" is FAILED_PRECONDITION, as the daemon has not failed.
pub fn probe(plugin: &dyn Plugin, _: &Given) -> CliResult<Report> {
    let reply = plugin.ask(&wire::ProbeRequest::default())?;
    // An absent field means ready (csi.v1, ProbeResponse).
    if !reply.ready.as_ref().is_none_or(|ready| ready.value) {
        return Err(Error::precondition("the daemon is not ready yet").into());
    }
    Ok(Report::new("ready", &json!({"ready": true})))
}

#[derive(Serialize)]
struct Info {
    name: String,
    version: String,
    node_id: Option<String>,
    topology: BTreeMap<String, String>,
    taken_over: BTreeSet<String>,
    plugin: Vec<String>,
    controller: Vec<String>,
    node: Vec<String>,
}

/// The daemon's name and version, and what it offers.
pub fn info(plugin: &dyn Plugin, _: &Given) -> CliResult<Report> {
    let identity = plugin.ask(&wire::GetPluginInfoRequest::default())?;
    let capabilities = plugin.ask(&wire::GetPluginCapabilitiesRequest::default())?;
    let controller = if_offered(plugin.ask(&wire::ControllerGetCapabilitiesRequest::default()))?;
    let node = if_offered(plugin.ask(&wire::NodeGetInfoRequest::default()))?;
    let of_node = if_offered(plugin.ask(&wire::NodeGetCapabilitiesRequest::default()))?;
    let controller = controller.unwrap_or_default().capabilities;
    let of_node = of_node.unwrap_or_default().capabilities;
    let segments = node
        .as_ref()
        .map(|node| node.accessible_topology.get_or_default().segments.clone())
        .unwrap_or_default();
    let taken_over = segments.keys().filter_map(|key| Domain::taken_over(&identity.name, key));
    let info = Info {
        taken_over: taken_over.map(|domain| domain.to_string()).collect(),
        name: identity.name,
        version: identity.vendor_version,
        node_id: node.map(|node| node.node_id),
        topology: segments.into_iter().collect(),
        plugin: capabilities.capabilities.iter().filter_map(plugin_capability).collect(),
        controller: controller.iter().filter(|it| it.has_rpc()).map(|it| name(it.rpc().type_)).collect(),
        node: of_node.iter().filter(|it| it.has_rpc()).map(|it| name(it.rpc().type_)).collect(),
    };
    Ok(Report::new(info.text(), &info))
}

impl Info {
    fn text(&self) -> String {
        let is_own = |key: &String| Domain::taken_over(&self.name, key).is_none();
        let own = self.topology.iter().filter(|(key, _)| is_own(key));
        let own = own.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ");
        let taken = self.taken_over.iter().map(|it| format!("{it} ([takeover] in the clusters file)"));
        fields(&[
            ("name", self.name.clone()),
            ("version", self.version.clone()),
            ("node", self.node_id.clone().unwrap_or_default()),
            ("topology", own),
            ("taken over", taken.collect::<Vec<_>>().join(", ")),
            ("plugin", self.plugin.join(" ")),
            ("controller", self.controller.join(" ")),
            ("node service", self.node.join(" ")),
        ])
    }
}

/// None for an rpc that is not served: a daemon may serve the controller or the node alone.
fn if_offered<T>(reply: Result<T>) -> Result<Option<T>> {
    match reply {
        Err(error) if error.kind() == Kind::Unimplemented => Ok(None),
        reply => reply.map(Some),
    }
}

fn plugin_capability(capability: &wire::PluginCapability) -> Option<String> {
    match capability.type_.as_ref()? {
        wire::plugin_capability::Type::Service(service) => Some(name(service.type_)),
        wire::plugin_capability::Type::VolumeExpansion(expansion) => {
            Some(format!("{}_EXPANSION", name(expansion.type_)))
        }
    }
}

/// The specification's name of an enum's value; its number if the value is not known here.
fn name<E: Enum + std::fmt::Debug>(value: EnumOrUnknown<E>) -> String {
    value.enum_value().map_or_else(|number| number.to_string(), |known| format!("{known:?}"))
}

/// Room for new volumes.
pub fn capacity(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let request = wire::GetCapacityRequest {
        parameters: values::pairs(given, "parameter")?,
        accessible_topology: values::topologies(plugin, given, "domain")?.into_iter().next().into(),
        ..Default::default()
    };
    let reply = plugin.ask(&request)?;
    let largest = reply.maximum_volume_size.as_ref().map(|size| size.value);
    let smallest = reply.minimum_volume_size.as_ref().map(|size| size.value);
    let text = fields(&[
        ("available", human(reply.available_capacity)),
        ("largest volume", largest.map(human).unwrap_or_default()),
        ("smallest volume", smallest.map(human).unwrap_or_default()),
    ]);
    let json = json!({"available_bytes": reply.available_capacity, "largest_bytes": largest, "smallest_bytes": smallest});
    Ok(Report::new(text, &json))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use protobuf::MessageField;
    use protobuf::well_known_types::wrappers::{BoolValue, Int64Value};

    fn ready(value: bool) -> wire::ProbeResponse {
        wire::ProbeResponse {
            ready: MessageField::some(BoolValue { value, ..Default::default() }),
            ..Default::default()
        }
    }

    #[test]
    fn a_probe_says_ready_or_fails() {
        assert_eq!(run(&Fake::default(), "probe").unwrap().text, "ready");
        assert_eq!(
            run(&Fake::default().replies::<wire::ProbeRequest>(&ready(true)), "probe").unwrap().json,
            json!({"ready": true})
        );
        assert_eq!(
            run(&Fake::default().replies::<wire::ProbeRequest>(&ready(false)), "probe")
                .unwrap_err()
                .exit_code(),
            5
        );
        let refused =
            run(&Fake::default().refuses::<wire::ProbeRequest>(Error::precondition("no mkfs")), "probe")
                .unwrap_err();
        assert_eq!(refused.to_string(), "FAILED_PRECONDITION: no mkfs");
    }

    #[test]
    fn info_shows_what_a_daemon_without_a_controller_offers() {
        use wire::node_service_capability::rpc::Type;
        let rpc = wire::node_service_capability::RPC {
            type_: Type::STAGE_UNSTAGE_VOLUME.into(),
            ..Default::default()
        };
        let stage = wire::NodeServiceCapability {
            type_: Some(wire::node_service_capability::Type::Rpc(rpc)),
            ..Default::default()
        };
        let identity = wire::GetPluginInfoResponse {
            name: "org.x".into(),
            vendor_version: "1".into(),
            ..Default::default()
        };
        let segments = [("org.x/zone", "eu-1"), ("org.x/takes.zone.eu-2", "true")];
        let segments = segments.map(|(key, value)| (key.to_string(), value.to_string())).into();
        let topology = MessageField::some(wire::Topology { segments, ..Default::default() });
        let node = wire::NodeGetInfoResponse {
            node_id: "n1".into(),
            accessible_topology: topology,
            ..Default::default()
        };
        let fake = Fake::default()
            .replies::<wire::GetPluginInfoRequest>(&identity)
            .replies::<wire::NodeGetInfoRequest>(&node)
            .replies::<wire::NodeGetCapabilitiesRequest>(&wire::NodeGetCapabilitiesResponse {
                capabilities: vec![stage],
                ..Default::default()
            })
            .refuses::<wire::ControllerGetCapabilitiesRequest>(Error::unimplemented("not here"));
        let report = run(&fake, "info").unwrap();
        assert_eq!(
            report.text,
            "name:          org.x\nversion:       1\nnode:          n1\n\
             topology:      org.x/zone=eu-1\n\
             taken over:    zone=eu-2 ([takeover] in the clusters file)\n\
             node service:  STAGE_UNSTAGE_VOLUME"
        );
        let json = json!({
            "name": "org.x", "version": "1", "node_id": "n1",
            "topology": {"org.x/zone": "eu-1", "org.x/takes.zone.eu-2": "true"}, "taken_over": ["zone=eu-2"],
            "plugin": [], "controller": [], "node": ["STAGE_UNSTAGE_VOLUME"],
        });
        assert_eq!(report.json, json);
    }

    #[test]
    fn capacity_asks_with_the_parameters_and_shows_what_is_known() {
        let largest = MessageField::some(Int64Value { value: 1 << 30, ..Default::default() });
        let reply = wire::GetCapacityResponse {
            available_capacity: 3 << 30,
            maximum_volume_size: largest,
            ..Default::default()
        };
        let identity = wire::GetPluginInfoResponse { name: "org.x".into(), ..Default::default() };
        let fake = Fake::default()
            .replies::<wire::GetCapacityRequest>(&reply)
            .replies::<wire::GetPluginInfoRequest>(&identity);
        let report = run(&fake, "capacity --parameter backend=local --domain zone=eu-1").unwrap();
        assert_eq!(report.text, "available:        3 GiB\nlargest volume:   1 GiB");
        assert_eq!(
            report.json,
            json!({"available_bytes": 3_221_225_472_i64, "largest_bytes": 1 << 30, "smallest_bytes": null})
        );
        let request: wire::GetCapacityRequest = fake.request();
        assert_eq!(request.parameters.get("backend").map(String::as_str), Some("local"));
        assert_eq!(request.accessible_topology.segments["org.x/zone"], "eu-1");
        assert_eq!(fake.asked(), ["GetPluginInfo", "GetCapacity"]);
    }
}
