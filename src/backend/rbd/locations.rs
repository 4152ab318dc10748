//! Which pools and namespaces there are to list: those the operator named, else those the cluster tells,
//! which is remembered for a while, so that a page of a list costs no more than its pools.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::backend::ceph::Access;
use crate::backend::rbd::tool::Spot;
use crate::backend::rbd::{NAME, Rbd};
use crate::call::Call;
use crate::clusters::Cluster;
use crate::error::{Kind, Result};
use crate::ids::{self, Place};
use crate::secrets::Secrets;

/// So long pools and namespaces of a cluster are remembered.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A pool and a namespace.
type Pair = (String, String);
/// What a cluster told, and when.
type Told = (Instant, Arc<BTreeSet<Pair>>);

/// What is remembered of clusters, by their names.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    told: Mutex<HashMap<String, Told>>,
    /// Where this daemon itself has made volumes, whatever the cluster tells.
    used: Mutex<BTreeSet<(String, Pair)>>,
}

impl Pools {
    /// There are volumes here.
    pub fn note(&self, place: &Place) {
        self.used.lock().insert((place.cluster.clone(), (place.pool.clone(), place.namespace.clone())));
    }

    /// The place could not be listed: the next list asks anew what there is. `gone` says that it is not
    /// there.
    pub fn forget(&self, place: &Place, gone: bool) {
        self.told.lock().remove(&place.cluster);
        if gone {
            self.used.lock().remove(&(place.cluster.clone(), (place.pool.clone(), place.namespace.clone())));
        }
    }

    fn remembered(&self, cluster: &str) -> Option<Arc<BTreeSet<Pair>>> {
        let told = self.told.lock();
        told.get(cluster)
            .filter(|(since, _)| since.elapsed() < REMEMBERED)
            .map(|(_, pairs)| Arc::clone(pairs))
    }

    fn remember(&self, cluster: &str, pairs: BTreeSet<Pair>) -> Arc<BTreeSet<Pair>> {
        let pairs = Arc::new(pairs);
        self.told.lock().insert(cluster.to_string(), (Instant::now(), Arc::clone(&pairs)));
        pairs
    }

    fn used_of(&self, cluster: &str) -> Vec<Pair> {
        self.used.lock().iter().filter(|(it, _)| it == cluster).map(|(_, pair)| pair.clone()).collect()
    }
}

/// What is in front of the keys of everything at a place. No such text begins another, so keys sort by their
/// places first.
pub(crate) fn prefix(place: &Place) -> String {
    place.key("")
}

/// The place a spot is.
pub(crate) fn place_of(spot: &Spot) -> Place {
    let Spot { access, pool, namespace } = spot;
    Place {
        backend: NAME.into(),
        cluster: access.cluster.name.clone(),
        pool: pool.clone(),
        namespace: namespace.clone(),
    }
}

impl Rbd {
    /// Everywhere in all clusters with credentials of their own, in the order of the keys of what lies there.
    pub(crate) fn spots_to_list(&self, call: &Call) -> Result<Vec<Spot>> {
        self.spots_after(call, "")
    }

    /// Those that can have keys behind `after`. Clusters that cannot are not asked for their pools.
    pub(crate) fn spots_after(&self, call: &Call, after: &str) -> Result<Vec<Spot>> {
        let mut spots = BTreeMap::new();
        for cluster in self.clusters.all().iter().filter(|cluster| cluster.credentials.is_some()) {
            if is_over(&format!("{NAME}:{}:", ids::encode(&cluster.name)), after) {
                continue;
            }
            let found = self
                .spots_of(call, cluster)
                .map_err(|error| error.context(format_args!("list cluster {:?}", cluster.name)))?;
            spots.extend(found.into_iter().map(|spot| (prefix(&place_of(&spot)), spot)));
        }
        Ok(spots.into_iter().filter(|(prefix, _)| !is_over(prefix, after)).map(|(_, spot)| spot).collect())
    }

    /// Everywhere in a cluster with credentials of its own.
    pub(crate) fn spots_of(&self, call: &Call, cluster: &Arc<Cluster>) -> Result<Vec<Spot>> {
        let access = Access::new(Arc::clone(cluster), &Secrets::default())?;
        let pairs = match self.pools.remembered(&cluster.name) {
            Some(pairs) => pairs,
            None => self.pools.remember(&cluster.name, self.ask_for_pools(call, &access)?),
        };
        let used = self.pools.used_of(&cluster.name);
        let all: BTreeSet<Pair> = pairs.iter().cloned().chain(used).collect();
        let allowed = all.into_iter().filter(|(pool, namespace)| cluster.allows(pool, namespace));
        Ok(allowed.map(|(pool, namespace)| Spot { access: access.clone(), pool, namespace }).collect())
    }

    /// The pools that were named, else all; with the namespaces that are there and allowed.
    fn ask_for_pools(&self, call: &Call, access: &Access) -> Result<BTreeSet<Pair>> {
        let cluster = &access.cluster;
        let named = !cluster.pools.is_empty();
        let pools = if named { cluster.pools.clone() } else { self.tool.pools(call, access)? };
        let (mut pairs, mut refusal) = (BTreeSet::new(), None);
        for pool in pools {
            let spot = Spot { access: access.clone(), pool, namespace: String::new() };
            // Only the default one: nothing to ask for.
            let others = match cluster.namespaces.as_slice() {
                [only] if only.is_empty() && named => Vec::new(),
                _ => match self.tool.namespaces(call, &spot) {
                    // One that this user may not look into, and that nobody named, has no volumes of ours.
                    Err(error) if !named && error.kind() == Kind::Precondition => {
                        log::debug!(
                            "pool {:?} of cluster {:?} is passed over: {error}",
                            spot.pool,
                            cluster.name
                        );
                        refusal = Some(error);
                        continue;
                    }
                    others => others?,
                },
            };
            pairs.extend(
                others.into_iter().chain([String::new()]).map(|namespace| (spot.pool.clone(), namespace)),
            );
        }
        // A user who may look into none at all is set up wrongly.
        match refusal {
            Some(refusal) if pairs.is_empty() => Err(refusal),
            _ => Ok(pairs),
        }
    }
}

/// Whether all keys that begin with `prefix` lie before `after`, or are `after` at most.
fn is_over(prefix: &str, after: &str) -> bool {
    prefix < after && !after.starts_with(prefix)
}
