//! What the cluster says of its pools.

use serde::Deserialize;

use super::answer::{NeededFor, lacks_pool, no_pool};
use super::{CommandTool, rbd};
use crate::backend::ceph::{ClusterTool, FreeSpace, Monitors, PoolRef, read};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::Class;

/// A row of `rbd namespace ls --format=json`
#[derive(Deserialize)]
struct NamespaceRow {
    name: String,
}

/// The words that list a pool's namespaces.
const NAMESPACE_LS: [&str; 3] = ["namespace", "ls", "--format=json"];

impl ClusterTool for CommandTool {
    fn monitors(&self) -> &dyn Monitors {
        &self.runner
    }

    /// `rbd namespace ls`, which opens the pool first. A list of pools by `ceph` would do as well, but not
    /// that of an application: pools that are for none may have images all the same.
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
        let space = self.monitors().of(call, &at.access).free_space(pool)?;
        space.ok_or_else(|| no_pool(&at.access.cluster, pool, NeededFor::NewVolume))
    }
}
