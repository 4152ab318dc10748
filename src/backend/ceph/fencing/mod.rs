//! Fences: networks that a cluster's OSDs refuse for good. `ceph osd blocklist` keeps them.
//!
//! Its exit status proves nothing (0 even if it removed nothing), so the cluster is read before and after.
//! Entries have no owner: a fence is an entry that never ends, for a whole host or network. Entries of
//! librbd, failed daemons and administrators end after an hour or a day, and are no fences.

mod guard;
mod map;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use self::map::{ClusterMap, last_line};
use super::ClusterAccess;
use super::monitor::blocklist::{addition, removal};
use super::monitor::{Command, MonitorClient, Monitors, question};
use super::placement::{choose_cluster, known};
use crate::backend::{FenceClient, Fencing};
use crate::clusters::Clusters;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::Class;
use crate::metrics;
use crate::secrets::Secrets;
use crate::sys::address;

/// The most addresses to fence one by one, in a cluster that knows no ranges.
const MOST_ADDRESSES: usize = 256;

/// An entry that never exists (192.0.2.0/24 is for documentation, RFC 5737): a user who may remove it may
/// remove others.
const NO_ENTRY: &str = "192.0.2.255:0/4294967295";
/// The answer for an entry that does not exist.
const NOT_THERE: &str = "isn't blocklisted";
const FORBIDDEN: &str = "EACCES";

/// Fences in the clusters that are set up.
pub struct Fences {
    clusters: Arc<Clusters>,
    monitors: Arc<dyn Monitors>,
}

impl Fences {
    /// Fences in these clusters, through their monitors.
    pub fn new(clusters: Arc<Clusters>, monitors: Arc<dyn Monitors>) -> Self {
        Self { clusters, monitors }
    }

    /// The commands of fences are not counted with those of the cluster's volumes, which may all hang.
    fn access(&self, cluster: &str, secrets: &Secrets) -> Result<ClusterAccess> {
        let access = ClusterAccess::new(known(&self.clusters, cluster)?, secrets)?;
        Ok(ClusterAccess { bulkhead: format!("fences of {}", access.cluster.name).into(), ..access })
    }

    fn map(&self, call: &Call, access: &ClusterAccess) -> Result<ClusterMap> {
        Ok(ask(&self.monitors.of(call, access), Class::Question, [question("osd dump", None)])?.0)
    }
}

/// Reads the cluster and its daemons; also gives the answer to a trial removal.
fn look(monitors: &MonitorClient<'_>) -> Result<(ClusterMap, String)> {
    let dumps = ["mon dump", "mgr dump", "fs dump", "osd dump"].map(|dump| question(dump, None));
    ask(monitors, Class::Change, dumps.into_iter().chain([removal(NO_ENTRY)]))
}

/// Makes the changes, one after the other, and reads the cluster again.
fn change(
    monitors: &MonitorClient<'_>,
    changes: impl Iterator<Item = Command>,
) -> Result<(ClusterMap, String)> {
    ask(monitors, Class::Change, changes.chain([question("osd dump", None)]))
}

