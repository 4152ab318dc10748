//! Background checks of images that may be retained without need.

use std::time::Duration;

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::Parent;

/// Has a job check the parent of a clone that was just removed or flattened. A snapshot that was not asked
/// for was needed by its clones only, and the parent may have been deleted since the clone named it.
pub(crate) fn check_parent_later(pool: &Pool<'_>, parent: &Parent) {
    let Parent { pool: name, namespace, image, id: Some(id), snapshot, .. } = parent else { return };
    if names::id_of_retained(image).is_some() || names::in_snapshot(snapshot).is_none() {
        let at = PoolRef { access: pool.at.access.clone(), pool: name.clone(), namespace: namespace.clone() };
        check_retained_later(&pool.other(&at), id);
    }
}

/// The same for all retained images of the pool, after the removal of what a killed removal had left: that
/// may have been a clone, and does not tell of which image. Images of other pools wait for the hourly sweep.
pub(crate) fn check_all_retained_later(pool: &Pool<'_>) {
    match pool.names() {
        Ok(all) => {
            let retained = all.iter().filter_map(|name| names::id_of_retained(name));
            retained.for_each(|image| check_retained_later(pool, image));
        }
        Err(error) => log::debug!("{}: retained images are checked later: {error}", pool.at),
    }
}

/// Has a job check an image a little later, so that many of its clones cause only one check.
pub(crate) fn check_retained_later(pool: &Pool<'_>, image: &str) {
    check_retained_in(pool, image, pool.timing().parent_check);
}

/// The same after a pause.
pub(crate) fn check_retained_in(pool: &Pool<'_>, image: &str, pause: Duration) {
    pool.context.jobs.add(pause, Job::Retained { at: pool.at.clone(), image: image.to_string() });
}
