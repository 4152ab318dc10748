//! Addresses that must not be fenced: the cluster would stop working, or no host would be left to lift the
//! fence.

use std::net::IpAddr;

use ipnet::IpNet;

use super::map::ClusterMap;
use crate::error::{Error, Result};

/// Refuses networks that hold an address of the cluster's daemons, or one of this host's `own`.
pub(super) fn check(networks: &[IpNet], map: &ClusterMap, own: &[IpAddr]) -> Result<()> {
    let protected = [
        ("a monitor", &map.monitors),
        ("an OSD", &map.osds),
        ("the active manager", &map.managers),
        ("a metadata server", &map.metadata_servers),
    ];
    let hit = |addresses: &[IpAddr]| {
        let pairs = networks.iter().flat_map(|net| addresses.iter().map(move |it| (net, *it)));
        pairs.into_iter().find(|(network, address)| network.contains(address))
    };
    for (whose, addresses) in protected {
        if let Some((network, address)) = hit(addresses) {
            return Err(Error::precondition(format!(
                "{network} is not fenced: {address} in it is the address of {whose}, whose work would end; nothing \
                 was changed; name networks without it"
            )));
        }
    }
    match hit(own) {
        None => Ok(()),
        Some((network, address)) => Err(Error::precondition(format!(
            "{network} is not fenced: {address} in it is this host's own address, and its volumes would fail; \
             nothing was changed; ask the plugin of another host, or set the parameter \"allowSelf\" to true"
        ))),
    }
}
