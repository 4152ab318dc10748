//! Flattening gives way: an image that is to be published or deleted is needed now, and its flatten goes on
//! later where it was. Whoever needs the image takes a lock on its header first and then preempts the flatten
//! it finds; a flatten enters itself in the registry first and then looks for locks: one of the two sees the
//! other.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::jobs::flatten_registry::Preempted;
use crate::error::Result;

/// Ends our own flatten of an image, and waits until the cluster has forgotten its client, which counts as a
/// watcher for up to 30 s after its death. Other clients of the image are left to the caller.
pub(crate) fn preempt_flatten(pool: &Pool<'_>, image: &str, name: &str) -> Result<()> {
    let timing = pool.timing();
    match pool.context.flattens.preempt(image) {
        Preempted::Nothing => Ok(()),
        Preempted::Ending => {
            pool.call.wait(format!("the flatten of image {name} to end"), timing.dead_client, timing.poll)
        }
        Preempted::Killed(at) if at.elapsed() >= timing.dead_client => Ok(()),
        Preempted::Killed(_) => {
            if pool.watchers(name)?.is_none_or(|watchers| watchers.is_empty()) {
                return Ok(());
            }
            let what = format!("the cluster to forget the killed flatten of image {name}");
            pool.call.wait(what, timing.dead_client, timing.dead_client_poll)
        }
    }
}
