//! Names of snapshots. A snapshot's name is unique in its image only, but a request's name is to be unique
//! everywhere: whoever takes the lock that the name stands for has the name. Its cookie is the id of the
//! image the snapshot is of.
//!
//! The name is claimed before the snapshot is taken, so a request that may not have the name leaves no
//! snapshot behind. A claim without its snapshot is left over from an attempt that died, or belongs to one
//! under way: whose attempt it may be is in the description, and another controller's is watched for
//! `claim_grace` before it counts as dead. A controller so slow that its own claim may have been taken for
//! dead looks, after its snapshot is taken, whether it still has the name.
//!
//! The object of a name goes with its snapshot, and is removed under a lock of its own, so that it is never
//! another controller's claim that goes.

use std::time::Duration;

use crate::backend::ceph::locks::{deleter, deleting};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, LockHolder, LockRequest, LockTarget, Locked};
use crate::clock;
use crate::error::{Error, Result};
use crate::ids::encode;

/// How often to ask for a name that is just being released.
const ATTEMPTS: usize = 10;

/// A name that is wanted for a snapshot.
#[derive(Debug)]
pub(crate) struct NameClaim<'a> {
    /// The name's digits.
    pub digits: &'a str,
    /// The name itself.
    pub name: &'a str,
    /// The id of the image the snapshot is of.
    pub image: &'a str,
    /// Its name.
    pub object: &'a str,
}

/// Since when the name is ours.
#[derive(Debug)]
pub(crate) enum Claimed {
    /// Since now.
    Now,
    /// Since an earlier attempt of the same request, or another controller's.
    Before(LockHolder),
}

/// Who has a name, to one who deletes its snapshot.
#[derive(Debug)]
pub(crate) enum NameOwner {
    /// Nobody.
    Nobody,
    /// The snapshot, or a release of its name that died.
    Ours(LockHolder),
    /// Another image's snapshot.
    Other,
}

/// What a claim of another image's is worth.
enum OtherClaim {
    /// It is left over.
    Dead,
    /// It may be under way.
    MayBeAlive,
    /// The snapshot it stands for is there.
    Fulfilled,
}

/// Claims a name, or finds it claimed by the same request.
pub(crate) fn claim(pool: &Pool<'_>, claim: &NameClaim<'_>) -> Result<Claimed> {
    let target = LockTarget::SnapshotName(claim.digits);
    let description = format!("{} {} {}", pool.tag(), encode(claim.object), claim.name);
    let request = LockRequest { cookie: claim.image.to_string(), description, shared: None, seconds: None };
    for _ in 0..ATTEMPTS {
        if pool.lock(target, &request)? == Locked::Now {
            return Ok(Claimed::Now);
        }
        // None if it is released at this moment.
        let Some(holder) = pool.holders(target)?.into_iter().next() else { continue };
        if holder.cookie == claim.image {
            return same_name(claim, holder);
        }
        match judge(pool, claim, &holder)? {
            OtherClaim::Fulfilled => return Err(taken(claim, &holder)),
            OtherClaim::Dead => {}
            OtherClaim::MayBeAlive => match await_end(pool, claim, &holder)? {
                Some(()) => continue,
                None if deleter(&holder).is_some() => return Err(being_released(claim)),
                None => {}
            },
        }
        pool.unlock(target, &holder)?;
    }
    Err(being_released(claim))
}

/// Judges the claim of another image.
fn judge(pool: &Pool<'_>, claim: &NameClaim<'_>, holder: &LockHolder) -> Result<OtherClaim> {
    let ours_if = |ours| if ours { OtherClaim::Dead } else { OtherClaim::MayBeAlive };
    if let Some(tag) = deleter(holder) {
        return Ok(ours_if(tag == pool.tag()));
    }
    let Some(snapshots) = pool.snapshots(ImageRef::Id(&holder.cookie))? else { return Ok(OtherClaim::Dead) };
    let wanted = names::snapshot(claim.digits);
    if snapshots.iter().any(|snapshot| !snapshot.trashed && snapshot.name == wanted) {
        return Ok(OtherClaim::Fulfilled);
    }
    Ok(ours_if(is_own(pool, holder)))
}

/// Whether this controller claimed the name.
fn is_own(pool: &Pool<'_>, claim: &LockHolder) -> bool {
    claim.description.split(' ').next() == Some(pool.tag())
}

