//! The right to delete an image: an exclusive lock on its header, the same lock by which volumes are given to
//! nodes.
//!
//! Images are removed by name, and a name may come to mean another image at any moment. Every controller
//! takes this lock before it removes an image, so while one holds it and the name means the image, no other
//! can remove that image, and the name goes on meaning it. The lock is taken by the id alone, then the name
//! is looked up: the other way round the image could be replaced in between.

use std::thread;
use std::time::{Duration, Instant};

use crate::backend::rbd::Rbd;
use crate::backend::rbd::tool::{Hold, Holder, Lockable, Spot, Taken};
use crate::call::Call;
use crate::error::{Error, Result};

/// The cookie of the lock.
const COOKIE: &str = "delete";
/// How its description begins; the controller's tag follows. With the cookie alone a node could have that
/// name.
const PURPOSE: &str = "deletion by controller ";
/// What may pass between taking the lock and asking for the removal.
const DECISION: Duration = Duration::from_secs(60);
/// How often, and with what pause, a deletion by another controller is waited for.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 500 });

/// A lock that was asked for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// It is ours.
    Ours(Right),
    /// The volume is given to these nodes.
    Published(Vec<Holder>),
    /// Another controller has it, and keeps it.
    Theirs,
}

/// The right to remove one image by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    /// None for a name that never means another image.
    since: Option<Instant>,
    /// Where snapshots need the image, it may be given another name in place of being removed.
    pub snapshots_may_outlive: bool,
}

impl Right {
    /// For an image whose name has its id in it: nobody gives that name to another.
    pub fn unneeded() -> Self {
        Self { since: None, snapshots_may_outlive: true }
    }

    /// Whether a removal that is asked for now ends before the right does.
    ///
    /// # Errors
    /// Unavailable if too much time has passed: nothing may be removed by name any more.
    pub fn check(&self) -> Result<()> {
        match self.since.is_none_or(|since| since.elapsed() < DECISION) {
            true => Ok(()),
            false => Err(Error::unavailable("the cluster is too slow to delete safely: try again")),
        }
    }
}

impl Rbd {
    /// How long the lock lasts. A removal that was asked for under it has ended by then, one way or another:
    /// whoever takes the lock next must not meet one that still has to look up the name. A controller that
    /// died for good keeps others waiting as long.
    fn life(&self) -> Duration {
        DECISION + self.longest_command()
    }

    /// Takes the right to delete the image of this id, whether or not there is one: the caller looks
    /// afterwards.
    pub(crate) fn take_right(
        &self,
        call: &Call,
        spot: &Spot,
        image: &str,
        snapshots_may_outlive: bool,
    ) -> Result<Asked> {
        let on = Lockable::Header(image);
        let hold = Hold {
            cookie: COOKIE.into(),
            description: self.purpose(),
            shared: None,
            seconds: Some(self.life().as_secs()),
        };
        for _ in 0..ATTEMPTS {
            // Before it is taken, so that we never think it lasts longer than it does.
            let since = Instant::now();
            if self.tool.lock(call, spot, on, &hold)? == Taken::Now {
                return Ok(Asked::Ours(Right { since: Some(since), snapshots_may_outlive }));
            }
            let holders = self.tool.holders(call, spot, on)?;
            let ours = holders.iter().find(|holder| self.is_own(holder));
            match ours {
                // This daemon deletes a volume once at a time, so what took it is dead.
                Some(dead) => self.tool.unlock(call, spot, on, dead)?,
                None if holders.iter().any(is_node) => return Ok(Asked::Published(holders)),
                None if call.expired() => break,
                None => {
                    call.step("waiting for another controller that deletes the image");
                    thread::sleep(PAUSE);
                }
            }
        }
        Ok(Asked::Theirs)
    }

    /// Gives the right back, so that the volume can be published. What fails here runs out by itself.
    pub(crate) fn give_right_back(&self, call: &Call, spot: &Spot, image: &str) {
        let on = Lockable::Header(image);
        let holders = self.tool.holders(call, spot, on).unwrap_or_default();
        for holder in holders.iter().filter(|holder| self.is_own(holder)) {
            if let Err(error) = self.tool.unlock(call, spot, on, holder) {
                log::warn!(
                    "image {image} of pool {:?} cannot be published for {} s: {error}",
                    spot.pool,
                    self.life().as_secs()
                );
            }
        }
    }

    /// The refusal of an image that another controller has the right to delete.
    pub(crate) fn theirs(&self) -> Error {
        Error::unavailable(format!(
            "another controller is deleting it, or died of it: try again, {} s from now at the latest it is \
             free",
            self.life().as_secs()
        ))
    }

    fn purpose(&self) -> String {
        format!("{PURPOSE}{}", self.tag)
    }

    fn is_own(&self, holder: &Holder) -> bool {
        holder.cookie == COOKIE && holder.description == self.purpose()
    }
}

/// Whether a lock says that a volume is given to a node, and not that it is being deleted.
fn is_node(holder: &Holder) -> bool {
    holder.cookie != COOKIE || !holder.description.starts_with(PURPOSE)
}
