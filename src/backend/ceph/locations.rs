//! The pools and namespaces to list: those that the operator named, else those that the cluster reports. Its
//! report is remembered for a while, so that a page of a list costs no more than its pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backend::Unlisted;
use crate::backend::ceph::cache::Cache;
use crate::backend::ceph::placement::PoolRef;
use crate::backend::ceph::{ClusterAccess, ClusterTool};
use crate::clusters::{Cluster, Clusters};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place};
use crate::secrets::Secrets;

/// How long the pools and namespaces of a cluster are remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A pool and a namespace.
type Pair = (String, String);

/// What is remembered about clusters, by their names.
#[derive(Debug)]
pub(crate) struct Locations {
    reported: Cache<String, Arc<BTreeSet<Pair>>>,
    /// Where this daemon itself has made volumes, whatever the cluster reports.
    used: Mutex<BTreeSet<(String, Pair)>>,
}

impl Default for Locations {
    fn default() -> Self {
        Self { reported: Cache::for_at_most(REMEMBERED), used: Mutex::default() }
    }
}

/// Whose locations are asked for, and how.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    /// The first field of its keys.
    pub backend: &'a str,
    pub clusters: &'a Clusters,
    pub tool: &'a dyn ClusterTool,
    pub call: &'a Call,
}

impl Locations {
    /// Notes that there are volumes at this place.
    pub fn note(&self, place: &Place) {
        self.used.lock().insert(used(place));
    }

    /// Called if the place could not be listed: it may be gone, so the next list asks the cluster again.
    pub fn forget_unlisted(&self, place: &Place, error: &Error) {
        self.reported.forget(&place.cluster);
        if matches!(error.kind(), Kind::InvalidArgument | Kind::Precondition | Kind::NotFound) {
            self.used.lock().remove(&used(place));
        }
    }

    /// The locations that can have keys after `after`, in the order of the keys, in all clusters with
    /// credentials of their own. A cluster that cannot have such keys is not asked for its pools; `unlisted`
    /// decides about one that does not answer.
    pub fn after(
        &self,
        question: &Question<'_>,
        after: &str,
        unlisted: Unlisted<'_>,
    ) -> Result<Vec<PoolRef>> {
        let Question { backend, clusters, .. } = question;
        let mut found = BTreeMap::new();
        for cluster in clusters.all().iter().filter(|cluster| cluster.credentials.is_some()) {
            if is_over(&format!("{backend}:{}:", ids::encode(&cluster.name)), after) {
                continue;
            }
            match self.of_cluster(question, cluster) {
                // No such key is a prefix of another, so keys sort by their places first.
                Ok(here) => found.extend(here.into_iter().map(|at| (at.place(backend).key(""), at))),
                Err(error) => unlisted(error.context(format_args!("list cluster {:?}", cluster.name)))?,
            }
        }
        Ok(found.into_iter().filter(|(prefix, _)| !is_over(prefix, after)).map(|(_, at)| at).collect())
    }

    /// All locations in a cluster with credentials of its own.
    pub fn of_cluster(&self, question: &Question<'_>, cluster: &Arc<Cluster>) -> Result<Vec<PoolRef>> {
        let access = ClusterAccess::new(Arc::clone(cluster), &Secrets::default())?;
        let ask = || reported(question, &access).map(Arc::new);
        let pairs = self.reported.get_or_ask(cluster.name.clone(), ask)?;
        let used: Vec<Pair> = {
            let used = self.used.lock();
            used.iter().filter(|(name, _)| *name == cluster.name).map(|(_, pair)| pair.clone()).collect()
        };
        let all: BTreeSet<Pair> = pairs.iter().cloned().chain(used).collect();
        let allowed = all.into_iter().filter(|(pool, namespace)| cluster.allows(pool, namespace));
        let mut there = Vec::new();
        for (pool, namespace) in allowed {
            let at = PoolRef { access: access.clone(), pool, namespace };
            if !at.is_removed(question.tool, question.call)? {
                there.push(at);
            }
        }
        Ok(there)
    }
}

/// The pools that were named, else all pools, with their existing and allowed namespaces.
fn reported(question: &Question<'_>, access: &ClusterAccess) -> Result<BTreeSet<Pair>> {
    let cluster = &access.cluster;
    let pools = cluster.named_pools();
    let named = !pools.is_empty();
    let pools: Vec<String> = match named {
        true => pools.into_iter().map(str::to_string).collect(),
        false => {
            let listed = question.tool.monitors().of(question.call, access).pools(question.backend)?;
            listed.into_iter().map(|pool| pool.name).collect()
        }
    };
    let (mut pairs, mut refusal) = (BTreeSet::new(), None);
    for pool in pools {
        let at = PoolRef { access: access.clone(), pool, namespace: String::new() };
        if at.is_removed(question.tool, question.call)? {
            continue;
        }
        match namespaces(question, &at, named) {
            Ok(others) => {
                let all = others.into_iter().chain([String::new()]);
                pairs.extend(all.map(|namespace| (at.pool.clone(), namespace)));
            }
            // A pool that was not named, and that this user may not read, has no volumes of ours.
            Err(error) if !named && error.kind() == Kind::Precondition => {
                log::debug!("pool {:?} of cluster {:?} is passed over: {error}", at.pool, cluster.name);
                refusal = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    // If the user may read no pool at all, the setup is wrong.
    match refusal {
        Some(refusal) if pairs.is_empty() => Err(refusal),
        _ => Ok(pairs),
    }
}

fn namespaces(question: &Question<'_>, at: &PoolRef, named: bool) -> Result<Vec<String>> {
    match at.access.cluster.namespaces.as_slice() {
        // Only the default namespace is allowed, so there is nothing to ask for.
        [only] if only.is_empty() && named => Ok(Vec::new()),
        _ => question.tool.namespaces(question.call, at),
    }
}

fn used(place: &Place) -> (String, Pair) {
    (place.cluster.clone(), (place.pool.clone(), place.namespace.clone()))
}

/// Whether all keys that begin with `prefix` sort before `after`.
fn is_over(prefix: &str, after: &str) -> bool {
    prefix < after && !after.starts_with(prefix)
}