/// The cluster after these commands, and their messages on stderr.
fn ask(
    monitors: &MonitorClient<'_>,
    class: Class,
    commands: impl IntoIterator<Item = Command>,
) -> Result<(ClusterMap, String)> {
    let cluster = format!("ask cluster {:?} whom it has shut out", monitors.access.cluster.name);
    let output =
        monitors.ask(class, &Vec::from_iter(commands)).map_err(|failure| failure.into_error(cluster))?;
    let map = ClusterMap::read(&output)?;
    metrics::set(&metrics::FENCES, &[&monitors.access.cluster.name], map.fences().count() as u64);
    Ok((map, output.stderr_tail))
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
        let monitors = self.monitors.of(call, &access);
        let (now, said) = look(&monitors)?;
        let wanted = as_entries(networks, &now)?;
        let missing = |map: &ClusterMap| -> Vec<IpNet> {
            let fences: BTreeSet<IpNet> = map.fences().map(|(network, _)| network).collect();
            wanted.iter().filter(|network| !fences.contains(network)).copied().collect()
        };
        let to_add = missing(&now);
        if to_add.is_empty() {
            return Ok(());
        }
        guard::check(networks, &now, &if allow_self { Vec::new() } else { now.own() })?;
        if !said.contains(NOT_THERE) {
            return Err(lacks_rights(&access, "remove a fence again, so it sets none"));
        }
        let (then, said) = change(&monitors, to_add.iter().map(addition))?;
        match missing(&then).as_slice() {
            [] => Ok(()),
            left => Err(not_done(&access, "fenced", left, &said)),
        }
    }

    fn unfence(&self, call: &Call, cluster: &str, networks: &[IpNet], secrets: &Secrets) -> Result<()> {
        let access = self.access(cluster, secrets)?;
        let monitors = self.monitors.of(call, &access);
        let (now, _) = look(&monitors)?;
        let mut changes = now.fences_of(networks).map(|(_, entry)| removal(&entry.address)).peekable();
        if changes.peek().is_none() {
            tell_of_others(&now, networks);
            return Ok(());
        }
        let (then, said) = change(&monitors, changes)?;
        let left: Vec<IpNet> = then.fences_of(networks).map(|(network, _)| network).collect();
        match left.as_slice() {
            [] => {
                tell_of_others(&then, networks);
                Ok(())
            }
            _ if said.contains(FORBIDDEN) => Err(lacks_rights(&access, "remove a fence")),
            left => Err(not_done(&access, "freed", left, &said)),
        }
    }

    fn fences(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<IpNet>> {
        let map = self.map(call, &self.access(cluster, secrets)?)?;
        let networks: BTreeSet<IpNet> = map.fences().map(|(network, _)| network).collect();
        Ok(networks.into_iter().collect())
    }

    fn clients(&self, call: &Call, cluster: &str, secrets: &Secrets) -> Result<Vec<FenceClient>> {
        let map = self.map(call, &self.access(cluster, secrets)?)?;
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
    /// This host's addresses towards the OSDs. Behind an address translator the OSDs see other addresses.
    fn own(&self) -> Vec<IpAddr> {
        let own: BTreeSet<IpAddr> =
            self.public.iter().filter_map(|osd| address::towards(*osd).ok()).collect();
        own.into_iter().collect()
    }
}

/// Warns of entries that keep the networks shut out, or part of them, after their fences are lifted: other
/// fences, and entries that end.
fn tell_of_others(map: &ClusterMap, networks: &[IpNet]) {
    for entry in &map.entries {
        let Some(shut_out) = entry.network else { continue };
        let overlaps = |it: &&IpNet| shut_out.contains(*it) || it.contains(&shut_out);
        if let Some(network) = networks.iter().find(overlaps) {
            log::warn!("{network} stays shut out, or part of it, by the blocklist's entry {}", entry.address);
        }
    }
}

/// The entries that fence these networks, which are sorted: a host by its address, a network as a range. If
/// the cluster knows no ranges, address by address, the first and the last included: only a network's owner
/// knows that these are not used.
fn as_entries(networks: &[IpNet], map: &ClusterMap) -> Result<Vec<IpNet>> {
    if map.knows_ranges {
        return Ok(networks.to_vec());
    }
    let hosts = |it: &IpNet| it.subnets(it.max_prefix_len()).into_iter().flatten().take(MOST_ADDRESSES + 1);
    let entries: BTreeSet<IpNet> = networks.iter().flat_map(hosts).collect();
    match entries.len() <= MOST_ADDRESSES {
        true => Ok(entries.into_iter().collect()),
        false => Err(Error::invalid(format!(
            "this cluster's release knows no ranges, so {MOST_ADDRESSES} addresses are the most at once: name \
             fewer or smaller networks"
        ))),
    }
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

fn not_done(access: &ClusterAccess, what: &str, left: &[IpNet], said: &str) -> Error {
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    Error::unavailable(format!(
        "not all was {what} in cluster {:?}; what is missing: {}; ceph said {:?}; send the request again",
        access.cluster.name,
        left.join(", "),
        last_line(said)
    ))
}
