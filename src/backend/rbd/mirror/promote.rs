//! Making a copy the primary.
//!
//! Without force this is done only if the demotion of the peer has arrived, with everything that was written
//! before it, and the peer has not said since that it is primary again. So the right to be primary goes from
//! site to site with the snapshots, and there are never two primaries. An image that was demoted here is not
//! promoted again until something comes back, though the cluster would do it at any time: this site cannot
//! tell whether the peer was promoted since, written to and demoted (Ceph 16.2: in either case the status
//! says "remote image is not primary" of both, half a minute late).
//!
//! By force the copy becomes what its newest whole snapshot is. While a snapshot is being copied, this goes
//! wrong without a report (Ceph 16.2). With the peer alive the command aborts. With the peer gone it waits
//! for ever for the daemon of rbd-mirror here; with that stopped as well, the image becomes what it was a
//! snapshot earlier, or zeros. A command that is broken off leaves an image that mixes two states, and a
//! second command declares it good. So the snapshots are looked at first (`way`). The command has no deadline
//! and is never killed, and no other begins while it runs.

use super::begin;
use super::resync::withdraw_wishes;
use super::role::mirroring;
use super::terms::{self, ensure_schedule};
use super::users::{published, while_unpublished};
use super::way::{Attempt, BROKEN_OFF, Way, await_end_of_command};
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::watchers::refuse_watched;
use crate::backend::rbd::names::REPLICATION_KEY;
use crate::backend::rbd::tool::{ImageInfo, LockHolder, LockTarget, Mirroring, Promoted};
use crate::backend::{MirroringMode, Promotion};
use crate::clock::rfc3339;
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Promotes a volume, or finds it promoted; then sees to its schedule.
pub(super) fn promote(pool: &Pool<'_>, id: &VolumeId, asked: &Promotion) -> Result<()> {
    let mut info = existing_volume(pool, id)?;
    begin(pool, &info)?;
    if info.is_between_roles()
        && let Some(settled) = await_end_of_command(pool, &info.name, || {
            Ok(Some(existing_volume(pool, id)?).filter(|now| !now.is_between_roles()))
        })?
    {
        info = settled;
    }
    let mirroring = mirroring(pool, id, &info)?;
    let attempt = Attempt { pool, id, info: &info, asked };
    if info.is_between_roles() {
        attempt.begin_again()?;
    } else if !mirroring.primary {
        pool.memory().scheduled.0.forget(&info.id);
        let way = attempt.way(mirroring)?;
        attempt.promote(way)?;
    }
    let settled = pool.memory().scheduled.0.get(&info.id);
    if settled.is_some_and(|schedule| asked.schedule.is_none() || asked.schedule == schedule) {
        return Ok(());
    }
    match mirroring.mode {
        MirroringMode::Snapshot => settle(pool, &info, asked)?,
        MirroringMode::Journal => attempt.await_release(!mirroring.primary)?,
    }
    pool.memory().scheduled.0.remember(info.id.clone(), asked.schedule.clone());
    Ok(())
}

/// Withdraws a wish to be copied anew, which has lost its reason, and sets the schedule. A schedule belongs
/// to the image here, and a new copy has none. The image gets the schedule of the request, else the one that
/// was asked for at the other side, in place of the one it had when it was primary before.
fn settle(pool: &Pool<'_>, info: &ImageInfo, asked: &Promotion) -> Result<()> {
    let metadata = pool.all_metadata(&info.name)?.unwrap_or_default();
    withdraw_wishes(pool, info, &metadata)?;
    let schedule = match &asked.schedule {
        Some(schedule) => Some(schedule.clone()),
        None => terms::in_metadata(pool, info, metadata.get(REPLICATION_KEY))?,
    };
    schedule.map_or(Ok(()), |schedule| ensure_schedule(pool, &info.name, Some(&schedule)))
}

impl Attempt<'_> {
    /// The cluster takes the image for promoted, and promotes it only after a demotion. If this is broken off
    /// in between, the image is one that was demoted here.
    fn begin_again(&self) -> Result<()> {
        if !self.asked.force {
            self.unless_promoted_again(BROKEN_OFF)?;
        }
        let refusal = |holders: &[LockHolder]| published(self.id, holders, "demoted and promoted once more");
        while_unpublished(self.pool, &self.info.id, refusal, |pool| {
            refuse_watched(pool, self.info)?;
            pool.demote(&self.info.name)
        })?;
        self.promote(Way::Plain)
    }

    fn promote(&self, way: Way) -> Result<()> {
        let outcome = match way {
            Way::Taken => Err(self.under_way()),
            Way::Plain => self.pool.promote(&self.info.name),
            Way::Forced(_) | Way::ForcedBack(_) => {
                self.pool.promote_by_force(&self.info.name).map(|()| Promoted::Done)
            }
        };
        let failure = match outcome {
            Ok(Promoted::Done) => {
                self.tell(way);
                return Ok(());
            }
            Ok(Promoted::PeerIsPrimary) => self.not_yet(""),
            Err(failure) => failure,
        };
        let now = existing_volume(self.pool, self.id)?;
        let is_primary = now.mirroring.as_ref().is_some_and(Mirroring::is_primary);
        match is_primary && !now.is_between_roles() {
            true => Ok(()),
            false => Err(failure),
        }
    }

    /// No client can write to an image while the rbd-mirror here holds it (Ceph 16.2: EROFS). With a journal
    /// the command does not wait for the release, which comes in a moment. But if the other site was lost
    /// just when a client had begun to write there, rbd-mirror holds the image and waits for that site.
    fn await_release(&self, is_new: bool) -> Result<()> {
        let Self { pool, id, info, .. } = *self;
        let what = format!("the rbd-mirror here to let go of image {}", info.name);
        let released =
            pool.call.wait_for(what, pool.timing().role_change, pool.timing().copy_look, || {
                Ok((!self.is_held_by_mirror(is_new)?).then_some(()))
            })?;
        released.ok_or_else(|| {
            Error::unavailable(format!(
                "volume {id} is promoted, but the rbd-mirror of this cluster still has it, and nobody can write to it: \
                 try again, and if it stays so restart that rbd-mirror, which waits for the other site"
            ))
        })
    }

    /// The owner of an image that has just been promoted is rbd-mirror, though a daemon that stood still may
    /// not be listed for a moment.
    fn is_held_by_mirror(&self, is_new: bool) -> Result<bool> {
        let owners = self.pool.holders(LockTarget::Owner(&self.info.id))?;
        // During a first copy the other site's rbd-mirror holds it, and releases it when a client writes.
        if owners.is_empty() || self.status()?.is_some_and(|status| status.own.was_primary()) {
            return Ok(false);
        }
        if is_new {
            return Ok(true);
        }
        let daemons = self.pool.mirror_daemons()?;
        Ok(owners.iter().any(|owner| daemons.contains(&owner.client)))
    }

    /// Logs what a promotion by force has resulted in.
    fn tell(&self, way: Way) {
        let of = match way {
            Way::Taken | Way::Plain => return,
            Way::Forced(None) => "it is of an unknown time".to_string(),
            Way::Forced(Some(of)) => format!("what it has was copied at {}", rfc3339(of)),
            Way::ForcedBack(before) => format!("it is one snapshot older than that of {}", rfc3339(before)),
        };
        log::warn!("volume {} was promoted by force; {of}", self.id);
    }
}
