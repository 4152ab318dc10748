//! What the cluster says of its pools and clients, by `ceph`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::answer::{is, no_pool};
use super::output::{read, read_all};
use super::space::free_space;
use super::{CommandTool, rbd};
use crate::backend::ceph::{ClusterAccess, ClusterTool, FreeSpace, PoolRef};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Tool};

/// A row of `ceph osd pool ls detail --format=json`
#[derive(Deserialize)]
struct PoolRow {
    pool_name: String,
    #[serde(default)]
    application_metadata: BTreeMap<String, IgnoredAny>,
}

/// A row of `rbd namespace ls --format=json`
#[derive(Deserialize)]
struct NamespaceRow {
    name: String,
}

/// A row of `ceph osd blocklist ls --format=json`
#[derive(Deserialize)]
struct Blocked {
    addr: Option<String>,
    range: Option<String>,
}

impl ClusterTool for CommandTool {
    /// `ceph osd pool ls detail`, which says for what application each pool is (`rbd pool init` does).
    fn pools(&self, call: &Call, access: &ClusterAccess) -> Result<Vec<String>> {
        let cmd = access.command(Tool::Ceph, Class::Question).args([
            "osd",
            "pool",
            "ls",
            "detail",
            "--format=json",
        ]);
        let output = self.run(call, access, cmd).map_err(|failure| failure.into_error("list the pools"))?;
        let rows = read::<Vec<PoolRow>>("ceph osd pool ls detail", &output.stdout)?;
        Ok(rows
            .into_iter()
            .filter(|row| row.application_metadata.contains_key("rbd"))
            .map(|row| row.pool_name)
            .collect())
    }

    /// `rbd namespace ls`
    fn namespaces(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        let cmd = rbd(&default, Class::Question, &["namespace", "ls", "--format=json"]);
        let doing = || format!("list the namespaces of pool {}", at.pool);
        let output = self
            .run(call, &at.access, cmd)
            .map_err(|failure| self.error(call, failure, &default, &doing()))?;
        Ok(read::<Vec<NamespaceRow>>("rbd namespace ls", &output.stdout)?
            .into_iter()
            .map(|row| row.name)
            .collect())
    }

    fn free_space(&self, call: &Call, at: &PoolRef, pool: &str) -> Result<FreeSpace> {
        let space = free_space(&*self.runner, call, &at.access, pool)?;
        space.ok_or_else(|| Error::precondition(no_pool(pool)))
    }

    /// `ceph osd blocklist ls`, which clusters older than 16.2 know as `blacklist`. It prints a list of
    /// addresses and one of ranges.
    fn blocklist(&self, call: &Call, access: &ClusterAccess) -> Result<Vec<String>> {
        let ask = |list| {
            let cmd = access.command(Tool::Ceph, Class::Question).args(["osd", list, "ls", "--format=json"]);
            self.run(call, access, cmd)
        };
        let answer = match ask("blocklist") {
            Err(failure) if is(&failure, libc::EINVAL) => ask("blacklist"),
            answer => answer,
        };
        let output =
            answer.map_err(|failure| failure.into_error("list the clients that the cluster has shut out"))?;
        let lists = read_all::<Vec<Blocked>>("ceph osd blocklist ls", &output.stdout)?;
        Ok(lists.into_iter().flatten().filter_map(|it| it.addr.or(it.range)).collect())
    }
}
