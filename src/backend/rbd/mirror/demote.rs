//! Giving a volume up as the primary, so that its copy can be promoted.
//!
//! From then on no client may write to it: a write would overwrite what comes from the other site, or be
//! lost. The image itself refuses clients of librbd (EROFS, Ceph 16.2). The kernel's driver is not refused:
//! it does not look again at an image that it has mapped, and goes on (Linux 6.1). So a volume that a node
//! has is not demoted; by force it is taken from the nodes first, and their clients are shut out. During the
//! demotion the deletion lock is held, so the volume is published to no node.
//!
//! A peer whose rbd-mirror has not looked since an image became primary never copies its demotion, so neither
//! site could promote it (Ceph 16.2: both say "remote image is not primary" for ever). So a demotion without
//! force is refused until the peer has looked.
//!
//! The command that demotes makes the image a copy first, and then tells the peer: by the snapshot that it
//! completes, or by an entry in the journal. If it is killed in between, the peer waits for ever. So an image
//! that was demoted here without the peer learning of it is promoted and demoted once more.

use super::begin;
use super::newest::{Newest, is_followed};
use super::role::mirroring;
use super::users::{published, while_unpublished};
use crate::backend::MirroringMode;
use crate::backend::ceph::publication::WHILE_ASKING;
use crate::backend::ceph::publication::deletion::nodes;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::watchers::{in_use, staying_watchers};
use crate::backend::rbd::names::DEMOTED_KEY;
use crate::backend::rbd::publish::fence::{Owner, shut_out_dead_owner, shut_out_ended};
use crate::backend::rbd::publish::unpublish::take_back;
use crate::backend::rbd::tool::{ImageInfo, LockHolder, Mirroring, Promoted, Replay};
use crate::csi::NOT_YET;
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// A demotion that was asked for.
struct Demotion<'a> {
    id: &'a VolumeId,
    info: &'a ImageInfo,
    mode: MirroringMode,
    is_primary: bool,
    force: bool,
}

/// Demotes a volume, or finds it demoted.
pub(super) fn demote(pool: &Pool<'_>, id: &VolumeId, force: bool) -> Result<()> {
    let info = existing_volume(pool, id)?;
    let &Mirroring { mode, primary: is_primary, .. } = mirroring(pool, id, &info)?;
    if is_demoted(pool, &info)? {
        return Ok(());
    }
    begin(pool, &info)?;
    let demotion = Demotion { id, info: &info, mode, is_primary, force };
    if is_primary && !force {
        demotion.refuse_unless_followed(pool)?;
    }
    if !is_primary && mode == MirroringMode::Journal {
        // A demotion that looks broken off may be in progress.
        let what = format!("the demotion of image {} to be read by the other site", info.name);
        let demoted = pool.call.wait_for(what, pool.timing().role_change, pool.timing().copy_look, || {
            Ok(is_demoted(pool, &existing_volume(pool, id)?)?.then_some(()))
        })?;
        if demoted.is_some() {
            return Ok(());
        }
    }
    // 1. No node has it.
    if force {
        take_back(pool, &info.id)?;
    }
    let refusal = |holders: &[LockHolder]| match force {
        true => being_published(id, holders),
        false => published(id, holders, "demoted"),
    };
    // 2. No node is given it. 3. No client keeps it.
    while_unpublished(pool, &info.id, refusal, |pool| demotion.carry_out(pool))
}

/// The refusal of a volume while a controller may be checking whether it can be published.
fn being_published(id: &VolumeId, holders: &[LockHolder]) -> Error {
    Error::unavailable(format!(
        "volume {id} cannot be demoted by force while it is being published to node {}, or {WHILE_ASKING} s after \
         that at the latest: try again then",
        nodes(holders)
    ))
}

