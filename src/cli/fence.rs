//! `fence add`, `remove`, `list` and `clients`.

use std::collections::HashMap;

use serde::Serialize;
use serde_json::json;

use crate::cli::failure::CliResult;
use crate::cli::plugin::Plugin;
use crate::cli::report::Report;
use crate::cli::syntax::{Action, Command, Given, Opt, flag, option};
use crate::cli::values::{self, SECRETS};
use crate::grpc::proto::fence as wire;

const CLUSTER: Opt =
    option("cluster", "NAME", "the cluster, by its name in cephlet config (default: the only one)");

const CIDRS: &str = "\
CIDRS: addresses and networks, separated by commas: 10.0.0.7, 10.1.0.0/24, fd00::/64.";

/// `cephlet fence add`.
pub const ADD: Command = Command {
    name: "fence add",
    about: "shut hosts out of a cluster, for good",
    words: &["CIDRS"],
    options: &[CLUSTER, flag("allow-self", "also if this host is one of them"), SECRETS],
    notes: &[
        CIDRS,
        "Their reads and writes fail from then on. The addresses of monitors, OSDs and the active manager are refused.",
    ],
    json: "cluster or null, cidrs []",
    action: Action::Ask(add),
};

/// `cephlet fence remove`.
pub const REMOVE: Command = Command {
    name: "fence remove",
    about: "let hosts in again",
    words: &["CIDRS"],
    options: &[CLUSTER, SECRETS],
    notes: &[
        CIDRS,
        "Reboot them first, or unmap what they have mapped: the kernel would go on writing what it has kept.",
    ],
    json: "cluster or null, cidrs []",
    action: Action::Ask(remove),
};

/// `cephlet fence list`.
pub const LIST: Command = Command {
    name: "fence list",
    about: "list what is shut out of a cluster for good",
    words: &[],
    options: &[CLUSTER, SECRETS],
    notes: &[],
    json: "an array of CIDRs",
    action: Action::Ask(list),
};

/// `cephlet fence clients`.
pub const CLIENTS: Command = Command {
    name: "fence clients",
    about: "show what has to be fenced to shut this host out",
    words: &[],
    options: &[CLUSTER, SECRETS],
    notes: &["Behind an address translator the cluster sees another address."],
    json: "an array of: id (of the cluster), addresses []",
    action: Action::Ask(clients),
};

/// This host as a cluster sees it.
#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    addresses: Vec<String>,
}

fn parameters(given: &Given) -> HashMap<String, String> {
    let cluster = given.value("cluster").map(|name| ("cluster".to_string(), name.to_string()));
    let allow_self = given.has("allow-self").then(|| ("allowSelf".to_string(), "true".to_string()));
    cluster.into_iter().chain(allow_self).collect()
}

fn cidrs(given: &Given) -> Vec<wire::CIDR> {
    let texts = given.word(0).split(',').filter(|text| !text.is_empty());
    texts.map(|text| wire::CIDR { cidr: text.to_string(), ..Default::default() }).collect()
}

fn texts(cidrs: Vec<wire::CIDR>) -> Vec<String> {
    cidrs.into_iter().map(|it| it.cidr).collect()
}

fn silent(given: &Given) -> Report {
    Report::new("", &json!({"cluster": given.value("cluster"), "cidrs": texts(cidrs(given))}))
}

/// Shuts hosts out.
pub fn add(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    plugin.ask(&wire::FenceClusterNetworkRequest {
        parameters: parameters(given),
        secrets: values::secrets(given)?,
        cidrs: cidrs(given),
        ..Default::default()
    })?;
    Ok(silent(given))
}

/// Lets hosts in again.
pub fn remove(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    plugin.ask(&wire::UnfenceClusterNetworkRequest {
        parameters: parameters(given),
        secrets: values::secrets(given)?,
        cidrs: cidrs(given),
        ..Default::default()
    })?;
    Ok(silent(given))
}

/// Lists the networks that are shut out.
pub fn list(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (parameters, secrets) = (parameters(given), values::secrets(given)?);
    let request = wire::ListClusterFenceRequest { parameters, secrets, ..Default::default() };
    let cidrs = texts(plugin.ask(&request)?.cidrs);
    Ok(Report::new(cidrs.join("\n"), &cidrs))
}

/// Shows this host's addresses, one a line.
pub fn clients(plugin: &dyn Plugin, given: &Given) -> CliResult<Report> {
    let (parameters, secrets) = (parameters(given), values::secrets(given)?);
    let request = wire::GetFenceClientsRequest { parameters, secrets, ..Default::default() };
    let clients = plugin.ask(&request)?.clients.into_iter();
    let clients: Vec<Shown> =
        clients.map(|client| Shown { id: client.id, addresses: texts(client.addresses) }).collect();
    let addresses: Vec<&str> =
        clients.iter().flat_map(|client| &client.addresses).map(String::as_str).collect();
    Ok(Report::new(addresses.join("\n"), &clients))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cli::fake::{Fake, run};
    use crate::error::Error;

    fn cidr(text: &str) -> wire::CIDR {
        wire::CIDR { cidr: text.into(), ..Default::default() }
    }

    #[test]
    fn hosts_are_named_in_one_word() {
        let fake = Fake::default();
        let report = run(&fake, "fence add 10.0.0.7,10.1.0.0/24 --cluster main --allow-self").unwrap();
        assert_eq!(report.text, "");
        assert_eq!(report.json, json!({"cluster": "main", "cidrs": ["10.0.0.7", "10.1.0.0/24"]}));
        let asked: wire::FenceClusterNetworkRequest = fake.request();
        assert_eq!(
            (asked.parameters["cluster"].as_str(), asked.parameters["allowSelf"].as_str()),
            ("main", "true")
        );
        assert_eq!(asked.cidrs, [cidr("10.0.0.7"), cidr("10.1.0.0/24")]);
        run(&fake, "fence remove fd00::/64").unwrap();
        let asked: wire::UnfenceClusterNetworkRequest = fake.request();
        assert_eq!((asked.cidrs, asked.parameters.len()), (vec![cidr("fd00::/64")], 0));
    }

    #[test]
    fn lists_are_a_line_each() {
        let cidrs = vec![cidr("10.0.0.7/32"), cidr("fd00::/64")];
        let listed = wire::ListClusterFenceResponse { cidrs: cidrs.clone(), ..Default::default() };
        let client = wire::ClientDetails { id: "c0ffee".into(), addresses: cidrs, ..Default::default() };
        let clients = wire::GetFenceClientsResponse { clients: vec![client], ..Default::default() };
        let fake = Fake::default()
            .replies::<wire::ListClusterFenceRequest>(&listed)
            .replies::<wire::GetFenceClientsRequest>(&clients);
        assert_eq!(run(&fake, "fence list").unwrap().text, "10.0.0.7/32\nfd00::/64");
        let report = run(&fake, "fence clients").unwrap();
        assert_eq!(report.text, "10.0.0.7/32\nfd00::/64");
        assert_eq!(report.json, json!([{"id": "c0ffee", "addresses": ["10.0.0.7/32", "fd00::/64"]}]));
        let refused = Fake::default().refuses::<wire::ListClusterFenceRequest>(Error::unimplemented("no"));
        assert!(run(&refused, "fence list").is_err());
    }
}
