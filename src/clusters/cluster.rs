//! A Ceph cluster, as the operator set it up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{DomainPool, Monitor, keys, monitors};
use crate::config;
use crate::error::{Error, Result};
use crate::secrets::{Secret, Secrets};

/// A Ceph cluster as the operator set it up.
#[derive(Debug, Default)]
pub struct Cluster {
    /// Its name: a field of every ID.
    pub name: String,
    /// Its own ID, if the operator or its conf gives it.
    pub fsid: Option<String>,
    /// A ceph.conf to pass to the tools; None if only the monitors are known.
    pub conf: Option<PathBuf>,
    /// Its monitors, for the tools and the kernel; empty where the conf finds them in another way.
    pub monitors: Vec<Monitor>,
    /// Its own credentials; None for a cluster in reduced mode.
    pub credentials: Option<Credentials>,
    /// Where its key comes from, or why it has none: for people.
    pub key_from: String,
    /// Whether it has a user, but no key in the places where Ceph looks for one.
    pub lacks_key: bool,
    /// The pools that may be used; empty for all.
    pub pools: Vec<String>,
    /// The namespaces that may be used; empty for all.
    pub namespaces: Vec<String>,
    /// Pools that were removed with all their content, as the operator has declared.
    pub removed_pools: Vec<String>,
    /// Pools with their domains, among which topology chooses; empty if the pools' own labels give them.
    pub domain_pools: Vec<DomainPool>,
    /// The pool that registers the names of volumes whose pool topology chooses.
    pub registry: Option<String>,
    /// Names of other clusters whose volumes are replicated to this one: their IDs mean the copies here.
    pub serves: Vec<String>,
    /// The names of the clusters that its volumes are replicated to, by the names of their sites.
    pub peers: BTreeMap<String, String>,
    /// Whether nodes read from the OSDs that are nearest to them.
    pub read_affinity: bool,
}

/// The user by which cephlet reaches a cluster, and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user, without `client.`.
    pub user: String,
    /// The key, in base64 as Ceph writes it; None to let the tools find it.
    pub key: Option<Secret>,
}

impl Cluster {
    /// A cluster of this name about which nothing else is known.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_string(), key_from: String::from("no user is set"), ..Self::default() }
    }

    /// Gives it credentials of its own.
    pub(super) fn own(&mut self, user: &str, key: Option<Secret>, key_from: String) {
        self.credentials = Some(Credentials { user: user.to_string(), key });
        self.key_from = key_from;
    }

    /// The credentials of a request's secrets (`userID`, `userKey`), else the cluster's own. Other secrets
    /// are ignored.
    ///
    /// # Errors
    /// Invalid argument if a request has only one of the two, or a malformed one; Unauthenticated if there
    /// are no credentials at all. Both say what to set, and never show a key.
    pub fn credentials(&self, secrets: &Secrets) -> Result<Credentials> {
        let only = |there: &str, missing: &str| {
            Err(Error::invalid(format!(
                "the secret {there:?} was given without {missing:?}: cluster {:?} needs both",
                self.name
            )))
        };
        match (secrets.get("userID"), secrets.get("userKey")) {
            (Some(user), Some(key)) => from_secrets(user, key),
            (Some(_), None) => only("userID", "userKey"),
            (None, Some(_)) => only("userKey", "userID"),
            (None, None) => self.credentials.clone().ok_or_else(|| self.no_credentials()),
        }
    }

    fn no_credentials(&self) -> Error {
        let Self { name, key_from, .. } = self;
        Error::unauthenticated(format!(
            "cluster {name:?} has no credentials of its own ({key_from}) and the request brought none: set \
             the secrets userID and \
             userKey, or give cluster {name:?} a user and a key (user and key_file in the file of \
             CEPHLET_CLUSTERS, else \
             CEPHLET_CEPH_USER and CEPHLET_CEPH_KEYRING)"
        ))
    }

    /// The pools that may be used, each once, in the order of first mention; empty for all.
    pub fn named_pools(&self) -> Vec<&str> {
        let mut pools: Vec<&str> = self.pools.iter().map(String::as_str).collect();
        if !pools.is_empty() {
            pools.extend(
                self.domain_pools.iter().map(|pool| pool.name.as_str()).chain(self.registry.as_deref()),
            );
        }
        let mut seen = BTreeSet::new();
        pools.retain(|pool| seen.insert(*pool));
        pools
    }

    /// Whether a pool may be used.
    pub fn allows_pool(&self, pool: &str) -> bool {
        let pools = self.named_pools();
        pools.is_empty() || pools.contains(&pool)
    }

    /// Whether a pool and a namespace of it may be used.
    pub fn allows(&self, pool: &str, namespace: &str) -> bool {
        let namespaces = &self.namespaces;
        self.allows_pool(pool) && (namespaces.is_empty() || namespaces.iter().any(|it| it == namespace))
    }

    /// The monitors for `-m` of the tools, and for messages; empty where only the conf knows them.
    pub fn monitors_text(&self) -> String {
        monitors::for_tools(&self.monitors)
    }

    /// The monitors for the kernel (`10.0.0.1:6789,10.0.0.2:6789`), and whether they speak messenger version
    /// 2 only, so that `ms_mode` is needed. Names are resolved now.
    ///
    /// # Errors
    /// Unavailable if no name can be resolved; Precondition if no monitor is known.
    pub fn kernel_monitors(&self) -> Result<(String, bool)> {
        monitors::for_kernel(&self.monitors)
            .map_err(|error| error.context(format!("cluster {:?}", self.name)))
    }
}

/// For logs: its monitors, its user and the source of its key.
impl std::fmt::Display for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "monitors {}, ", self.monitors_text())?;
        match &self.credentials {
            Some(credentials) => write!(f, "user {}, key {}", credentials.user, self.key_from),
            None => write!(f, "reduced mode ({})", self.key_from),
        }
    }
}

fn from_secrets(user: &Secret, key: &Secret) -> Result<Credentials> {
    let name = user.reveal().strip_prefix("client.").unwrap_or(user.reveal());
    config::check_user(name).map_err(|what| Error::invalid(format!("the secret \"userID\": {what}")))?;
    let key = key.reveal().trim();
    keys::check(key).map_err(|what| Error::invalid(format!("the secret \"userKey\": {what}")))?;
    Ok(Credentials { user: name.to_string(), key: Some(Secret::new(key)) })
}
