//! The lock under which a volume is deleted: an exclusive lock on its object, the same one by which it is
//! published to nodes.
//!
//! Images are removed by name, and a name may mean another image at any moment. A controller takes this lock
//! before it removes the image of a volume by its name. While it holds the lock and the name means the image,
//! no other controller removes that image by the name, so the name keeps its meaning. The lock is taken by
//! the id alone, and then the name is looked up: in the opposite order the image could be replaced in
//! between. Names of subvolumes are never used again; for them the lock only excludes publications.
//!
//! The demotion of an image takes the same lock, so the volume is published to no node meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::ceph::locks::{LockHolder, LockRequest, LockTarget, LockTool, Locked, describe};
use crate::clock;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::DELETER;

/// The kind of its description.
const KIND: &str = "deletion";

/// What its description says.
#[derive(Serialize, Deserialize)]
struct Deletion {
    /// The tag of the controller.
    #[serde(rename = "controller", default)]
    controller: String,
}

/// A controller that deletes, within a call.
pub(crate) struct Deleter<'a> {
    pub locks: Box<dyn LockTool + 'a>,
    pub call: &'a Call,
    /// The tag of the controller.
    pub tag: &'a str,
    pub times: DeletionTimes,
}

/// How long a deletion may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletionTimes {
    /// How long to wait for a deletion by another controller, and the pause between two looks.
    pub wait: Duration,
    pub poll: Duration,
    /// The longest time between taking the lock and starting the removal.
    pub decision: Duration,
    /// How long the lock lasts. The removal of an object whose name may be used again ends before. If
    /// a controller died for good, others wait this long.
    pub lifetime: Duration,
}

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

/// The right to remove one volume by its name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeletionLock {
    /// Commands may start under it until then, by the clock that goes on while the machine is suspended.
    until: Duration,
}

impl DeletionLock {
    /// The same call, whose commands start in time, or not at all: they end before the lock does.
    ///
    /// # Errors
    /// Unavailable if too much time has passed: nothing may be removed by name any more.
    pub fn call(&self, call: &Call) -> Result<Call> {
        let until = self.until;
        let call = call.only_while(move || clock::since_boot() < until);
        match call.may_begin() {
            true => Ok(call),
            false => Err(Error::unavailable("the cluster is too slow to delete safely: try again")),
        }
    }
}

impl Deleter<'_> {
    /// Takes the lock, even if there is no such object: the caller looks afterwards.
    pub fn acquire(&self, target: LockTarget<'_>) -> Result<Acquired> {
        let request = LockRequest {
            cookie: DELETER.into(),
            description: describe(KIND, &Deletion { controller: self.tag.to_string() }),
            shared: None,
            seconds: Some(self.times.lifetime.as_secs()),
        };
        let (times, what) = (self.times, format!("another controller that deletes {target}"));
        let acquired = self.call.wait_for(what, times.wait, times.poll, || {
            // Read before the lock is taken, so the lock never ends earlier than assumed.
            let until = clock::since_boot() + times.decision;
            if self.locks.lock(target, &request)? == Locked::Now {
                return Ok(Some(Acquired::Locked(DeletionLock { until })));
            }
            let holders = self.locks.holders(target)?;
            let controllers: Vec<Option<String>> = holders.iter().map(controller).collect::<Result<_>>()?;
            match controllers.iter().position(|controller| controller.as_deref() == Some(self.tag)) {
                // This daemon does one thing at a time with a volume, so the process that took the lock is
                // dead; or it is done, and the volume is retained. It is tried again without that lock.
                Some(dead) => self.locks.unlock(target, &holders[dead]).map(|()| None),
                None if controllers.iter().any(Option::is_none) => Ok(Some(Acquired::Published(holders))),
                None => Ok(None),
            }
        })?;
        Ok(acquired.unwrap_or(Acquired::HeldElsewhere))
    }

    /// Gives the lock back, so that the volume can be published. If that fails, the lock expires by itself.
    pub fn release(&self, target: LockTarget<'_>) {
        if let Err(error) = self.unlock_own(target) {
            let seconds = self.times.lifetime.as_secs();
            log::warn!("{target} cannot be published for up to {seconds} s: {error}");
        }
    }

    /// Gives back this controller's lock on `target`.
    pub fn unlock_own(&self, target: LockTarget<'_>) -> Result<()> {
        self.locks.holders(target)?.iter().try_for_each(|holder| match controller(holder)? {
            Some(tag) if tag == self.tag => self.locks.unlock(target, holder),
            _ => Ok(()),
        })
    }

    /// The refusal of what another controller is removing or changing.
    pub fn held_elsewhere(&self) -> Error {
        Error::unavailable(format!(
            "another controller is removing or changing it, or died of it: try again, {} s from now at the latest it \
             is free",
            self.times.lifetime.as_secs()
        ))
    }
}

/// The controller that holds a lock to remove or change something; None for a lock with another purpose.
fn controller(holder: &LockHolder) -> Result<Option<String>> {
    let said = holder.says::<Deletion>(KIND)?;
    Ok(said.filter(|_| holder.cookie == DELETER).map(|said| said.controller))
}

/// The refusal to delete what is published to nodes.
pub(crate) fn is_published(holders: &[LockHolder]) -> Error {
    let nodes = nodes(holders);
    Error::precondition(format!(
        "it is published to {nodes}: unpublish it with ControllerUnpublishVolume first"
    ))
}

/// The nodes that have these locks, for messages.
pub(crate) fn nodes(holders: &[LockHolder]) -> String {
    let nodes: Vec<String> = holders.iter().map(|holder| format!("{:?}", holder.cookie)).collect();
    nodes.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other controllers read it.
    #[test]
    fn the_description_has_this_form() {
        let said = describe(KIND, &Deletion { controller: "0000aaaa".into() });
        assert_eq!(said, r#"{"deletion":{"controller":"0000aaaa"},"version":1}"#);
    }
}
