//! The parents of clones that are removed.

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::tool::Parent;

/// Has the parent of a clone that was removed looked at, if it is in the trash. librbd may still be removing
/// it.
pub(crate) fn check_parent_later(pool: &Pool<'_>, parent: Option<&Parent>) {
    let Some(Parent { pool: name, namespace, id: Some(id), in_trash: true, .. }) = parent else { return };
    let access = pool.at.access.clone();
    let at = PoolRef { access, pool: name.clone(), namespace: namespace.clone() };
    let job = Job::CheckParent { at, image: id.clone() };
    pool.context.jobs.add(pool.timing().parent_check, job);
}
