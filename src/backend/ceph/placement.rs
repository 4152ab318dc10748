//! Where volumes live: the cluster, pool and namespace that an ID or the parameters of a request name, and
//! the key to reach them with.
//!
//! A pool may have been removed with all its contents. The operator lists such pools in the clusters file
//! (`removed_pools`): a missing pool that is not listed is a configuration error, and its volumes do not
//! count as absent. The entry counts only while the cluster reports that there is no such pool. For volumes
//! of CephFS the same holds for a file system of that name.

use std::sync::Arc;

use crate::backend::Served;
use crate::backend::ceph::{ClusterAccess, ClusterTool};
use crate::clusters::{Cluster, Clusters};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{Place, VolumeId};
use crate::secrets::Secrets;

/// A pool and a namespace (empty for none) of a cluster, and the credentials to reach them.
#[derive(Clone, Debug)]
pub struct PoolRef {
    /// The cluster and the credentials.
    pub access: ClusterAccess,
    /// The pool.
    pub pool: String,
    /// The namespace; empty for the default one.
    pub namespace: String,
}

impl PoolRef {
    /// The place for volumes of this backend.
    pub fn place(&self, backend: &str) -> Place {
        Place {
            backend: backend.into(),
            cluster: self.access.cluster.name.clone(),
            pool: self.pool.clone(),
            namespace: self.namespace.clone(),
        }
    }

    /// `POOL` or `POOL/NAMESPACE`, as Ceph's tools take it.
    pub fn spec(&self) -> String {
        let Self { pool, namespace, .. } = self;
        if namespace.is_empty() { pool.clone() } else { format!("{pool}/{namespace}") }
    }

    /// The same pool with the present credentials of its cluster, which may have changed since. None if the
    /// cluster is no longer set up.
    pub fn renewed(&self, clusters: &Clusters) -> Result<Option<Self>> {
        let Some(cluster) = clusters.find(&self.access.cluster.name)? else { return Ok(None) };
        if !self.access.is_own() {
            return Ok(Some(self.clone()));
        }
        Ok(Some(Self { access: ClusterAccess::new(cluster, &Secrets::default())?, ..self.clone() }))
    }

    /// Whether the pool was removed: the operator lists it, and the cluster has no pool of that name.
    ///
    /// # Errors
    /// The cluster does not answer whether it has the pool.
    pub(crate) fn is_removed(&self, tool: &dyn ClusterTool, call: &Call) -> Result<bool> {
        let cluster = &self.access.cluster;
        if !cluster.removed_pools.contains(&self.pool) {
            return Ok(false);
        }
        let is_there = tool.has_pool(call, self)?;
        if is_there {
            log::warn!("cluster {:?}: pool {:?} {IS_THERE}", cluster.name, self.pool);
        }
        Ok(!is_there)
    }
}

const IS_THERE: &str = "is there: that it is among `removed_pools` in the clusters file is ignored";

impl std::fmt::Display for PoolRef {
    /// For people. With the namespace, as the same pool and volume names may exist in several namespaces.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "pool {:?}", self.pool),
            namespace => write!(f, "pool {:?}, namespace {namespace:?}", self.pool),
        }
    }
}

/// The place that a request asks for, as far as it names one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacementWish<'a> {
    pub cluster: Option<&'a str>,
    pub pool: Option<&'a str>,
    pub namespace: &'a str,
    /// The pool if neither the request nor the cluster names one.
    pub usual_pool: &'a str,
}

/// Whether cephlet's volumes may exist at a place. If the configuration cannot be read, they may.
pub(crate) fn serves(clusters: &Clusters, place: &Place) -> Served {
    match clusters.find(&place.cluster) {
        Ok(None) => Served::NotSetUp,
        Ok(Some(_)) | Err(_) => Served::Here,
    }
}

/// Ends this node's own publication of a detached volume, by `end`. The volume stays published where a repeat
/// would not help: its cluster is not set up here any more, or this host has no credentials for it and the
/// request, as every request to unstage, brings none.
pub(crate) fn end_own_publication(
    clusters: &Clusters,
    (id, secrets): (&VolumeId, &Secrets),
    end: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let found = clusters.find(&id.place.cluster);
    let no_credentials = || matches!(&found, Ok(Some(cluster)) if cluster.credentials(secrets).is_err());
    let why = match &found {
        Ok(None) => Error::precondition("its cluster is not set up here any more"),
        _ => match end() {
            Err(error) if error.kind() == Kind::Unauthenticated && no_credentials() => error,
            ended => return ended,
        },
    };
    log::warn!(
        "volume {id} is detached; if this node had published it to itself, it stays so until it is staged here \
         again, or ControllerUnpublishVolume ends that: {why}"
    );
    Ok(())
}

/// Where a new volume of `backend` would live.
pub(crate) fn choose(clusters: &Clusters, backend: &str, asked: &PlacementWish<'_>) -> Result<Place> {
    let cluster = choose_cluster(clusters, asked.cluster)?;
    let known = known(clusters, &cluster)?;
    let pool = asked.pool.unwrap_or_else(|| match known.pools.as_slice() {
        [only] => only,
        _ => asked.usual_pool,
    });
    if !known.allows(pool, asked.namespace) {
        return Err(Error::invalid(format!(
            "pool {pool:?} with namespace {:?} is not among those allowed for cluster {cluster:?}: set the \
             parameters \"pool\" and \"namespace\" to allowed ones",
            asked.namespace
        )));
    }
    Ok(Place { backend: backend.into(), cluster, pool: pool.into(), namespace: asked.namespace.into() })
}

