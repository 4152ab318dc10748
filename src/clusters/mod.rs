//! Which Ceph clusters there are, how they are reached and with whose key.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::secrets::{Secret, Secrets};

/// A Ceph cluster as the operator set it up.
#[derive(Debug)]
pub struct Cluster {
    /// Its name: a field of every ID.
    pub name: String,
    /// A ceph.conf to pass to the tools; None where the monitors are all there is.
    pub conf: Option<PathBuf>,
    /// Its monitors, for the tools and the kernel.
    pub monitors: Vec<Monitor>,
    /// Its own credentials; None for a cluster in reduced mode.
    pub credentials: Option<Credentials>,
    /// The pools that may be used; empty for all.
    pub pools: Vec<String>,
    /// The namespaces that may be used; empty for all.
    pub namespaces: Vec<String>,
}

/// One monitor, by its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor {
    /// `10.0.0.1:3300`, of messenger version 2.
    pub v2: Option<String>,
    /// `10.0.0.1:6789`, of messenger version 1.
    pub v1: Option<String>,
}

/// Who asks a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user, without `client.`.
    pub user: String,
    /// The key, in base64 as Ceph writes it; None to let the tools find it.
    pub key: Option<Secret>,
}

/// The clusters in force. The set is replaced as a whole when its file changes.
#[derive(Debug, Default)]
pub struct Clusters {
    current: parking_lot::RwLock<Vec<Arc<Cluster>>>,
}

impl Clusters {
    /// These clusters.
    #[cfg(test)]
    pub fn of(clusters: impl IntoIterator<Item = Cluster>) -> Self {
        Self { current: parking_lot::RwLock::new(clusters.into_iter().map(Arc::new).collect()) }
    }

    /// The cluster of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Cluster>> {
        self.current.read().iter().find(|cluster| cluster.name == name).cloned()
    }

    /// All of them, in the order of their names.
    pub fn all(&self) -> Vec<Arc<Cluster>> {
        self.current.read().clone()
    }
}

impl Cluster {
    /// The credentials of a request's secrets (`userID`, `userKey`), else the cluster's own.
    ///
    /// # Errors
    /// Unauthenticated where there are neither, with what to set.
    pub fn credentials(&self, _secrets: &Secrets) -> Result<Credentials> {
        self.credentials
            .clone()
            .ok_or_else(|| crate::error::Error::unauthenticated(format!("cluster {:?} has no credentials", self.name)))
    }

    /// Whether a pool and a namespace of it may be used.
    pub fn allows(&self, pool: &str, namespace: &str) -> bool {
        let among = |allowed: &[String], name: &str| allowed.is_empty() || allowed.iter().any(|it| it == name);
        among(&self.pools, pool) && among(&self.namespaces, namespace)
    }
}
