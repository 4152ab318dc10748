//! What the cluster says of its pools and clients, by `ceph`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::answer::{NeededFor, lacks_pool, no_pool};
use super::output::read;
use super::space::{free_space, free_spaces};
use super::{CommandTool, rbd};
use crate::backend::ceph::{ClusterAccess, ClusterTool, FreeSpace, ListedPool, PoolRef, ShutOut};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::{Class, Tool};

/// A row of `ceph osd pool ls detail --format=json`
#[derive(Deserialize)]
struct PoolRow {
    pool_name: String,
    #[serde(default)]
    application_metadata: BTreeMap<String, BTreeMap<String, String>>,
}

/// A row of `rbd namespace ls --format=json`
#[derive(Deserialize)]
struct NamespaceRow {
    name: String,
}

/// The words that list a pool's namespaces.
const NAMESPACE_LS: [&str; 3] = ["namespace", "ls", "--format=json"];

impl ClusterTool for CommandTool {
    /// `ceph osd pool ls detail`, which says for what application each pool is (`rbd pool init` does).
    fn pools(&self, call: &Call, access: &ClusterAccess) -> Result<Vec<ListedPool>> {
        let cmd = access.command(Tool::Ceph, Class::Question).args([
            "osd",
            "pool",
            "ls",
            "detail",
            "--format=json",
        ]);
        let output = self.run(call, access, cmd).map_err(|failure| failure.into_error("list the pools"))?;
        let rows = read::<Vec<PoolRow>>("ceph osd pool ls detail", &output.stdout)?;
        let listed = |mut row: PoolRow| {
            let labels = row.application_metadata.remove("rbd")?;
            Some(ListedPool { name: row.pool_name, labels })
        };
        Ok(rows.into_iter().filter_map(listed).collect())
    }

    /// `rbd namespace ls`, which opens the pool first. A list of pools by `ceph` would do as well, but not
    /// the lists above: they leave out pools that are for no application, which may have images all the same.
    fn has_pool(&self, call: &Call, at: &PoolRef) -> Result<bool> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        match self.run(call, &at.access, rbd(&default, Class::Question, &NAMESPACE_LS)) {
            Ok(_) => Ok(true),
            Err(failure) if lacks_pool(&failure) => Ok(false),
            Err(failure) => {
                Err(self.error(call, failure, &default, &format!("look whether there is pool {:?}", at.pool)))
            }
        }
    }

    /// `rbd namespace ls`
    fn namespaces(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        let cmd = rbd(&default, Class::Question, &NAMESPACE_LS);
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
        space.ok_or_else(|| no_pool(&at.access.cluster, pool, NeededFor::NewVolume))
    }

    fn free_spaces(&self, call: &Call, access: &ClusterAccess) -> Result<BTreeMap<String, FreeSpace>> {
        free_spaces(&*self.runner, call, access, "the pools")
    }

    fn blocklist(&self, call: &Call, access: &ClusterAccess) -> Result<Vec<ShutOut>> {
        self.shut_out_clients(call, access)
    }

    fn shut_out(&self, call: &Call, access: &ClusterAccess, address: &str, years: u64) -> Result<()> {
        self.blocklist_client(call, access, address, years)
    }
}
