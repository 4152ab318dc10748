//! Where images live: which cluster, pool and namespace an ID or the parameters of a request mean, and with
//! whose key they are reached.

use std::sync::Arc;

use crate::backend::ceph::Access;
use crate::backend::rbd::parameters::Settings;
use crate::backend::rbd::tool::Spot;
use crate::backend::rbd::{NAME, Rbd};
use crate::clusters::Cluster;
use crate::csi::Map;
use crate::error::{Error, Result};
use crate::ids::{Place, VolumeId};
use crate::secrets::Secrets;

/// The pool that the rbd tool takes when none is named.
const USUAL_POOL: &str = "rbd";

impl Rbd {
    /// The place, and how to reach it with a request's secrets or the cluster's own key.
    pub(crate) fn spot(&self, place: &Place, secrets: &Secrets) -> Result<Spot> {
        let cluster = self.cluster(place)?;
        if !cluster.allows(&place.pool, &place.namespace) {
            return Err(Error::precondition(format!(
                "pool {:?} with namespace {:?} is not among those allowed for cluster {:?}: allow it in the \
                 file of clusters",
                place.pool, place.namespace, place.cluster
            )));
        }
        let access = Access::new(cluster, secrets)?;
        Ok(Spot { access, pool: place.pool.clone(), namespace: place.namespace.clone() })
    }

    /// The cluster of a place.
    pub(crate) fn cluster(&self, place: &Place) -> Result<Arc<Cluster>> {
        self.clusters.find(&place.cluster)?.ok_or_else(|| unknown_cluster(&place.cluster))
    }

    /// Where a volume with these parameters would live.
    pub(crate) fn place_for(&self, parameters: &Map, mutable: &Map) -> Result<Place> {
        let settings = Settings::parse(parameters, mutable)?;
        let cluster = self.cluster_name(&settings)?;
        let known = self.clusters.find(&cluster)?.ok_or_else(|| unknown_cluster(&cluster))?;
        let pool = settings.pool.unwrap_or_else(|| match known.pools.as_slice() {
            [only] => only.clone(),
            _ => USUAL_POOL.to_string(),
        });
        if !known.allows(&pool, &settings.namespace) {
            return Err(Error::invalid(format!(
                "pool {pool:?} with namespace {:?} is not among those allowed for cluster {cluster:?}: set \
                 the parameters \"pool\" and \
                 \"namespace\" to allowed ones",
                settings.namespace
            )));
        }
        let place = Place { backend: NAME.into(), cluster, pool, namespace: settings.namespace };
        // The longest ID there can be: names have 40 characters, ids up to 20.
        let longest =
            VolumeId { place: place.clone(), object: "x".repeat(40), incarnation: Some("x".repeat(20)) };
        longest.fits()?;
        Ok(place)
    }

    fn cluster_name(&self, settings: &Settings) -> Result<String> {
        // Those that cannot be used just now count too: where a volume goes must not depend on that.
        let names: Vec<String> = self.clusters.entries().into_iter().map(|(name, _)| name).collect();
        match (&settings.cluster, names.as_slice()) {
            (Some(name), _) => Ok(name.clone()),
            (None, [only]) => Ok(only.clone()),
            (None, []) => {
                let why = self.clusters.trouble();
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
}

fn unknown_cluster(name: &str) -> Error {
    Error::invalid(format!("cluster {name:?} is not set up: name one that `cephlet config` shows"))
}