/// Waits for another controller's claim to be fulfilled or released. None if it is neither by the time that
/// it counts as dead. A release, which has a time of its own, never does.
fn await_end(pool: &Pool<'_>, claim: &NameClaim<'_>, holder: &LockHolder) -> Result<Option<()>> {
    let timing = pool.timing();
    let what =
        format!("another controller ({}) that uses the name of snapshot {:?}", holder.client, claim.name);
    pool.call.wait_for(what, timing.claim_grace, timing.poll, || {
        let now = pool.holders(LockTarget::SnapshotName(claim.digits))?;
        let is_over =
            now.first() != Some(holder) || !matches!(judge(pool, claim, holder)?, OtherClaim::MayBeAlive);
        Ok(is_over.then_some(()))
    })
}

fn being_released(claim: &NameClaim<'_>) -> Error {
    Error::unavailable(format!(
        "the snapshot's name {:?} is being released by another controller: try again",
        claim.name
    ))
}

fn taken(claim: &NameClaim<'_>, holder: &LockHolder) -> Error {
    let object = holder.description.split(' ').nth(1).unwrap_or_default();
    Error::already_exists(format!(
        "a snapshot named {:?} exists already, but its source is image {object} ({}), not image {} ({}): choose \
         another name",
        claim.name, holder.cookie, claim.object, claim.image
    ))
}

/// Whether the name may have been taken from one who claimed it at `since`, by [`clock::since_boot`].
pub(crate) fn may_be_lost(pool: &Pool<'_>, since: Duration) -> bool {
    clock::since_boot().saturating_sub(since) > pool.timing().claim_grace / 3
}

/// Who has a name for this image, or left it half released: to be asked before the snapshot is deleted, so
/// that no claim for a new one is released.
pub(crate) fn owner(pool: &Pool<'_>, digits: &str, image: &str) -> Result<NameOwner> {
    let holders = pool.holders(LockTarget::SnapshotName(digits))?;
    let deleting = deleting(pool.tag());
    Ok(match holders.into_iter().next() {
        None => NameOwner::Nobody,
        Some(holder) if holder.cookie == image || holder.cookie == deleting => NameOwner::Ours(holder),
        Some(_) => NameOwner::Other,
    })
}

/// Gives a name back for which there was no snapshot after its owner was asked. Another controller that has
/// it is given the time to take one, as it may be about to; with its snapshot it keeps the name.
pub(crate) fn release_left_over(pool: &Pool<'_>, digits: &str, image: &str, owner: &NameOwner) -> Result<()> {
    if let NameOwner::Ours(holder) = owner
        && holder.cookie != deleting(pool.tag())
        && !is_own(pool, holder)
    {
        let timing = pool.timing();
        let what = format!("another controller ({}) that has the name of snapshot {digits}", holder.client);
        let wanted = names::snapshot(digits);
        let taken = pool.call.wait_for(what, timing.claim_grace, timing.poll, || {
            let snapshots = pool.snapshots(ImageRef::Id(image))?.unwrap_or_default();
            Ok(snapshots.into_iter().find(|it| !it.trashed && it.name == wanted))
        })?;
        if taken.is_some() {
            return Ok(());
        }
    }
    release(pool, digits, owner)
}

/// Gives a name back, and removes its object.
pub(crate) fn release(pool: &Pool<'_>, digits: &str, owner: &NameOwner) -> Result<()> {
    let target = LockTarget::SnapshotName(digits);
    match owner {
        NameOwner::Other => return Ok(()),
        NameOwner::Ours(holder) => pool.unlock(target, holder)?,
        // An earlier attempt may have come this far; only a lock shows whether the object is there.
        NameOwner::Nobody => {}
    }
    pool.remove_free_name(target)
}

/// The claim, if it is for the same request. Two names have the same digits once in 2^64 times.
fn same_name(claim: &NameClaim<'_>, holder: LockHolder) -> Result<Claimed> {
    match holder.description.splitn(3, ' ').nth(2) {
        Some(name) if name != claim.name => Err(Error::already_exists(format!(
            "the snapshot named {name:?} of the same volume has the digits {} that {:?} would have: choose \
             another name",
            claim.digits, claim.name
        ))),
        _ => Ok(Claimed::Before(holder)),
    }
}
