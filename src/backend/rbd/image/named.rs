//! Finding volumes by the name of the request that made them. The name of an image is derived from it, and
//! where topology chose the pool, the name is claimed in its registry. No list is read.

use std::sync::Arc;

use crate::backend::Named;
use crate::backend::ceph::placement::{self, PlacementWish};
use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::delete::resolve;
use crate::backend::rbd::names::NAME;
use crate::backend::rbd::parameters::{Settings, USUAL_POOL};
use crate::clusters::Cluster;
use crate::csi::Map;
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::{self, Place, VolumeId};
use crate::secrets::Secrets;

/// The volumes of this name: in the pools that the parameters or the configuration name, or else in the usual
/// one, and where their registry says.
pub(crate) fn find(context: &Context, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>> {
    let settings = Settings::parse(name.parameters, &Map::new())?;
    let mut found = Vec::new();
    for cluster in placement::clusters(&context.clusters, settings.cluster.as_deref())? {
        let places = places(context, call, &cluster, &settings)?;
        let id = |place: &Place| VolumeId {
            place: place.clone(),
            object: name.object.to_string(),
            incarnation: None,
        };
        let mut ids: Vec<VolumeId> = places.iter().map(id).collect();
        let wish = PlacementWish { cluster: Some(&cluster.name), ..settings.wish() };
        let registry = placement::choose_registry(&context.clusters, NAME, &wish)?;
        if places.contains(&registry) {
            ids.extend(registered(context, call, name, &registry)?);
        }
        for id in &ids {
            let place = (&id.place, &Secrets::default());
            found.extend(context.within(call, place, |pool| resolve(pool, id))?);
        }
    }
    Ok(found)
}

/// The places to look at, which exist: the ones that a new volume with these settings may be made in without
/// a topology, and the registry.
fn places(context: &Context, call: &Call, cluster: &Arc<Cluster>, settings: &Settings) -> Result<Vec<Place>> {
    if settings.pool.is_some() {
        let named = Settings { cluster: Some(cluster.name.clone()), ..settings.clone() };
        return Ok(vec![named.place(&context.clusters)?]);
    }
    let is_usual = |place: &Place| {
        place.namespace == settings.namespace
            && (place.pool == USUAL_POOL
                || cluster.pools.contains(&place.pool)
                || cluster.registry.as_ref() == Some(&place.pool))
    };
    let there = context.memory.locations.of_cluster(&context.question(call), cluster)?;
    Ok(there.iter().map(|at| at.place(NAME)).filter(is_usual).collect())
}

/// The volume whose name is claimed in this registry.
fn registered(
    context: &Context,
    call: &Call,
    name: &Named<'_>,
    registry: &Place,
) -> Result<Option<VolumeId>> {
    let object = ids::registered(name.object, &registry.pool);
    let Some((key, _)) = ids::registration(&object) else { return Ok(None) };
    let at = context.locate(registry, &Secrets::default())?;
    let claim = context.volume_name(call, &at, key).find()?;
    Ok(claim.map(|claim| VolumeId {
        place: Place { pool: claim.of, ..registry.clone() },
        object: object.clone(),
        incarnation: None,
    }))
}
