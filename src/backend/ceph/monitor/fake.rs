//! Monitors in memory: they carry out commands, as far as the user's rights go.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::blocklist::Entry;
use super::pools::ListedPool;
use super::{Asker, Command, Monitors};
use crate::backend::ceph::{Failure, FreeSpace};
use crate::clock::rfc3339;
use crate::exec::{Class, Output, Why};

/// When the cluster's clocks end, in seconds since 1970.
const LAST: f64 = 4_294_967_295.0;

/// The state of a cluster's monitors.
#[derive(Clone, Debug)]
pub(crate) struct FakeMonitors {
    pub now: SystemTime,
    /// The pools for RBD.
    pub pools: Vec<(ListedPool, FreeSpace)>,
    pub entries: Vec<Entry>,
    pub knows_ranges: bool,
    /// The user may add entries, but not remove any.
    pub forbids_removal: bool,
    /// After this many changes of a batch, the monitor makes no more.
    pub fails_after: Option<usize>,
    /// The addresses of daemons.
    pub osds: Vec<String>,
    pub monitors: Vec<String>,
    pub managers: Vec<String>,
    pub metadata_servers: Vec<String>,
    /// The checks of `ceph health`, by their names.
    pub checks: serde_json::Map<String, Value>,
}

impl Default for FakeMonitors {
    fn default() -> Self {
        Self {
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600),
            pools: Vec::new(),
            entries: Vec::new(),
            knows_ranges: true,
            forbids_removal: false,
            fails_after: None,
            osds: Vec::new(),
            monitors: Vec::new(),
            managers: Vec::new(),
            metadata_servers: Vec::new(),
            checks: serde_json::Map::new(),
        }
    }
}

impl Monitors for Arc<Mutex<FakeMonitors>> {
    fn ask(&self, (_, access): Asker<'_>, _: Class, commands: &[Command]) -> Result<Output, Failure> {
        self.lock().answer(commands).map_err(|why| Failure::new(access, why.of("ceph")))
    }
}

/// The text argument of this name; empty if the command has none.
pub(crate) fn text<'a>(command: &'a Command, name: &str) -> &'a str {
    let found = command.iter().find(|(it, _)| *it == name);
    found.and_then(|(_, value)| value.as_str()).unwrap_or_default()
}

impl FakeMonitors {
    /// Carries commands out; only the status of a single command counts.
    pub fn answer(&mut self, commands: &[Command]) -> Result<Output, Why> {
        let (mut stdout, mut stderr_tail, mut changes) = (Vec::new(), String::new(), 0);
        for command in commands {
            let is_change = !text(command, "blocklistop").is_empty();
            changes += usize::from(is_change);
            if is_change && self.fails_after.is_some_and(|most| changes > most) {
                continue;
            }
            match self.carry_out(command) {
                Ok((printed, said)) => {
                    stdout
                        .extend(format!("\n{}", printed.map_or(String::new(), |it| it.to_string())).bytes());
                    stderr_tail.push_str(&said);
                }
                Err((status, said)) if commands.len() == 1 => {
                    return Err(Why::Failed { status, stdout, stderr_tail: said.into() });
                }
                Err((_, said)) => stderr_tail.push_str(said),
            }
        }
        Ok(Output { stdout, stderr_tail })
    }