/// Where the name of a new volume of `backend` is registered if topology chooses the volume's pool.
pub(crate) fn choose_registry(
    clusters: &Clusters,
    backend: &str,
    asked: &PlacementWish<'_>,
) -> Result<Place> {
    let cluster = known(clusters, &choose_cluster(clusters, asked.cluster)?)?;
    choose(clusters, backend, &PlacementWish { pool: asked.pool.or(cluster.registry.as_deref()), ..*asked })
}

/// The name of the cluster that a request means: the one it names, or the only one there is. A name that only
/// other sites use is refused: the request may mean that site, whose data this cluster does not have.
pub(crate) fn choose_cluster(clusters: &Clusters, asked: Option<&str>) -> Result<String> {
    // Clusters that are unusable at the moment count too: the place of a volume must not depend on that.
    let names: Vec<String> = clusters.entries().into_iter().map(|(name, _)| name).collect();
    match (asked, names.as_slice()) {
        (Some(name), _) => match clusters.canonical(name) {
            here if here == name => Ok(here),
            here => Err(Error::invalid(format!(
                "cluster {name:?} is not set up here, {here:?} only serves its IDs: ask at a host that has it, or \
                 name {here:?}"
            ))),
        },
        (None, [only]) => Ok(only.clone()),
        (None, []) => {
            let why = clusters.trouble();
            Err(Error::precondition(
                why.as_deref()
                    .unwrap_or("no Ceph cluster is set up: set CEPHLET_CEPH_CONF or CEPHLET_CLUSTERS"),
            ))
        }
        (None, _) => Err(Error::invalid(format!(
            "the parameter \"cluster\" is missing: set it to one of {}",
            names.join(", ")
        ))),
    }
}

/// The cluster of this name; without a name, all that are set up with credentials of their own.
pub(crate) fn clusters(clusters: &Clusters, asked: Option<&str>) -> Result<Vec<Arc<Cluster>>> {
    match asked {
        Some(name) => Ok(vec![known(clusters, &choose_cluster(clusters, Some(name))?)?]),
        None => Ok(clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some()).collect()),
    }
}

/// A cluster by its name.
pub(crate) fn known(clusters: &Clusters, name: &str) -> Result<Arc<Cluster>> {
    clusters.find(name)?.ok_or_else(|| {
        Error::invalid(format!("cluster {name:?} is not set up: name one that `cephlet config` shows"))
    })
}

/// The state of each pool that the operator lists as removed: cluster, pool, state.
pub(crate) fn states_of_removed(
    tool: &dyn ClusterTool,
    call: &Call,
    clusters: &Clusters,
) -> Vec<[String; 3]> {
    let pools = |cluster: Arc<Cluster>| {
        let removed = cluster.removed_pools.clone();
        removed.into_iter().map(move |pool| (Arc::clone(&cluster), pool))
    };
    let state = |(cluster, pool): (Arc<Cluster>, String)| {
        let name = cluster.name.clone();
        let is_there = ClusterAccess::new(cluster, &Secrets::default()).and_then(|access| {
            tool.has_pool(call, &PoolRef { access, pool: pool.clone(), namespace: String::new() })
        });
        let state = match is_there {
            Ok(true) => String::from(IS_THERE),
            Ok(false) => String::from("is not there: what was in it counts as deleted"),
            Err(error) => format!("not known: {error}"),
        };
        [name, pool, state]
    };
    clusters.all().into_iter().flat_map(pools).map(state).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that fails should panic")]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn requests_name_a_cluster_as_it_is_called_here() {
        let serving = |name: &str, serves: &[&str]| Cluster {
            serves: serves.iter().map(ToString::to_string).collect(),
            ..Cluster::named(name)
        };
        let one = Clusters::of([serving("backup", &["main"])]);
        let two = Clusters::of([serving("backup", &["main"]), serving("lab", &[])]);
        let refused = |clusters: &Clusters, asked: Option<&str>, what: &str| {
            let refusal = choose_cluster(clusters, asked).unwrap_err();
            assert!(refusal.message().contains(what), "UNSAFE: {refusal}");
            assert_eq!(refusal.kind(), Kind::InvalidArgument);
        };
        assert_eq!(choose_cluster(&one, None).unwrap(), "backup");
        assert_eq!(choose_cluster(&one, Some("backup")).unwrap(), "backup");
        assert_eq!(choose_cluster(&two, Some("lab")).unwrap(), "lab");
        refused(&one, Some("main"), "\"backup\" only serves its IDs");
        refused(&two, Some("main"), "\"backup\" only serves its IDs");
        refused(&two, None, "set it to one of backup, lab");
        assert_eq!(choose_cluster(&Clusters::of([]), None).unwrap_err().kind(), Kind::Precondition);
    }
}
