//! What a cluster reports about itself: its daemons' addresses, and the clients that it has shut out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::Deserialize;

use crate::backend::ceph::monitor::blocklist::Entry;
use crate::backend::ceph::read_all;
use crate::error::{Error, Result};
use crate::exec::Output;

/// A cluster, as its monitors know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterMap {
    /// The cluster's own ID.
    pub(super) fsid: String,
    /// The entries of its blocklist.
    pub(super) entries: Vec<Entry>,
    /// Whether it can shut out a network as one range.
    pub(super) knows_ranges: bool,
    /// The addresses of its OSDs, for clients and for each other.
    pub(super) osds: Vec<IpAddr>,
    /// The addresses of its OSDs for clients.
    pub(super) public: Vec<IpAddr>,
    /// The addresses of its monitors.
    pub(super) monitors: Vec<IpAddr>,
    /// The address of its active manager; empty for users who may not see it.
    pub(super) managers: Vec<IpAddr>,
    /// The addresses of the metadata servers of its file systems; empty for users who may not see them.
    pub(super) metadata_servers: Vec<IpAddr>,
}

/// `osd dump`, `mon dump`, `mgr dump` or `fs dump`
#[derive(Deserialize)]
struct Dump {
    #[serde(default)]
    fsid: String,
    #[serde(default)]
    mons: Vec<Daemon>,
    #[serde(default)]
    active_addrs: Addresses,
    osds: Option<Vec<Daemon>>,
    #[serde(default)]
    blocklist: BTreeMap<String, String>,
    range_blocklist: Option<BTreeMap<String, String>>,
    #[serde(default)]
    filesystems: Vec<FileSystem>,
}

#[derive(Deserialize)]
struct FileSystem {
    mdsmap: MdsMap,
}

#[derive(Deserialize)]
struct MdsMap {
    info: BTreeMap<String, MetadataServer>,
}

#[derive(Deserialize)]
struct MetadataServer {
    #[serde(default)]
    addrs: Addresses,
}

#[derive(Deserialize)]
struct Daemon {
    #[serde(default)]
    public_addrs: Addresses,
    #[serde(default)]
    cluster_addrs: Addresses,
}

#[derive(Default, Deserialize)]
struct Addresses {
    #[serde(default)]
    addrvec: Vec<Address>,
}

#[derive(Deserialize)]
struct Address {
    addr: String,
}

impl Addresses {
    fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.addrvec.iter().filter_map(|it| it.addr.parse::<SocketAddr>().ok()).map(|it| it.ip())
    }
}

impl ClusterMap {
    /// Reads the output of `mon dump`, `mgr dump`, `fs dump` and `osd dump`, in any order.
    ///
    /// # Errors
    /// The output cannot be read, or contains no `osd dump`.
    pub(super) fn read(output: &Output) -> Result<Self> {
        let (mut map, mut knows_osds) = (Self::default(), false);
        for Dump { fsid, mons, active_addrs, osds, blocklist, range_blocklist, filesystems } in
            read_all("ceph osd dump", &output.stdout)?
        {
            let servers = filesystems.iter().flat_map(|it| it.mdsmap.info.values());
            map.metadata_servers.extend(servers.flat_map(|server| server.addrs.ips()));
            map.monitors.extend(mons.iter().flat_map(|it| it.public_addrs.ips()));
            map.managers.extend(active_addrs.ips());
            let Some(osds) = osds else { continue };
            (map.fsid, map.knows_ranges, knows_osds) = (fsid, range_blocklist.is_some(), true);
            map.public = osds.iter().flat_map(|osd| osd.public_addrs.ips()).collect();
            let internal = osds.iter().flat_map(|osd| osd.cluster_addrs.ips());
            map.osds = map.public.iter().copied().chain(internal).collect();
            let ranges = range_blocklist.iter().flatten().filter_map(|(it, end)| Entry::of_range(it, end));
            map.entries =
                blocklist.iter().map(|(it, end)| Entry::of_address(it, end)).chain(ranges).collect();
        }
        match knows_osds {
            true => Ok(map),
            false => Err(Error::internal(format!(
                "`ceph osd dump` printed what cephlet cannot read: there is no list of OSDs in it; ceph said {:?}",
                last_line(&output.stderr_tail)
            ))),
        }
    }

    /// The hosts and networks that are shut out for good.
    pub(super) fn fences(&self) -> impl Iterator<Item = (IpNet, &Entry)> {
        let lasting = self.entries.iter().filter(|entry| entry.is_lasting());
        lasting.filter_map(|entry| Some((entry.network?, entry)))
    }

