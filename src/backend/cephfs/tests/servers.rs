//! The monitors and the metadata servers of the cluster in memory: its pools, the clients of its file system,
//! and those that are shut out.

use serde_json::{Value, json};

use crate::backend::ceph::monitor::Command;
use crate::backend::ceph::monitor::fake::text;

pub(super) struct Servers {
    /// The clients that have every path mounted: their numbers and the names of their hosts.
    pub clients: Vec<(u64, String)>,
    /// The ranks of the file system, the metadata servers with their ranks and states, and whether these end
    /// before they are asked.
    pub ranks: Vec<u32>,
    pub daemons: Vec<(i64, &'static str)>,
    pub are_ending: bool,
    /// The names of the file systems.
    pub file_systems: Vec<&'static str>,
    shut_out: Vec<String>,
}

impl Default for Servers {
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            ranks: vec![0],
            daemons: vec![(0, "up:active")],
            are_ending: false,
            file_systems: vec!["cephfs"],
            shut_out: Vec::new(),
        }
    }
}

impl Servers {
    /// The answer to a command that is not for the manager, or its status and text.
    pub fn carry_out(&mut self, command: &Command) -> Option<Result<Value, (i32, String)>> {
        Some(Ok(match text(command, "prefix") {
            "fs ls" => {
                let shown = |name| json!({"name": name, "metadata_pool": "meta", "data_pools": ["data"]});
                self.file_systems.iter().map(shown).collect()
            }
            "fs get" => self.map(),
            "df" => json!({"pools": [{"name": "data", "stats": {"max_avail": 1 << 30, "stored": 0}}]}),
            "session ls" if self.are_ending => {
                return Some(Err((
                    libc::ENOENT,
                    "Error ENOENT: problem getting command descriptions".into(),
                )));
            }
            "session ls" => self.sessions(command),
            "osd blocklist" => {
                let address = text(command, "addr").to_string();
                self.clients.retain(|(id, _)| address != format!("10.0.0.7:0/{id}"));
                self.shut_out.push(address);
                Value::Null
            }
            "osd blocklist ls" => {
                let entry = |addr: &String| json!({"addr": addr, "until": "2099-01-01T00:00:00.000000+0000"});
                self.shut_out.iter().map(entry).collect()
            }
            _ => return None,
        }))
    }

    fn map(&self) -> Value {
        let shown = |(gid, (rank, state)): (usize, &(i64, &str))| {
            let about = match *state {
                "laggy" => json!({"gid": gid, "rank": rank, "state": "up:active", "laggy_since": "2026"}),
                state => json!({"gid": gid, "rank": rank, "state": state}),
            };
            (format!("gid_{gid}"), about)
        };
        let info: serde_json::Map<_, _> = self.daemons.iter().enumerate().map(shown).collect();
        json!({"mdsmap": {"in": self.ranks, "up": {}, "info": info}})
    }

    fn sessions(&self, command: &Command) -> Value {
        let filters = command.iter().find(|(name, _)| *name == "filters").map(|(_, value)| value[0].as_str());
        let root = filters.flatten().and_then(|filter| filter.strip_prefix("client_metadata.root="));
        let session = |(id, host): &(u64, String)| {
            let entity = json!({"addr": {"type": "any", "addr": "10.0.0.7:0", "nonce": id}});
            json!({"id": id, "entity": entity, "client_metadata": {"root": root, "hostname": host}})
        };
        self.clients.iter().map(session).collect()
    }
}
