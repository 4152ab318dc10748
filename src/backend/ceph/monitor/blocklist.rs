//! What a cluster has shut out: single clients, hosts with all their clients, and networks.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;

use super::{Command, MonitorClient, question};
use crate::backend::ceph::{Failure, read_all};
use crate::clock::timestamp;
use crate::error::{Error, Result};
use crate::exec::{Class, Output};
use crate::metrics;

/// How many years a client is shut out.
const YEARS: u32 = 10;
/// An entry that lasts longer than this is left as it is.
const LASTING: Duration = Duration::from_secs(5 * 365 * 24 * 60 * 60);
const YEAR: f64 = 365.0 * 24.0 * 60.0 * 60.0;
/// Beyond the range of the cluster's clocks, in seconds. The cluster turns it into 2106-02-07, an end that no
/// operator sets by hand.
const FOR_EVER: f64 = 1e12;
/// When 2106 begins, in seconds since 1970.
const NEVER: Duration = Duration::from_secs(4_291_747_200);

/// An entry of the blocklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address as it is listed, and must be named for removal: `10.0.0.7:0/1234567` is a client,
    /// `10.0.0.7:0/0` a host, `10.1.0.5/24` a network.
    pub address: String,
    /// The host or network, host bits masked; None for a client.
    pub network: Option<IpNet>,
    /// When the entry ends.
    pub until: SystemTime,
}

/// A row of `ceph osd blocklist ls --format=json`
#[derive(Deserialize)]
struct Row {
    addr: Option<String>,
    range: Option<String>,
    #[serde(default)]
    until: String,
}

impl Entry {
    /// A client or a host. An address with a port or a number is a single daemon or client.
    pub(crate) fn of_address(text: &str, until: &str) -> Self {
        let host =
            || plain(text).strip_suffix("/0")?.parse::<SocketAddr>().ok().filter(|host| host.port() == 0);
        let network = host().map(|host| host.ip().into());
        Self { address: text.to_string(), network, until: time(until) }
    }

    /// A network: `cidr:10.1.0.5:0/24`; None if the text is no network.
    pub(crate) fn of_range(text: &str, until: &str) -> Option<Self> {
        let (address, length) = text.strip_prefix("cidr:").unwrap_or(text).rsplit_once('/')?;
        let ip = address.parse::<SocketAddr>().ok()?.ip();
        let listed = IpNet::new(ip, length.parse().ok()?).ok()?;
        let (address, network) = (listed.to_string(), Some(listed.trunc()));
        Some(Self { address, network, until: time(until) })
    }

    /// Whether it is an entry of a network, which `ceph osd blocklist range rm` removes.
    pub(crate) fn is_range(&self) -> bool {
        is_range(&self.address)
    }

    /// Whether the entry never ends.
    pub(crate) fn is_lasting(&self) -> bool {
        self.until >= SystemTime::UNIX_EPOCH + NEVER
    }

    /// Whether the entry lasts longer than those that Ceph makes by itself.
    pub(crate) fn lasts_for_years(&self) -> bool {
        self.until > SystemTime::now() + LASTING
    }

    /// Whether the entry shuts out this client (`10.0.0.7:0/1234567`), alone or with all clients of its host
    /// or network.
    pub(crate) fn covers(&self, client: &str) -> bool {
        let (entry, client) = (plain(&self.address), plain(client));
        let host = client.split('/').next().and_then(|host| host.parse::<SocketAddr>().ok());
        let network = self.network.as_ref().zip(host);
        entry == client || network.is_some_and(|(network, host)| network.contains(&host.ip()))
    }
}

/// An address without the version of the protocol.
fn plain(address: &str) -> &str {
    address.trim_start_matches("v1:").trim_start_matches("v2:").trim_start_matches("any:")
}

/// A time that cannot be read counts as past.
fn time(text: &str) -> SystemTime {
    timestamp(text).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The command that shuts a network out for good. Every user of RBD may add an address with `:0/0`.
pub(crate) fn addition(network: &IpNet) -> Command {
    let is_host = network.prefix_len() == network.max_prefix_len();
    let host = format!("{}/0", SocketAddr::new(network.addr(), 0));
    change("add", &if is_host { host } else { network.to_string() }, Some(FOR_EVER))
}

/// The command that removes an entry; its status is 0 also if there is no such entry.
pub(crate) fn removal(address: &str) -> Command {
    change("rm", address, None)
}

/// Only a range is written without a port.
fn is_range(address: &str) -> bool {
    address.parse::<IpNet>().is_ok()
}

fn change(what: &str, address: &str, seconds: Option<f64>) -> Command {
    let range = is_range(address).then(|| ("range", "range".into()));
    let named = [("blocklistop", what.into()), ("addr", address.into())];
    let expire = seconds.map(|seconds| ("expire", seconds.into()));
    [("prefix", "osd blocklist".into())].into_iter().chain(range).chain(named).chain(expire).collect()
}

impl MonitorClient<'_> {
    /// The entries of the blocklist. The cluster prints a list of addresses and a list of ranges.
    pub fn blocklist(&self) -> Result<Vec<Entry>> {
        let output = self.ask_of_any_age(Class::Question, question("osd blocklist ls", None));
        let output =
            output.map_err(|failure| failure.into_error("list the clients that the cluster has shut out"))?;
        let rows = read_all::<Vec<Row>>("ceph osd blocklist ls", &output.stdout)?;
        let entry = |Row { addr, range, until }: Row| match addr {
            Some(address) => Some(Entry::of_address(&address, &until)),
            None => Entry::of_range(&range?, &until),
        };
        Ok(rows.into_iter().flatten().filter_map(entry).collect())
    }

    /// Has the cluster shut a client out for years. An entry that lasts long enough stays as it is.
    pub fn ensure_shut_out(&self, address: &str) -> Result<()> {
        let is_shut_out = || -> Result<bool> {
            Ok(self.blocklist()?.iter().any(|entry| entry.address == address && entry.lasts_for_years()))
        };
        if is_shut_out()? {
            return Ok(());
        }
        self.shut_out(address, YEARS)?;
        metrics::count(&metrics::CLIENTS_SHUT_OUT, &[&self.access.cluster.name]);
        match is_shut_out()? {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "the client at {address} was to be shut out, but is not on the blocklist (`ceph osd blocklist ls`): \
                 try again"
            ))),
        }
    }

    /// Shuts a client out for this many years from now. An earlier entry for it is replaced.
    pub(super) fn shut_out(&self, address: &str, years: u32) -> Result<()> {
        let command = change("add", address, Some(f64::from(years) * YEAR));
        let added = self.ask_of_any_age(Class::Change, command);
        added.map(drop).map_err(|failure| failure.into_error(format!("shut out the client at {address}")))
    }

    /// Repeats a command under the name that clusters older than 16.2 know: `blacklist`.
    fn ask_of_any_age(&self, class: Class, command: Command) -> Result<Output, Failure> {
        let older = |(name, value): (&'static str, Value)| match (name, value.as_str()) {
            ("prefix", Some(words)) => (name, words.replace("blocklist", "blacklist").into()),
            ("blocklistop", _) => ("blacklistop", value),
            _ => (name, value),
        };
        match self.ask(class, std::slice::from_ref(&command)) {
            Err(failure) if failure.status() == Some(libc::EINVAL) => {
                self.ask(class, &[command.into_iter().map(older).collect()])
            }
            answer => answer,
        }
    }
}
