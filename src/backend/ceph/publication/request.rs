//! A request to publish a volume: the locks of its other publications, and its own.

use std::fmt;

use super::{NodePublication, PublicationLock, Stage};
use crate::backend::ceph::locks::{LockHolder, LockTarget, LockTool, Locked};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::sys::random;

/// A request for a publication of the object `target`, within a call.
pub(crate) struct Request<'a> {
    pub locks: &'a dyn LockTool,
    pub target: LockTarget<'a>,
    /// The volume, for messages.
    pub volume: &'a dyn fmt::Display,
    pub wanted: &'a NodePublication,
}

impl Request<'_> {
    /// The locks of the volume's publications.
    ///
    /// # Errors
    /// If one of them does not admit this request.
    pub fn admitting_locks(&self) -> Result<Vec<PublicationLock>> {
        let holders = self.locks.holders(self.target)?;
        let read = |holder: &LockHolder| {
            PublicationLock::read(holder)?.ok_or_else(|| {
                Error::unavailable(format!(
                    "is locked for {:?} by {} ({}): try again",
                    holder.cookie, holder.description, holder.address
                ))
            })
        };
        let mut locks: Vec<Result<PublicationLock>> = holders.iter().map(read).collect();
        // A given publication is a better reason for a refusal than one that is only being checked.
        locks
            .sort_by_key(|lock| lock.as_ref().is_ok_and(|lock| lock.stage == Stage::Asking) || lock.is_err());
        let admitted = |lock: PublicationLock| lock.admit(self.wanted).map(|()| lock);
        let locks: Result<Vec<PublicationLock>> =
            locks.into_iter().map(|lock| lock.and_then(admitted)).collect();
        locks.map_err(|error| error.context(format_args!("volume {}", self.volume)))
    }

    /// Takes the lock. The caller makes sure that it is not taken after its client has given up: by then
    /// another controller may have unpublished the volume, and no further unpublish request would follow.
    pub fn lock(&self, stage: Stage) -> Result<()> {
        match self.locks.lock(self.target, &self.wanted.request(stage))? {
            Locked::Now => Ok(()),
            Locked::Held => {
                self.admitting_locks()?;
                Err(Error::unavailable(format!(
                    "volume {} was published to another node during this call: try again",
                    self.volume
                )))
            }
        }
    }

    /// Releases the lock of this stage.
    pub fn release(&self, stage: Stage) -> Result<()> {
        let wanted = self.wanted.request(stage);
        for holder in self.locks.holders(self.target)? {
            if holder.cookie == wanted.cookie && holder.description == wanted.description {
                self.locks.unlock(self.target, &holder)?;
            }
        }
        Ok(())
    }
}

/// A call that takes no lock any more once its client has given up.
pub(crate) fn while_client_waits(call: &Call) -> Call {
    let client = call.progress().clone();
    call.only_while(move || !client.expired())
}

/// The nonce of a publication: that of a lock that the node has already, perhaps from an earlier attempt, or
/// a new one.
pub(crate) fn nonce<'a>(mut locks: impl Iterator<Item = &'a PublicationLock>) -> Result<String> {
    match locks.find(|lock| !lock.publication.nonce.is_empty()) {
        Some(lock) => Ok(lock.publication.nonce.clone()),
        None => random::hex(8).map_err(|error| Error::io("get random digits", &error)),
    }
}
