//! What every backend on Ceph shares: who asks which cluster, and how a Ceph tool is run and its failure understood.

use std::sync::Arc;

use crate::clusters::{Cluster, Credentials};
use crate::error::Result;
use crate::exec::{Class, Cmd, Tool};
use crate::secrets::Secrets;

/// A cluster and the credentials to reach it with.
#[derive(Clone, Debug)]
pub struct Access {
    /// The cluster.
    pub cluster: Arc<Cluster>,
    /// Who asks.
    pub credentials: Credentials,
}

impl Access {
    /// Access to `cluster` with a request's secrets, else with the cluster's own credentials.
    pub fn new(cluster: Arc<Cluster>, secrets: &Secrets) -> Result<Self> {
        let credentials = cluster.credentials(secrets)?;
        Ok(Self { cluster, credentials })
    }

    /// `tool` with what it needs to reach the cluster.
    pub fn command(&self, tool: Tool, class: Class) -> Cmd {
        let monitors: Vec<_> = self.cluster.monitors.iter().filter_map(|it| it.v1.clone().or_else(|| it.v2.clone())).collect();
        let command = Cmd::new(tool, class).args(["-c", "/dev/null", "-m", &monitors.join(","), "--id", &self.credentials.user]);
        let key = self.credentials.key.as_ref().map_or("", |key| key.reveal());
        command.args(["--keyfile", "/proc/self/fd/0"]).stdin(key)
    }
}
