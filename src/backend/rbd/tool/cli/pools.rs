//! What the cluster says of its pools.

use serde::Deserialize;

use super::answer::{NeededFor, lacks_pool, no_pool};
use super::{CommandTool, PoolCommands};
use crate::backend::ceph::objects::Rados;
use crate::backend::ceph::{ClusterTool, Failure, FreeSpace, Monitors, PoolRef, read};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::{Class, Output};

/// A row of `rbd namespace ls --format=json`
#[derive(Deserialize)]
struct NamespaceRow {
    name: String,
}

impl PoolCommands<'_> {
    /// `rbd namespace ls`, which opens the pool first.
    fn namespace_ls(&self) -> Result<Output, Failure> {
        self.run(self.rbd(Class::Question, &["namespace", "ls", "--format=json"]))
    }
}

impl ClusterTool for CommandTool {
    fn monitors(&self) -> &dyn Monitors {
        &self.programs
    }

    fn is_resident(&self) -> bool {
        self.programs.is_resident()
    }

    /// `rbd namespace ls`. A list of all pools by `ceph` would do as well, but not one by application: a pool
    /// without an application may have images, too.
    fn has_pool(&self, call: &Call, at: &PoolRef) -> Result<bool> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        let pool = self.at(call, &default);
        match pool.namespace_ls() {
            Ok(_) => Ok(true),
            Err(failure) if lacks_pool(&failure) => Ok(false),
            Err(failure) => Err(pool.error(failure, &format!("look whether there is pool {:?}", at.pool))),
        }
    }

    /// `rbd namespace ls`
    fn namespaces(&self, call: &Call, at: &PoolRef) -> Result<Vec<String>> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        let pool = self.at(call, &default);
        let doing = || format!("list the namespaces of pool {}", at.pool);
        let output = pool.namespace_ls().map_err(|failure| pool.error(failure, &doing()))?;
        let rows = read::<Vec<NamespaceRow>>("rbd namespace ls", &output.stdout)?;
        Ok(rows.into_iter().map(|row| row.name).collect())
    }

    fn free_space(&self, call: &Call, at: &PoolRef, pool: &str) -> Result<FreeSpace> {
        let space = self.monitors().of(call, &at.access).free_space(pool)?;
        space.ok_or_else(|| no_pool(&at.access.cluster, pool, NeededFor::NewVolume))
    }
}
