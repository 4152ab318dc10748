//! The monitors and the metadata servers of the cluster in memory: its pools, the clients of its file system,
//! and those that are shut out.

use serde_json::{Value, json};

use crate::backend::ceph::monitor::Command;
use crate::backend::ceph::monitor::fake::text;

#[derive(Default)]
pub(super) struct Servers {
    /// The clients that have every path mounted: their numbers and the names of their hosts.
    pub clients: Vec<(u64, String)>,
    shut_out: Vec<String>,
}

impl Servers {
    /// The answer to a command that is not for the manager.
    pub fn carry_out(&mut self, command: &Command) -> Option<Value> {
        Some(match text(command, "prefix") {
            "fs ls" => json!([{"name": "cephfs", "metadata_pool": "meta", "data_pools": ["data"]}]),
            "fs get" => json!({"mdsmap": {"up": {"mds_0": 4105}}}),
            "df" => json!({"pools": [{"name": "data", "stats": {"max_avail": 1 << 30, "stored": 0}}]}),
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
        })
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
