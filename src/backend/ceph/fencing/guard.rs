//! Addresses that must not be fenced: the cluster would stop working, or no host would be left to lift the
//! fence.

use std::net::IpAddr;

use ipnet::IpNet;

use super::map::ClusterMap;
use crate::error::{Error, Result};

/// The owners of addresses that must not be fenced.
pub(super) struct Protected<'a> {
    groups: [(&'static str, &'a [IpAddr]); 3],
    own: Vec<IpAddr>,
}

impl<'a> Protected<'a> {
    /// The addresses of the cluster's daemons, and `own`.
    pub(super) fn of(map: &'a ClusterMap, own: Vec<IpAddr>) -> Self {
        let groups =
            [("a monitor", &*map.monitors), ("an OSD", &*map.osds), ("the active manager", &*map.managers)];
        Self { groups, own }
    }
}

/// Refuses networks that hold a protected address.
pub(super) fn check(networks: &[IpNet], protected: &Protected<'_>) -> Result<()> {
    let hit = |addresses: &[IpAddr]| {
        let pairs = networks.iter().flat_map(|net| addresses.iter().map(move |it| (net, *it)));
        pairs.into_iter().find(|(network, address)| network.contains(address))
    };
    for (whose, addresses) in protected.groups {
        if let Some((network, address)) = hit(addresses) {
            return Err(Error::precondition(format!(
                "{network} is not fenced: {address} in it is the address of {whose}, whose work would end; nothing \
                 was changed; name networks without it"
            )));
        }
    }
    match hit(&protected.own) {
        None => Ok(()),
        Some((network, address)) => Err(Error::precondition(format!(
            "{network} is not fenced: {address} in it is this host's own address, and its volumes would fail; \
             nothing was changed; ask the plugin of another host, or set the parameter \"allowSelf\" to true"
        ))),
    }
}
