//! Names of snapshots. A snapshot's name is unique in its image only, but a request's name is to be unique
//! everywhere: who takes the lock that the name stands for has the name. Its cookie is the id of the image
//! the snapshot is of.
//!
//! The name is claimed before the snapshot is taken, so a request that may not have the name leaves no
//! snapshot behind. A claim without its snapshot is left over from an attempt that died, or belongs to one
//! under way: whose attempt it may be is in the description, and another controller's is watched for
//! [`Rbd::patience`] before it counts as dead. Whoever was so slow that this may have happened to him looks,
//! after his snapshot is taken, whether the name is still his.
//!
//! The object of a name goes with its snapshot, and is removed under a lock of its own, so that it is never
//! somebody else's claim that goes.

use std::thread;
use std::time::{Duration, Instant};

use crate::backend::rbd::tool::{Hold, Holder, Image, Lockable, Spot, Taken};
use crate::backend::rbd::{Rbd, names};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::encode;

/// How the cookie begins of one who removes the object of a name.
const DELETING: &str = "deleting-";
/// After so many seconds a removal counts as broken off. Longer than any command takes.
const DELETION: u64 = 600;
/// Between two looks at a claim that may go.
const PAUSE: Duration = Duration::from_millis(200);

/// A name, and who wants it.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub spot: &'a Spot,
    /// The name's digits.
    pub digits: &'a str,
    /// The name itself.
    pub name: &'a str,
    /// The id of the image the snapshot is of.
    pub image: &'a str,
    /// Its name.
    pub object: &'a str,
}

/// Whose the name is.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// Ours, since now.
    Now,
    /// The same request's, since an earlier attempt, or another controller's.
    Before(Holder),
}

impl Rbd {
    /// Claims a name, or finds it claimed by the same request.
    pub(crate) fn claim(&self, call: &Call, claim: &Claim<'_>) -> Result<Claimed> {
        let on = Lockable::SnapshotName(claim.digits);
        let description = format!("{} {} {}", self.tag, encode(claim.object), claim.name);
        let hold = Hold { cookie: claim.image.to_string(), description, shared: None, seconds: None };
        let since = Instant::now();
        loop {
            if self.tool.lock(call, claim.spot, on, &hold)? == Taken::Now {
                return Ok(Claimed::Now);
            }
            let holders = self.tool.holders(call, claim.spot, on)?;
            match holders.into_iter().next() {
                Some(holder) if holder.cookie == claim.image => return same_name(claim, holder),
                Some(holder) if self.is_dead(call, claim, &holder, since)? => {
                    self.tool.unlock(call, claim.spot, on, &holder)?;
                }
                // Given back at this moment.
                None if since.elapsed() < self.patience => {}
                _ if since.elapsed() < self.patience && !call.expired() => {
                    call.step("waiting for another controller that uses the snapshot's name");
                    thread::sleep(PAUSE);
                }
                _ => {
                    return Err(Error::unavailable(format!(
                        "the snapshot's name {:?} is being given back by another controller: try again",
                        claim.name
                    )));
                }
            }
        }
    }

    /// Whether a claim of another image's is left over. ALREADY_EXISTS if there is the snapshot it stands
    /// for.
    fn is_dead(&self, call: &Call, claim: &Claim<'_>, holder: &Holder, since: Instant) -> Result<bool> {
        if let Some(tag) = holder.cookie.strip_prefix(DELETING) {
            return Ok(tag == self.tag);
        }
        let Some(snapshots) = self.tool.snapshots(call, claim.spot, Image::Id(&holder.cookie))? else {
            return Ok(true);
        };
        let wanted = names::snapshot(claim.digits);
        if snapshots.iter().any(|snapshot| !snapshot.trashed && snapshot.name == wanted) {
            return Err(Error::already_exists(format!(
                "a snapshot named {:?} exists already, but its source is {}, not image {} ({}): choose \
                 another name",
                claim.name,
                source_of(holder),
                claim.object,
                claim.image
            )));
        }
        let ours = holder.description.split(' ').next() == Some(&self.tag);
        Ok(ours || since.elapsed() >= self.patience)
    }

    /// Whether the name may have been taken from one who claimed it at `since`.
    pub(crate) fn may_have_lost(&self, since: Instant) -> bool {
        since.elapsed() > self.patience / 3
    }

    /// Who has a name for this image, or left it half given back: to be asked before the snapshot is deleted,
    /// so that no claim for a new one is given back.
    pub(crate) fn claim_of(&self, call: &Call, spot: &Spot, digits: &str, image: &str) -> Result<NameState> {
        let holders = self.tool.holders(call, spot, Lockable::SnapshotName(digits))?;
        let deleting = self.deleting();
        Ok(match holders.into_iter().next() {
            None => NameState::Free,
            Some(holder) if holder.cookie == image || holder.cookie == deleting => NameState::Ours(holder),
            Some(_) => NameState::Theirs,
        })
    }

    /// Gives a name back, and removes its object.
    pub(crate) fn give_back(&self, call: &Call, spot: &Spot, digits: &str, state: &NameState) -> Result<()> {
        let on = Lockable::SnapshotName(digits);
        match state {
            NameState::Theirs => return Ok(()),
            NameState::Ours(holder) => self.tool.unlock(call, spot, on, holder)?,
            // An earlier attempt may have come this far; whether the object is there only a lock tells.
            NameState::Free => {}
        }
        let description = "the name of a deleted snapshot is given back".to_string();
        let hold = Hold { cookie: self.deleting(), description, shared: None, seconds: Some(DELETION) };
        match self.tool.lock(call, spot, on, &hold)? {
            Taken::Now => self.tool.remove_lockable(call, spot, on),
            Taken::Held => Ok(()),
        }
    }

    fn deleting(&self) -> String {
        format!("{DELETING}{}", self.tag)
    }
}

/// Whose a name is, for one who deletes its snapshot.
#[derive(Debug)]
pub(crate) enum NameState {
    /// Nobody's.
    Free,
    /// The snapshot's.
    Ours(Holder),
    /// That of another image's snapshot.
    Theirs,
}

/// The claim, if it is for the same request. Two names have the same digits once in 2^64 times.
fn same_name(claim: &Claim<'_>, holder: Holder) -> Result<Claimed> {
    match holder.description.splitn(3, ' ').nth(2) {
        Some(name) if name != claim.name => Err(Error::already_exists(format!(
            "the snapshot named {name:?} of the same volume has the digits {} that {:?} would have: choose \
             another name",
            claim.digits, claim.name
        ))),
        _ => Ok(Claimed::Before(holder)),
    }
}

/// The source that a claim names, for messages.
fn source_of(holder: &Holder) -> String {
    let object = holder.description.split(' ').nth(1).unwrap_or_default();
    format!("image {object} ({})", holder.cookie)
}
