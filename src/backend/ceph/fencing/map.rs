//! What a cluster says of itself: its daemons' addresses, and whom it has shut out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

/// How the date of an entry begins that never ends: the cluster's clocks end in 2106.
const NEVER: &str = "2106-";

/// A cluster, as its monitors know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterMap {
    /// Its own ID.
    pub(super) fsid: String,
    /// The hosts and networks that are shut out as a whole.
    pub(super) entries: Vec<Entry>,
    /// It can shut out a network as one range.
    pub(super) knows_ranges: bool,
    /// Where its OSDs are, for their clients and for each other.
    pub(super) osds: Vec<IpAddr>,
    /// Where clients find them.
    pub(super) public: Vec<IpAddr>,
    /// Where its monitors are.
    pub(super) monitors: Vec<IpAddr>,
    /// Where its manager is; empty for users who may not see it.
    pub(super) managers: Vec<IpAddr>,
}

/// A host or network that is shut out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// It, host bits masked.
    pub(super) network: IpNet,
    /// As it is listed, and has to be named to be removed: `10.0.0.1:0/0`, or `10.1.0.5/24`.
    pub(super) listed: String,
    /// Whether it is a range.
    pub(super) is_range: bool,
    /// It never ends, as those of ours.
    pub(super) is_lasting: bool,
}

/// `osd dump`
#[derive(Deserialize)]
struct OsdDump {
    fsid: String,
    #[serde(default)]
    osds: Vec<Osd>,
    #[serde(default)]
    blocklist: BTreeMap<String, String>,
    range_blocklist: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Osd {
    #[serde(default)]
    public_addrs: Addresses,
    #[serde(default)]
    cluster_addrs: Addresses,
}

/// `mon dump`
#[derive(Deserialize)]
struct MonDump {
    mons: Vec<Mon>,
}

#[derive(Deserialize)]
struct Mon {
    #[serde(default)]
    public_addrs: Addresses,
}

/// `mgr dump`
#[derive(Deserialize)]
struct MgrDump {
    active_addrs: Addresses,
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
    /// Reads what `mon dump`, `mgr dump` and `osd dump` have printed, in whichever order.
    ///
    /// # Errors
    /// What is wrong with it; without an `osd dump` nothing is known.
    pub(super) fn read(stdout: &[u8]) -> Result<Self, String> {
        let mut map = Self::default();
        let mut seen_osds = false;
        for document in serde_json::Deserializer::from_slice(stdout).into_iter::<Value>() {
            let document = document.map_err(|error| error.to_string())?;
            if document.get("mons").is_some() {
                let MonDump { mons } = parse(document)?;
                map.monitors = mons.iter().flat_map(|it| it.public_addrs.ips()).collect();
            } else if document.get("active_addrs").is_some() {
                let MgrDump { active_addrs } = parse(document)?;
                map.managers = active_addrs.ips().collect();
            } else if document.get("osds").is_some() {
                map.read_osds(parse(document)?);
                seen_osds = true;
            }
        }
        if seen_osds { Ok(map) } else { Err(String::from("there is no list of OSDs in it")) }
    }

    fn read_osds(&mut self, dump: OsdDump) {
        let OsdDump { fsid, osds, blocklist, range_blocklist } = dump;
        self.fsid = fsid;
        self.knows_ranges = range_blocklist.is_some();
        self.public = osds.iter().flat_map(|osd| osd.public_addrs.ips()).collect();
        let internal = osds.iter().flat_map(|osd| osd.cluster_addrs.ips());
        self.osds = self.public.iter().copied().chain(internal).collect();
        let until = |until: &str, entry: Entry| Entry { is_lasting: until.starts_with(NEVER), ..entry };
        let host = |(text, end): (String, String)| Entry::host(&text).map(|entry| until(&end, entry));
        let range = |(text, end): (String, String)| Entry::range(&text).map(|entry| until(&end, entry));
        let hosts = blocklist.into_iter().filter_map(host);
        self.entries = hosts.chain(range_blocklist.into_iter().flatten().filter_map(range)).collect();
    }

    /// The hosts and networks that are shut out for good.
    pub(super) fn fences(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_lasting)
    }

