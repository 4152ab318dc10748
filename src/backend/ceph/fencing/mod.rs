//! Fences: networks that a cluster's OSDs no longer speak with, for good. `ceph osd blocklist` keeps them.
//!
//! Its statuses prove nothing (it says 0 of what it has not removed): the cluster is read before and after,
//! and what is read is the answer. Entries have no owner: a fence of ours is one that never ends, of a whole
//! host or network. What librbd, failed daemons and administrators shut out for an hour or a day is none.

mod guard;
mod map;
mod tool;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use self::guard::Protected;
use self::map::{ClusterMap, Entry};
use self::tool::{CephFences, Change, Changed, FenceTool};
use super::ClusterAccess;
use super::placement::{choose_cluster, known};
use crate::backend::{FenceClient, Fencing};
use crate::clusters::Clusters;
use crate::dispatch::{Bulkhead, Call};
use crate::error::{Error, Result};
use crate::exec::Runner;
use crate::secrets::Secrets;
use crate::sys::address;

/// So many addresses one by one, at most, in a cluster that knows no ranges.
const MOST_ADDRESSES: usize = 256;

/// What the commands of a cluster's fences are counted as: not with those of its volumes, which may all hang.
fn bulkhead(cluster: &str) -> Bulkhead {
    format!("fences of {cluster}").into()
}

/// Fences in the clusters that are set up.
pub struct Fences {
    clusters: Arc<Clusters>,
    tool: Box<dyn FenceTool>,
}

impl Fences {
    /// Fences in these clusters, by commands that `runner` runs.
    pub fn new(clusters: Arc<Clusters>, runner: Arc<dyn Runner>) -> Self {
        Self::by(clusters, CephFences::new(runner))
    }

    fn by(clusters: Arc<Clusters>, tool: impl FenceTool + 'static) -> Self {
        Self { clusters, tool: Box::new(tool) }
    }

    fn access(&self, cluster: &str, secrets: &Secrets) -> Result<ClusterAccess> {
        ClusterAccess::new(known(&self.clusters, cluster)?, secrets)
    }
}

impl Fencing for Fences {
    fn is_set_up(&self) -> bool {
        self.clusters.are_set_up()
    }

    fn cluster(&self, asked: Option<&str>) -> Result<String> {
        choose_cluster(&self.clusters, asked)
    }

    fn fence(
        &self,
        call: &Call,
        cluster: &str,
        networks: &[IpNet],
        allow_self: bool,
        secrets: &Secrets,
    ) -> Result<()> {
        let access = self.access(cluster, secrets)?;
        let now = self.tool.look(call, &access)?;
        let wanted = as_entries(networks, &now.map)?;
        let missing = |map: &ClusterMap| -> Vec<IpNet> {
            let fences: BTreeSet<&IpNet> = map.fences().map(|entry| &entry.network).collect();
            wanted.iter().filter(|network| !fences.contains(network)).copied().collect()
        };
        let to_add = missing(&now.map);
        if to_add.is_empty() {
            return Ok(());
        }
        guard::check(networks, &Protected::of(&now.map, if allow_self { vec![] } else { now.map.own() }))?;
        if !now.may_remove {
            return Err(lacks_rights(&access, "remove a fence again, so it sets none"));
        }
        let changes: Vec<Change> = to_add.into_iter().map(Change::Add).collect();
        let then = self.tool.change(call, &access, &changes)?;
        match missing(&then.map).as_slice() {
            [] => Ok(()),
            left => Err(not_done(&access, "fenced", left, &then)),
        }
    }

    fn unfence(&self, call: &Call, cluster: &str, networks: &[IpNet], secrets: &Secrets) -> Result<()> {
        let access = self.access(cluster, secrets)?;
        let now = self.tool.look(call, &access)?;
        let of_these = |map: &ClusterMap| -> Vec<Entry> { map.fences_of(networks).cloned().collect() };
        let changes: Vec<Change> = of_these(&now.map).into_iter().map(Change::Remove).collect();
        if changes.is_empty() {
            tell_of_others(&now.map, networks);
            return Ok(());
        }
        let then = self.tool.change(call, &access, &changes)?;
        let left: Vec<IpNet> = of_these(&then.map).iter().map(|entry| entry.network).collect();
        match left.as_slice() {
            [] => {
                tell_of_others(&then.map, networks);
                Ok(())
            }
            _ if then.is_forbidden => Err(lacks_rights(&access, "remove a fence")),
            left => Err(not_done(&access, "freed", left, &then)),
        }
    }

