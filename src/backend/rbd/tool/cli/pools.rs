//! What the cluster says of its pools.

use serde::Deserialize;

use super::CommandTool;
use super::answer::{NeededFor, lacks_pool, no_pool};
use crate::backend::ceph::objects::Rados;
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
        &self.programs
    }

    fn is_resident(&self) -> bool {
        self.programs.is_resident()
    }

    /// `rbd namespace ls`, which opens the pool first. A list of all pools by `ceph` would do as well, but
    /// not one by application: a pool without an application may have images, too.
    fn has_pool(&self, call: &Call, at: &PoolRef) -> Result<bool> {
        let default = PoolRef { namespace: String::new(), ..at.clone() };
        let pool = self.at(call, &default);
        match pool.run(pool.rbd(Class::Question, &NAMESPACE_LS)) {
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
        let output = pool.run(pool.rbd(Class::Question, &NAMESPACE_LS));
        let output = output.map_err(|failure| pool.error(failure, &doing()))?;
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
