//! What every backend on Ceph shares: who asks which cluster, and how a Ceph tool is run and its failure understood.

use std::sync::Arc;

use crate::clusters::{Cluster, Credentials};
use crate::error::Result;
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
}