impl Demotion<'_> {
    fn carry_out(&self, pool: &Pool<'_>) -> Result<()> {
        let &Self { info, mode, is_primary, .. } = self;
        if is_primary {
            shut_out_ended(pool, &info.id)?;
            self.refuse_users(pool)?;
            if shut_out_dead_owner(pool, &info.id)? == Owner::Watches {
                self.refuse_users(pool)?;
            }
        }
        pool.memory().scheduled.0.forget(&info.id);
        if !is_primary {
            // A demotion that was broken off begins anew, unless another controller has done it meanwhile.
            let now = existing_volume(pool, self.id)?;
            if is_demoted(pool, &now)? {
                return Ok(());
            }
            let is_same = now.id == info.id && now.mirroring.as_ref().is_some_and(Mirroring::is_secondary);
            if !is_same || pool.promote(&info.name)? == Promoted::PeerIsPrimary {
                return Err(Error::unavailable(format!(
                    "volume {} has changed its role meanwhile: try again",
                    self.id
                )));
            }
        }
        if mode == MirroringMode::Journal {
            pool.set_metadata(&info.name, DEMOTED_KEY, &info.id)?;
        }
        let Err(failure) = pool.demote(&info.name) else { return Ok(()) };
        match is_demoted(pool, &existing_volume(pool, self.id)?)? {
            true => Ok(()),
            false => Err(failure),
        }
    }

    fn refuse_unless_followed(&self, pool: &Pool<'_>) -> Result<()> {
        let name = &self.info.name;
        let is_followed = match is_followed(&pool.mirror_snapshots(name)?.unwrap_or_default()) {
            Some(known) => known,
            None => {
                let peers = pool.mirror_status(name)?.map(|status| status.peers).unwrap_or_default();
                peers.iter().any(|peer| match peer.replay {
                    Replay::Unknown => false,
                    // It is primary as well: what is given up here is no copy.
                    Replay::Stopped => peer.is_primary(),
                    // The first copy of a journal is made from a snapshot that goes with the primary.
                    Replay::Starting => self.mode == MirroringMode::Snapshot,
                    Replay::Error | Replay::Replaying => true,
                })
            }
        };
        if is_followed {
            return Ok(());
        }
        Err(Error::unavailable(format!(
            "{NOT_YET}: the other site has not begun to copy volume {} since it became primary here, so it would \
             not learn of the demotion: try again, and see to the rbd-mirror there; if that site is lost, or the \
             volume is primary there as well, demote it with force",
            self.id
        )))
    }

    /// Refuses an image that a client has open; by force only one that the kernel's driver has mapped.
    fn refuse_users(&self, pool: &Pool<'_>) -> Result<()> {
        let mut users = staying_watchers(pool, self.info)?;
        users.retain(|user| user.is_kernel || !self.force);
        if users.is_empty() {
            return Ok(());
        }
        let mut refusal = in_use(&self.info.name, &users);
        if self.force {
            refusal = Error::precondition(format!(
                "the kernel there would go on writing to what is demoted, so it must be shut out first (`ceph osd \
                 blocklist add ADDRESS 31536000`): {refusal}"
            ));
        }
        Err(refusal.context(format_args!("demote volume {}", self.id)))
    }
}

/// Whether an image is not primary, and its peer learns of that.
fn is_demoted(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    let Some(mirroring) = info.mirroring.as_ref().filter(|it| it.is_secondary()) else { return Ok(false) };
    if mirroring.mode == MirroringMode::Journal {
        return Ok(!is_half_demoted(pool, info)?);
    }
    let snapshots = pool.mirror_snapshots(&info.name)?.unwrap_or_default();
    Ok(Newest::of(&snapshots) != Newest::HalfDemoted)
}

/// Whether an image was demoted here but its journal does not say so, so the other site goes on reading the
/// journal.
fn is_half_demoted(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    if pool.metadata(&info.name, DEMOTED_KEY)?.as_ref() != Some(&info.id) {
        return Ok(false);
    }
    let peers = pool.mirror_status(&info.name)?.map(|status| status.peers).unwrap_or_default();
    let is_read = peers.iter().any(|peer| peer.is_up && peer.replay == Replay::Replaying);
    Ok(is_read && pool.has_bare_tag(&info.name, &info.id)?)
}