    fn fences(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<IpNet>> {
        let access = self.access(cluster, secrets)?;
        let map = self.tool.map(call, &access)?;
        let networks: BTreeSet<IpNet> = map.fences().map(|entry| entry.network).collect();
        Ok(networks.into_iter().collect())
    }

    fn clients(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<FenceClient>> {
        let access = self.access(cluster, secrets)?;
        let map = self.tool.map(call, &access)?;
        let addresses = map.own();
        if addresses.is_empty() {
            return Err(Error::unavailable(format!(
                "this host has no route to any OSD of cluster {cluster:?}, so it has no address there"
            )));
        }
        Ok(vec![FenceClient { id: map.fsid, addresses: addresses.into_iter().map(IpNet::from).collect() }])
    }
}

impl ClusterMap {
    /// The addresses that this host has for the OSDs. Behind an address translator they are others.
    fn own(&self) -> Vec<IpAddr> {
        let own: BTreeSet<IpAddr> =
            self.public.iter().filter_map(|osd| address::towards(*osd).ok()).collect();
        own.into_iter().collect()
    }
}

/// Tells of what keeps networks shut out, or part of them, though their fences are lifted: other fences, and
/// what others have shut out for a time.
fn tell_of_others(map: &ClusterMap, networks: &[IpNet]) {
    for entry in &map.entries {
        let overlaps = |it: &&IpNet| entry.network.contains(*it) || it.contains(&entry.network);
        if let Some(network) = networks.iter().find(overlaps) {
            log::warn!("{network} stays shut out, or part of it, by the blocklist's entry {}", entry.listed);
        }
    }
}

/// The entries that make these networks a fence: a host by its address, a network as a range, or address by
/// address where the cluster knows no ranges.
fn as_entries(networks: &[IpNet], map: &ClusterMap) -> Result<Vec<IpNet>> {
    let hosts = |network: &IpNet| u32::from(network.max_prefix_len() - network.prefix_len());
    let mut entries = BTreeSet::new();
    for network in networks {
        if hosts(network) == 0 || map.knows_ranges {
            entries.insert(*network);
        } else {
            entries.extend(all_addresses(network).take(MOST_ADDRESSES + 1).map(IpNet::from));
        }
        if !map.knows_ranges && entries.len() > MOST_ADDRESSES {
            return Err(Error::invalid(format!(
                "this cluster's release knows no ranges, so {MOST_ADDRESSES} addresses are the most at once: name \
                 fewer or smaller networks"
            )));
        }
    }
    Ok(entries.into_iter().collect())
}

/// Its first and its last address too: nobody but its owner says that these are not used.
fn all_addresses(network: &IpNet) -> impl Iterator<Item = IpAddr> {
    let (first, last) = (network.network(), network.broadcast());
    std::iter::successors(Some(first), move |address| match address {
        _ if *address == last => None,
        IpAddr::V4(it) => Some(IpAddr::V4((u32::from(*it) + 1).into())),
        IpAddr::V6(it) => Some(IpAddr::V6((u128::from(*it) + 1).into())),
    })
}

fn lacks_rights(access: &ClusterAccess, what: &str) -> Error {
    let user = &access.credentials.user;
    Error::precondition(format!(
        "client.{user} may not {what} in cluster {:?}: nothing was changed; give it the caps, with those that it \
         has for OSDs and managers: `ceph auth caps client.{user} mon 'profile rbd, allow command \"osd \
         blocklist\"' osd … mgr …`",
        access.cluster.name
    ))
}

fn not_done(access: &ClusterAccess, what: &str, left: &[IpNet], seen: &Changed) -> Error {
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Error::unavailable(format!(
        "not all was {what} in cluster {:?}; what is missing: {}; ceph said {:?}; send the request again",
        access.cluster.name,
        left.join(", "),
        seen.said
    ))
}