    /// Those that fence one of these networks, however they were written; where there are no ranges, those of
    /// its addresses.
    pub(super) fn fences_of(&self, networks: &[IpNet]) -> impl Iterator<Item = &Entry> {
        let is_of = move |entry: &Entry, network: &IpNet| match self.knows_ranges {
            true => entry.network == *network,
            false => network.contains(&entry.network),
        };
        self.fences().filter(move |entry| networks.iter().any(|network| is_of(entry, network)))
    }
}

impl Entry {
    /// `10.0.0.1:0/0`. Other ports and numbers are single daemons and clients.
    pub(super) fn host(text: &str) -> Option<Self> {
        let (address, number) = text.rsplit_once('/')?;
        let address: SocketAddr = address.parse().ok()?;
        let is_host = address.port() == 0 && number == "0";
        let (network, listed) = (address.ip().into(), text.to_string());
        is_host.then_some(Self { network, listed, is_range: false, is_lasting: true })
    }

    /// `cidr:10.1.0.5:0/24`
    pub(super) fn range(text: &str) -> Option<Self> {
        let (address, length) = text.strip_prefix("cidr:").unwrap_or(text).rsplit_once('/')?;
        let ip = address.parse::<SocketAddr>().ok()?.ip();
        let listed = IpNet::new(ip, length.parse().ok()?).ok()?;
        let (network, listed) = (listed.trunc(), listed.to_string());
        Some(Self { network, listed, is_range: true, is_lasting: true })
    }
}

fn parse<T: for<'a> Deserialize<'a>>(document: Value) -> Result<T, String> {
    serde_json::from_value(document).map_err(|error| error.to_string())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As Ceph 16.2.15 prints them, shortened.
    const MONITORS: &str = r#"{"epoch":1,"mons":[{"name":"a","public_addrs":{"addrvec":[
        {"type":"v2","addr":"10.9.0.2:3300","nonce":0},{"type":"v1","addr":"[fd09::2]:6789","nonce":0}]}}]}"#;
    const MANAGER: &str =
        r#"{"active_name":"x","active_addrs":{"addrvec":[{"type":"v2","addr":"10.9.0.3:6800","nonce":7}]}}"#;
    const OSDS: &str = r#"{"epoch":9,"fsid":"c0ffee","osds":[{"osd":0,
        "public_addrs":{"addrvec":[{"type":"v2","addr":"10.9.0.1:6857","nonce":2}]},
        "cluster_addrs":{"addrvec":[{"type":"v2","addr":"10.8.0.1:6857","nonce":2}]}}],
        "blocklist":{"10.0.0.1:0/0":"2106-02-07T06:28:15.333020+0000","[fd00::1]:0/0":"2106-02-07T06:28:15.3+0000",
            "10.0.0.2:0/0":"2026-11-24T22:12:10.0+0000","10.0.0.3:0/42":"2106-02-07T06:28:15.3+0000",
            "10.0.0.4:6866/0":"2106-02-07T06:28:15.3+0000"},
        "range_blocklist":{"cidr:10.1.0.5:0/24":"2106-02-07T06:28:15.451071+0000",
            "cidr:[fd00::]:0/64":"2106-02-07T06:28:15.4+0000","cidr:10.2.0.0:0/24":"2026-11-24T22:12:10.0+0000"}}"#;

    #[test]
    fn a_cluster_is_read_from_all_that_was_printed() {
        let map = ClusterMap::read(format!("{MONITORS}\n\n{MANAGER}\n{OSDS}\n").as_bytes()).unwrap();
        let text = |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((map.fsid.as_str(), map.knows_ranges), ("c0ffee", true));
        assert_eq!(text(&map.monitors), ["10.9.0.2", "fd09::2"]);
        assert_eq!(
            (text(&map.managers), text(&map.osds)),
            (vec!["10.9.0.3".into()], vec!["10.9.0.1".into(), "10.8.0.1".into()])
        );
        let entry = |it: &Entry| (it.network.to_string(), it.listed.clone(), it.is_lasting);
        let entries: Vec<(String, String, bool)> = map.entries.iter().map(entry).collect();
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
        let map = ClusterMap::read(br#"{"fsid":"c0ffee","osds":[],"blocklist":{}}"#).unwrap();
        assert!(!map.knows_ranges && map.managers.is_empty());
        assert!(ClusterMap::read(MONITORS.as_bytes()).is_err(), "nothing is known of its fences");
        assert!(ClusterMap::read(b"").is_err() && ClusterMap::read(b"{\"osds\":").is_err());
    }
}
