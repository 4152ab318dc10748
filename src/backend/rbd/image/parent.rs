//! The parents of clones that are removed.

use std::time::Duration;

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::Parent;

/// Has the parent of a clone looked at that was just removed, if it may be a deleted volume by now.
pub(crate) fn check_parent_later(pool: &Pool<'_>, parent: Option<&Parent>) {
    if parent.is_some_and(may_be_deleted) {
        check_any_parent_later(pool, parent);
    }
}

/// The same where the parent was looked up long ago.
pub(crate) fn check_any_parent_later(pool: &Pool<'_>, parent: Option<&Parent>) {
    let Some(parent) = parent.filter(|parent| names::is_ours(&parent.image)) else { return };
    let Parent { pool: name, namespace, id: Some(id), in_trash, .. } = parent else { return };
    let at = PoolRef { access: pool.at.access.clone(), pool: name.clone(), namespace: namespace.clone() };
    check_later(pool, Job::CheckParent { at, image: id.clone(), in_trash: *in_trash });
}

/// The same where the parent is not known any more: has all of the cluster looked at.
pub(crate) fn check_unknown_parent_later(pool: &Pool<'_>) {
    check_later(pool, Job::CheckLeftovers { cluster: pool.at.access.cluster.name.clone() });
}

/// Has a parent looked at that 0.1.0 left in the trash.
pub(crate) fn check_parent_in_trash(pool: &Pool<'_>, image: &str) {
    check_later(pool, Job::CheckParent { at: pool.at.clone(), image: image.to_string(), in_trash: true });
}

/// Has a retained image looked at that nothing may need, or that cannot be removed at this moment.
pub(crate) fn check_retained_later(pool: &Pool<'_>, image: &str) {
    check_retained_in(pool, image, pool.timing().parent_check);
}

/// The same after a pause.
pub(crate) fn check_retained_in(pool: &Pool<'_>, image: &str, pause: Duration) {
    let job = Job::CheckParent { at: pool.at.clone(), image: image.to_string(), in_trash: false };
    pool.context.jobs.add(pause, job);
}

/// A little later, so that what many clones of an image ask for is one look.
fn check_later(pool: &Pool<'_>, job: Job) {
    pool.context.jobs.add(pool.timing().parent_check, job);
}

/// Whether it was deleted, or nothing but its clones needed the snapshot any more: then it may have been
/// deleted since.
fn may_be_deleted(parent: &Parent) -> bool {
    let is_live = names::in_snapshot(&parent.snapshot).is_some() || names::is_transient(&parent.snapshot);
    parent.in_trash || names::id_of_retained(&parent.image).is_some() || !is_live
}
