//! Requests about hosts that are shut out.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{Map, validate};
use crate::error::{Error, Result};
use crate::secrets::Secrets;

/// The most networks in one request.
const MOST_NETWORKS: usize = 256;

/// The known parameters, by ceph-csi's names and by our own.
const PARAMETERS: [&str; 3] = ["clusterID", "cluster", "allowSelf"];

/// A question about fences, or a change of them.
#[derive(Clone, Debug, PartialEq)]
pub struct FenceRequest {
    /// The cluster; None means the only cluster there is.
    pub cluster: Option<String>,
    /// The networks, without host bits, each once and in order.
    pub networks: Vec<IpNet>,
    /// Whether this host may shut itself out.
    pub allow_self: bool,
    /// Credentials.
    pub secrets: Secrets,
}

impl FenceRequest {
    /// A question.
    ///
    /// # Errors
    /// The wrong parameter.
    pub fn question(parameters: &Map, secrets: Secrets) -> Result<Self> {
        validate::map("parameters", parameters)?;
        validate::secrets("secrets", &secrets)?;
        if let Some(unknown) = parameters.keys().find(|key| !PARAMETERS.contains(&key.as_str())) {
            return Err(Error::invalid(format!(
                "the parameter {unknown:?} is unknown: known are {}",
                PARAMETERS.join(", ")
            )));
        }
        let allow_self = validate::choice(parameters, "allowSelf", &["false", "true"])? == "true";
        Ok(Self { cluster: cluster(parameters)?, networks: Vec::new(), allow_self, secrets })
    }

    /// A change.
    ///
    /// # Errors
    /// The wrong parameter or network.
    pub fn change(parameters: &Map, secrets: Secrets, cidrs: &[String]) -> Result<Self> {
        if cidrs.is_empty() {
            return Err(Error::invalid("cidrs is missing: name the networks, like 10.0.0.7/32"));
        }
        if cidrs.len() > MOST_NETWORKS {
            let given = cidrs.len();
            return Err(Error::invalid(format!(
                "cidrs has {given} entries, at most {MOST_NETWORKS} are allowed at once"
            )));
        }
        let mut networks = cidrs.iter().map(|text| network(text)).collect::<Result<Vec<_>>>()?;
        networks.sort_unstable();
        networks.dedup();
        Ok(Self { networks, ..Self::question(parameters, secrets)? })
    }
}

fn cluster(parameters: &Map) -> Result<Option<String>> {
    let [one, other] = ["clusterID", "cluster"].map(|key| parameters.get(key).filter(|it| !it.is_empty()));
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(Error::invalid(format!(
            "the parameters \"clusterID\" and \"cluster\" name two clusters, {one:?} and {other:?}: set one of them"
        ))),
        (one, other) => Ok(one.or(other).cloned()),
    }
}

/// A network in its canonical spelling: `10.0.0.7/24` is `10.0.0.0/24`, and `10.0.0.7` is `10.0.0.7/32`.
fn network(text: &str) -> Result<IpNet> {
    let refused = |why: &str| Error::invalid(format!("cidrs has {text:?}: {why}"));
    let network: IpNet = match text.contains('/') {
        true => text.parse().ok(),
        false => text.parse::<IpAddr>().ok().map(IpNet::from),
    }
    .ok_or_else(|| refused("write addresses and networks like 10.0.0.7/32, 10.0.0.0/24 or fd00::7/128"))?;
    if network.prefix_len() == 0 {
        return Err(refused("that is everybody, whom no cluster can shut out"));
    }
    match network.addr() {
        // No host has 0.0.0.0 or ::, and Ceph would take the second part of a mapped address for a port.
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
            Err(refused("write it as an address of IPv4"))
        }
        address if address.is_unspecified() && network.prefix_len() == network.max_prefix_len() => {
            Err(refused("it is no host's address"))
        }
        _ => Ok(network.trunc()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn change(parameters: &[(&str, &str)], cidrs: &[&str]) -> Result<FenceRequest> {
        let parameters = parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let cidrs: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
        FenceRequest::change(&parameters, Secrets::default(), &cidrs)
    }

    #[test]
    fn networks_have_one_spelling() {
        let asked = ["10.1.0.5/24", "10.1.0.0/24", "10.0.0.7", "FD00:0:0::3/128", "fd00::9/64"];
        let networks = change(&[], &asked).unwrap().networks;
        let texts: Vec<String> = networks.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.7/32", "10.1.0.0/24", "fd00::/64", "fd00::3/128"]);
    }

    #[test]
    fn what_is_no_network_is_refused_and_named() {
        for text in [
            "",
            "x",
            "10.0.0.300",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/0",
            "::/0",
            "[fd00::2]/128",
            "fd00::/129",
            "::ffff:10.0.0.1",
            "10.0.0.1:0/0",
            "10.0.0.1 ",
            "0.0.0.0",
            "::",
            "10.0.0.1\nosd blocklist clear",
        ] {
            let error = change(&[], &["10.0.0.1", text]).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument, "{text:?}");
            assert!(error.message().contains(&format!("{text:?}")), "{error}");
        }
        assert_eq!(change(&[], &[]).unwrap_err().kind(), Kind::InvalidArgument);
        let many: Vec<String> =
            (0..257).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(change(&[], &many).unwrap_err().message().contains("257"));
    }

    #[test]
    fn the_cluster_has_two_names_that_agree() {
        let cluster = |parameters: &[(&str, &str)]| change(parameters, &["10.0.0.1"]).map(|it| it.cluster);
        assert_eq!(cluster(&[]).unwrap(), None);
        assert_eq!(cluster(&[("clusterID", "a")]).unwrap().as_deref(), Some("a"));
        assert_eq!(cluster(&[("cluster", "a"), ("clusterID", "a")]).unwrap().as_deref(), Some("a"));
        assert!(cluster(&[("cluster", "a"), ("clusterID", "b")]).is_err());
        let unknown = cluster(&[("clusterId", "a")]).unwrap_err();
        assert!(unknown.message().contains("known are clusterID, cluster"), "{unknown}");
        assert!(cluster(&[("allowSelf", "yes")]).is_err());
        assert!(change(&[("allowSelf", "true")], &["10.0.0.1"]).unwrap().allow_self);
    }
}
