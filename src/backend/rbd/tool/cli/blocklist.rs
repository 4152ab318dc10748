//! The clients that a cluster has shut out, by `ceph osd blocklist`.

use std::time::SystemTime;

use serde::Deserialize;

use super::CommandTool;
use super::answer::is;
use super::output::{read_all, timestamp};
use crate::backend::ceph::{ClusterAccess, Failure, ShutOut};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::{Class, Output, Tool};

const YEAR: u64 = 365 * 24 * 60 * 60;

/// A row of `ceph osd blocklist ls --format=json`
#[derive(Deserialize)]
struct Row {
    addr: Option<String>,
    range: Option<String>,
    #[serde(default)]
    until: String,
}

impl CommandTool {
    /// `ceph osd blocklist`, which clusters older than 16.2 know as `blacklist`.
    fn ask_blocklist(
        &self,
        call: &Call,
        access: &ClusterAccess,
        class: Class,
        words: &[&str],
    ) -> Result<Output, Failure> {
        let ask = |list| {
            let cmd = access.command(Tool::Ceph, class).args(["osd", list]);
            self.run(call, access, cmd.args(words.iter().copied()))
        };
        match ask("blocklist") {
            Err(failure) if is(&failure, libc::EINVAL) => ask("blacklist"),
            answer => answer,
        }
    }

    /// It prints a list of addresses and one of ranges.
    pub(super) fn shut_out_clients(&self, call: &Call, access: &ClusterAccess) -> Result<Vec<ShutOut>> {
        let output = self.ask_blocklist(call, access, Class::Question, &["ls", "--format=json"]);
        let output =
            output.map_err(|failure| failure.into_error("list the clients that the cluster has shut out"))?;
        let rows = read_all::<Vec<Row>>("ceph osd blocklist ls", &output.stdout)?;
        let entry = |row: Row| {
            let until = timestamp(&row.until).unwrap_or(SystemTime::UNIX_EPOCH);
            row.addr.or(row.range).map(|address| ShutOut { address, until })
        };
        Ok(rows.into_iter().flatten().filter_map(entry).collect())
    }

    /// It replaces the time of an entry that is there.
    pub(super) fn blocklist_client(
        &self,
        call: &Call,
        access: &ClusterAccess,
        address: &str,
        years: u64,
    ) -> Result<()> {
        let seconds = (years * YEAR).to_string();
        let added = self.ask_blocklist(call, access, Class::Change, &["add", address, &seconds]);
        added.map(drop).map_err(|failure| failure.into_error(format!("shut out the client at {address}")))
    }
}
