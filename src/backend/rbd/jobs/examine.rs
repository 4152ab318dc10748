//! What `cephlet doctor` finds in the pools: leftovers that no job is about to remove, and pools that the
//! user may not list.

use std::sync::Arc;

use crate::backend::Finding;
use crate::backend::ceph::{ClusterAccess, PoolRef, examine};
use crate::backend::finding::{COPY_LEFT, DELETED_STAYS};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::retain::{check_retained, is_unneeded};
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::sweep::{is_too_old_for_a_copy, remove_unfinished};
use crate::backend::rbd::names;
use crate::backend::rbd::tool::ImageRef;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::jobs::Requeue;

/// The findings in all clusters that answer.
pub(crate) fn examine(context: &Arc<Context>) -> Vec<Finding> {
    let own = Arc::clone(context);
    let look = move |call: &Call, access: &ClusterAccess| {
        examine::whole(&own.tool.monitors().of(call, access), || in_pools(&own, call, access))
    };
    examine::clusters(&context.clusters, Arc::new(look))
}

fn in_pools(context: &Arc<Context>, call: &Call, access: &ClusterAccess) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for at in context.memory.locations.of_cluster(&context.question(call), &access.cluster)? {
        match leftovers(context, &context.pool(call, &at)) {
            Ok(left) => found.extend(left),
            // Each further pool of a cluster that does not answer would take as long again.
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Timeout) => return Err(error),
            Err(error) => found.push(examine::refused(path(&at, ""), &error)),
        }
    }
    Ok(found)
}

/// `CLUSTER/POOL[/NAMESPACE][/IMAGE]`
fn path(at: &PoolRef, image: &str) -> String {
    let parts = [&at.access.cluster.name, &at.pool, &at.namespace, image];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn leftovers(context: &Arc<Context>, pool: &Pool<'_>) -> Result<Vec<Finding>> {
    let mut found = Vec::new();
    for name in pool.names()? {
        if let Some(id) = names::id_of_retained(&name) {
            found.extend(deleted_stays(context, pool, (&name, id))?);
        } else if let Some(tag) = names::tag_of_temporary(&name) {
            found.extend(copy_left(context, pool, (&name, tag))?);
        }
    }
    Ok(found)
}

fn deleted_stays(
    context: &Arc<Context>,
    pool: &Pool<'_>,
    (name, id): (&str, &str),
) -> Result<Option<Finding>> {
    let (at, image) = (pool.at.clone(), id.to_string());
    let removals = [
        Job::Retained { at: at.clone(), image: image.clone() },
        Job::RemoveLarge { at: at.clone(), image: image.clone() },
    ];
    if removals.iter().any(|job| context.jobs.has(job)) {
        return Ok(None);
    }
    let Some(info) = pool.info(ImageRef::Id(id))? else { return Ok(None) };
    if !is_unneeded(pool, &info)? {
        return Ok(None);
    }
    let context = Arc::clone(context);
    let meaning = format!("{name} is a deleted volume that nothing needs any more");
    let found = Finding::new(&DELETED_STAYS, path(pool.at, name), meaning);
    Ok(Some(found.with_remedy(move |call| check_retained(&context.pool(call, &at), &image))))
}

/// The copies of this controller that it does not make now, and the old ones of others.
fn copy_left(context: &Arc<Context>, pool: &Pool<'_>, (name, tag): (&str, &str)) -> Result<Option<Finding>> {
    let Some(_not_being_made) = pool.try_lock_internal(name)? else { return Ok(None) };
    let made = pool.info(ImageRef::Name(name))?.map(|info| info.created);
    if tag != pool.tag() && !made.is_some_and(|made| is_too_old_for_a_copy(pool, made)) {
        return Ok(None);
    }
    let (context, at, name) = (Arc::clone(context), pool.at.clone(), name.to_string());
    let found = Finding::new(&COPY_LEFT, path(&at, &name), format!("{name} is a copy that was not finished"));
    Ok(Some(found.with_remedy(move |call| match remove_unfinished(&context.pool(call, &at), &name, None)? {
        Requeue::Never => Ok(()),
        Requeue::After(_) => Err(Error::unavailable("the copy is being made now")),
    })))
}
