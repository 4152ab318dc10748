//! The lock under which an image is deleted: an exclusive lock on its header, the same one by which volumes
//! are published to nodes.
//!
//! Images are removed by name, and a name may mean another image at any moment. Every controller takes this
//! lock before it removes an image. While a controller holds the lock and the name means the image, no other
//! controller can remove that image, so the name keeps its meaning. The lock is taken by the id alone, and
//! then the name is looked up: in the opposite order the image could be replaced in between.
//!
//! A demotion takes the same lock, so the volume is published to no node meanwhile.

use std::time::Duration;

use serde_json::json;

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::header_lock::text::{self, word};
use crate::backend::rbd::tool::{LockHolder, LockRequest, LockTarget, Locked};
use crate::clock;
use crate::error::{Error, Result};
use crate::ids::DELETER;

/// The kind of its description.
const KIND: &str = "deletion";

/// The result of a request for the lock.
#[derive(Debug)]
pub(crate) enum Acquired {
    /// We hold it.
    Locked(DeletionLock),
    /// The volume is published to these nodes.
    Published(Vec<LockHolder>),
    /// Another controller holds it, and keeps it.
    HeldElsewhere,
}

/// The right to remove one image by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletionLock {
    /// Commands may start under it until then, by the clock that goes on while the machine is suspended.
    until: Duration,
}

impl DeletionLock {
    /// Runs `act`, which works by name and ends before the lock does: its commands start in time, or not at
    /// all.
    ///
    /// # Errors
    /// Unavailable if too much time has passed: nothing may be removed by name any more.
    pub fn under<T>(&self, pool: &Pool<'_>, act: impl FnOnce(&Pool<'_>) -> Result<T>) -> Result<T> {
        let until = self.until;
        let call = pool.call.only_while(move || clock::since_boot() < until);
        if !call.may_begin() {
            return Err(Error::unavailable("the cluster is too slow to delete safely: try again"));
        }
        act(&pool.with_call(&call))
    }
}

/// How long the lock lasts. A removal that was started under it has ended by then: the next lock holder must
/// not meet a removal that still has to look up the name. If a controller died for good, others wait this
/// long.
pub(crate) fn lifetime(context: &Context) -> Duration {
    context.timing.deletion_decision + context.tool.longest_change()
}

/// Takes the lock on the image of this id, even if no such image exists: the caller looks afterwards.
pub(crate) fn acquire(pool: &Pool<'_>, image: &str) -> Result<Acquired> {
    acquire_on(pool, LockTarget::Header(image), &format!("image {image}"))
}

/// Takes the same lock on what is called `what`.
pub(crate) fn acquire_on(pool: &Pool<'_>, target: LockTarget<'_>, what: &str) -> Result<Acquired> {
    let request = LockRequest {
        cookie: DELETER.into(),
        description: text::write(KIND, json!({ "controller": pool.tag() })),
        shared: None,
        seconds: Some(lifetime(pool.context).as_secs()),
    };
    let (timing, what) = (pool.timing(), format!("another controller that deletes {what}"));
    let acquired = pool
        .call
        .wait_for(what, timing.deletion_wait, timing.poll, || try_acquire(pool, target, &request))?;
    Ok(acquired.unwrap_or(Acquired::HeldElsewhere))
}

/// Takes the lock; None if it is to be tried again: another controller holds it, or its dead holder has just
/// lost it.
fn try_acquire(pool: &Pool<'_>, target: LockTarget<'_>, request: &LockRequest) -> Result<Option<Acquired>> {
    // Read before the lock is taken, so the lock never ends earlier than assumed.
    let until = clock::since_boot() + pool.timing().deletion_decision;
    if pool.lock(target, request)? == Locked::Now {
        return Ok(Some(Acquired::Locked(DeletionLock { until })));
    }
    let holders = pool.holders(target)?;
    let controllers: Vec<Option<String>> = holders.iter().map(controller).collect::<Result<_>>()?;
    match controllers.iter().position(|controller| controller.as_deref() == Some(pool.tag())) {
        // This daemon does one thing at a time with a volume, so the process that took the lock is dead; or
        // it is done, and the image is retained.
        Some(dead) => pool.unlock(target, &holders[dead]).map(|()| None),
        None if controllers.iter().any(Option::is_none) => Ok(Some(Acquired::Published(holders))),
        None => Ok(None),
    }
}

/// Gives the lock back, so that the volume can be published. If that fails, the lock expires by itself.
pub(crate) fn release(pool: &Pool<'_>, image: &str) {
    if let Err(error) = unlock_own(pool, LockTarget::Header(image)) {
        let seconds = lifetime(pool.context).as_secs();
        log::warn!("image {image} of {} cannot be published for up to {seconds} s: {error}", pool.at);
    }
}

/// Gives back this controller's lock on `target`.
pub(crate) fn unlock_own(pool: &Pool<'_>, target: LockTarget<'_>) -> Result<()> {
    pool.holders(target)?.iter().try_for_each(|holder| match controller(holder)? {
        Some(tag) if tag == pool.tag() => pool.unlock(target, holder),
        _ => Ok(()),
    })
}

/// The refusal of an image that another controller is removing or changing.
pub(crate) fn held_elsewhere(context: &Context) -> Error {
    Error::unavailable(format!(
        "another controller is removing or changing it, or died of it: try again, {} s from now at the latest it \
         is free",
        lifetime(context).as_secs()
    ))
}

/// The controller that holds a lock to remove or change the image; None for a lock with another purpose.
fn controller(holder: &LockHolder) -> Result<Option<String>> {
    let said = text::read(holder, KIND)?;
    Ok(said.filter(|_| holder.cookie == DELETER).map(|said| word(&said, "controller").to_string()))
}