    /// The fences of these networks, in every spelling; if the cluster knows no ranges, the fences of their
    /// addresses.
    pub(super) fn fences_of(&self, networks: &[IpNet]) -> impl Iterator<Item = (IpNet, &Entry)> {
        let is_of = move |fenced: IpNet, network: &IpNet| match self.knows_ranges {
            true => fenced == *network,
            false => network.contains(&fenced),
        };
        self.fences().filter(move |(fenced, _)| networks.iter().any(|network| is_of(*fenced, network)))
    }
}

/// The last line that `ceph` wrote to stderr.
pub(super) fn last_line(said: &str) -> &str {
    said.lines().next_back().unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As Ceph 16.2.15 prints the dumps, shortened.
    const MONITORS: &str = r#"{"epoch":1,"mons":[{"name":"a","public_addrs":{"addrvec":[
        {"type":"v2","addr":"10.9.0.2:3300","nonce":0},{"type":"v1","addr":"[fd09::2]:6789","nonce":0}]}}]}"#;
    const MANAGER: &str =
        r#"{"active_name":"x","active_addrs":{"addrvec":[{"type":"v2","addr":"10.9.0.3:6800","nonce":7}]}}"#;
    const FILE_SYSTEMS: &str = r#"{"epoch":4,"standbys":[],"filesystems":[{"mdsmap":{"fs_name":"cephfs","info":{"gid_7":
        {"gid":7,"name":"a","addrs":{"addrvec":[{"type":"v2","addr":"10.9.0.4:6814","nonce":3}]}}}},"id":1}]}"#;
    const OSDS: &str = r#"{"epoch":9,"fsid":"c0ffee","osds":[{"osd":0,
        "public_addrs":{"addrvec":[{"type":"v2","addr":"10.9.0.1:6857","nonce":2}]},
        "cluster_addrs":{"addrvec":[{"type":"v2","addr":"10.8.0.1:6857","nonce":2}]}}],
        "blocklist":{"10.0.0.1:0/0":"2106-02-07T06:28:15.333020+0000","[fd00::1]:0/0":"2106-02-07T06:28:15.3+0000",
            "10.0.0.2:0/0":"2026-11-24T22:12:10.0+0000","10.0.0.3:0/42":"2106-02-07T06:28:15.3+0000",
            "10.0.0.4:6866/0":"2106-02-07T06:28:15.3+0000"},
        "range_blocklist":{"cidr:10.1.0.5:0/24":"2106-02-07T06:28:15.451071+0000",
            "cidr:[fd00::]:0/64":"2106-02-07T06:28:15.4+0000","cidr:10.2.0.0:0/24":"2026-11-24T22:12:10.0+0000"}}"#;

    fn read(stdout: &str) -> Result<ClusterMap> {
        let stderr_tail = "dumped monmap epoch 1\nError EACCES: access denied\n".into();
        ClusterMap::read(&Output { stdout: stdout.into(), stderr_tail })
    }

    #[test]
    fn a_cluster_is_read_from_all_that_was_printed() {
        let map = read(&format!("{MONITORS}\n\n{MANAGER}\n{FILE_SYSTEMS}\n{OSDS}\n")).unwrap();
        let text = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((map.fsid.as_str(), map.knows_ranges), ("c0ffee", true));
        assert_eq!(text(&map.monitors), ["10.9.0.2", "fd09::2"]);
        assert_eq!(text(&map.metadata_servers), ["10.9.0.4"]);
        assert_eq!(
            (text(&map.managers), text(&map.osds)),
            (vec!["10.9.0.3".into()], vec!["10.9.0.1".into(), "10.8.0.1".into()])
        );
        let entry = |it: &Entry| Some((it.network?.to_string(), it.address.clone(), it.is_lasting()));
        let entries: Vec<(String, String, bool)> = map.entries.iter().filter_map(entry).collect();
        let expected = [
            ("10.0.0.1/32", "10.0.0.1:0/0", true),
            ("10.0.0.2/32", "10.0.0.2:0/0", false),
            ("fd00::1/128", "[fd00::1]:0/0", true),
            ("10.1.0.0/24", "10.1.0.5/24", true),
            ("10.2.0.0/24", "10.2.0.0/24", false),
            ("fd00::/64", "fd00::/64", true),
        ];
        assert_eq!(entries, expected.map(|(network, listed, lasts)| (network.into(), listed.into(), lasts)));
        assert_eq!(text(&map.public), ["10.9.0.1"]);
    }

    #[test]
    fn an_old_cluster_knows_no_ranges_and_a_poor_user_no_manager() {
        let map = read(r#"{"fsid":"c0ffee","osds":[],"blocklist":{}}"#).unwrap();
        assert!(!map.knows_ranges && map.managers.is_empty());
        let error = read(MONITORS).expect_err("nothing is known of its fences");
        assert!(error.message().ends_with("ceph said \"Error EACCES: access denied\""), "{error}");
        assert!(read("").is_err() && read("{\"osds\":").is_err());
    }
}
