//! Flattening gives way: an image that is to be published or deleted is needed now, and its flatten goes on
//! later where it was. Whoever needs the image takes a lock on its header first and then preempts the flatten
//! it finds; a flatten enters itself in the registry first and then looks for locks: one of the two sees the
//! other. A flatten goes on looking for locks, which is how it hears of other controllers.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::object_map;
use crate::backend::rbd::jobs::flatten_registry::Preempted;
use crate::backend::rbd::tool::ImageInfo;
use crate::error::Result;

/// Ends the flatten of an image, and waits until the cluster has forgotten its client, which counts as a
/// watcher for up to 30 s after its death. Other clients of the image are left to the caller, who holds a
/// lock on the image.
pub(crate) fn preempt_flatten(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    let (timing, name) = (pool.timing(), &info.name);
    match pool.context.flattens.preempt(&info.id) {
        Preempted::Nothing => await_anothers(pool, info),
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

/// Waits for another controller, which ends its flatten when it sees the caller's lock.
fn await_anothers(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    if !object_map::may_be_flattened(info) || pool.watchers(&info.name)?.is_none_or(|all| all.is_empty()) {
        return Ok(());
    }
    let timing = pool.timing();
    let what = format!("another controller to end its flatten of image {}", info.name);
    pool.call.wait(what, timing.flatten_look + timing.dead_client, timing.dead_client_poll)
}