    /// The command's stdout and stderr, or the status and text of its refusal.
    fn carry_out(&mut self, command: &Command) -> Result<(Option<Value>, String), (i32, &'static str)> {
        let address = text(command, "addr");
        let listed = |it: &Entry| it.address == address;
        let printed = match (text(command, "prefix"), text(command, "blocklistop")) {
            ("osd pool ls", _) => self.pools.iter().map(|(pool, _)| pool_row(pool)).collect(),
            ("df", _) => json!({ "pools": self.pools.iter().map(space_row).collect::<Value>() }),
            ("osd blocklist ls", _) => self.entries.iter().map(row).collect(),
            ("health", _) => json!({ "checks": self.checks }),
            ("mon dump", _) => json!({ "mons": daemons(&self.monitors) }),
            ("mgr dump", _) => json!({ "active_addrs": addresses(&self.managers) }),
            ("fs dump", _) => {
                let info = json!({ "gid_7": { "addrs": addresses(&self.metadata_servers) } });
                json!({ "filesystems": [{ "mdsmap": { "info": info } }] })
            }
            ("osd dump", _) => self.osd_dump(),
            ("osd blocklist", "rm") if self.forbids_removal => {
                return Err((libc::EACCES, "Error EACCES: access denied\n"));
            }
            ("osd blocklist", "rm") if !self.entries.iter().any(listed) => {
                return Ok((None, format!("{address} isn't blocklisted\n")));
            }
            ("osd blocklist", "rm") => {
                self.entries.retain(|it| it.address != address);
                return Ok((None, format!("un-blocklisting {address}\n")));
            }
            ("osd blocklist", "add") => {
                self.add(command);
                return Ok((None, format!("blocklisting {address}\n")));
            }
            other => panic!("no monitor knows {other:?}"),
        };
        Ok((Some(printed), String::new()))
    }

    fn add(&mut self, command: &Command) {
        let expire = command.iter().find(|(name, _)| *name == "expire").unwrap().1.as_f64().unwrap();
        let now = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        let until = SystemTime::UNIX_EPOCH + Duration::from_secs_f64((now + expire).min(LAST));
        let address = text(command, "addr");
        let entry = match text(command, "range") {
            "range" => Entry::of_range(&cidr(address), &rfc3339(until)).unwrap(),
            _ => Entry::of_address(address, &rfc3339(until)),
        };
        self.entries.retain(|it| it.address != entry.address);
        self.entries.push(entry);
    }

    fn osd_dump(&self) -> Value {
        let pair = |it: &Entry| {
            let listed = if is_range(it) { cidr(&it.address) } else { it.address.clone() };
            (listed, Value::from(rfc3339(it.until)))
        };
        let list = |ranges| -> serde_json::Map<String, Value> {
            self.entries.iter().filter(|it| is_range(it) == ranges).map(pair).collect()
        };
        let mut dump = json!({ "fsid": "c0ffee", "osds": daemons(&self.osds), "blocklist": list(false) });
        if self.knows_ranges {
            dump["range_blocklist"] = list(true).into();
        }
        dump
    }
}

fn is_range(entry: &Entry) -> bool {
    entry.address.parse::<IpNet>().is_ok()
}

/// `10.1.0.5/24` as the OSD map writes it.
fn cidr(network: &str) -> String {
    let network: IpNet = network.parse().unwrap();
    format!("cidr:{}/{}", SocketAddr::new(network.addr(), 0), network.prefix_len())
}

fn pool_row(pool: &ListedPool) -> Value {
    json!({ "pool_name": pool.name, "application_metadata": { "rbd": pool.labels } })
}

fn space_row((pool, room): &(ListedPool, FreeSpace)) -> Value {
    json!({ "name": pool.name, "stats": { "max_avail": if room.full { 0 } else { room.available }, "stored": 0 } })
}

fn row(entry: &Entry) -> Value {
    match is_range(entry) {
        true => json!({ "range": cidr(&entry.address), "until": rfc3339(entry.until) }),
        false => json!({ "addr": entry.address, "until": rfc3339(entry.until) }),
    }
}

fn addresses(all: &[String]) -> Value {
    let address = |it: &String| json!({ "type": "v2", "addr": SocketAddr::new(it.parse().unwrap(), 6800) });
    json!({ "addrvec": all.iter().map(address).collect::<Value>() })
}

fn daemons(all: &[String]) -> Value {
    all.iter().map(|it| json!({ "public_addrs": addresses(std::slice::from_ref(it)) })).collect()
}
