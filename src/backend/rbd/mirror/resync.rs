//! Replacing a copy that has diverged from its primary.
//!
//! rbd-mirror deletes the image and copies it from the primary, in some seconds and under another id. cephlet
//! wishes for this only if the copy cannot follow by itself, and only while the peer is primary: a wish that
//! cannot be met waits, and takes effect when no operator expects it. The wish is made once: it stands on the
//! image until it is met, and then the image has no error.

use std::collections::BTreeMap;

use super::begin;
use super::newest::Newest;
use crate::backend::MirroringMode;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::mirroring;
use crate::backend::rbd::mirror::users::refuse_published;
use crate::backend::rbd::tool::{ImageInfo, MirrorStatus, Mirroring, Replay, SiteStatus};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// The prefix of the key of the wish; the uuid of this site's mirror follows.
const WISH: &str = ".rbd_mirror.";

/// Resyncs a copy if that is necessary, and returns whether it is up to date.
pub(super) fn resync(pool: &Pool<'_>, id: &VolumeId, force: bool) -> Result<bool> {
    let info = existing_volume(pool, id)?;
    let mirroring = mirroring(pool, id, &info)?;
    if mirroring.primary {
        return Err(Error::precondition(format!(
            "volume {id} is primary: a resync would throw away what it has; demote it first"
        )));
    }
    begin(pool, &info)?;
    let Some(status) = pool.mirror_status(&info.name)? else { return Ok(false) };
    if is_wished(pool, &info)? {
        pool.memory().resyncs.0.remember(pool.key_of(&id.object), ());
        return ensure_source(id, &status).map(|()| false);
    }
    if status.own.replay == Replay::Error {
        ensure_met_at_once(id, mirroring, &status)?;
        return ask(pool, id, &info, &status, force);
    }
    is_ready(pool, &info, mirroring, &status)
}

/// Whether the wish stands on the image, or is just being met: then the image is gone.
fn is_wished(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    Ok(pool.all_metadata(&info.name)?.is_none_or(|metadata| wishes(&metadata).next().is_some()))
}

/// The keys of wishes: `{"resync_requested": true}` is their value.
fn wishes(metadata: &BTreeMap<String, String>) -> impl Iterator<Item = &String> {
    let is_wish = |value: &str| {
        let value: Option<serde_json::Value> = serde_json::from_str(value).ok();
        value.is_some_and(|value| value["resync_requested"] == true)
    };
    metadata.iter().filter(move |(key, value)| key.starts_with(WISH) && is_wish(value)).map(|(key, _)| key)
}

/// Withdraws the wishes that stand on an image, as rbd-mirror does when it has met one. On a promoted image
/// they would wait until it is demoted, and then have it deleted and copied anew.
pub(super) fn withdraw_wishes(
    pool: &Pool<'_>,
    info: &ImageInfo,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let withdraw =
        |key: &String| pool.set_metadata(&info.name, key, "{\"resync_requested\": false}").map(drop);
    wishes(metadata).try_for_each(withdraw)
}

/// Refuses a wish that would have to wait until a site becomes primary.
fn ensure_source(id: &VolumeId, status: &MirrorStatus) -> Result<()> {
    match status.peers.iter().any(SiteStatus::is_primary) {
        true => Ok(()),
        false => Err(Error::precondition(format!(
            "volume {id} is to be copied anew, but is not primary at the other site, or that gives no sign of life: \
             promote it there first, or there is nothing that it could be copied from"
        ))),
    }
}

/// In a journal the wish is not seen and cannot be withdrawn. If it were met only after a promotion and a
/// demotion here, it would delete the newest copy.
fn ensure_met_at_once(id: &VolumeId, mirroring: &Mirroring, status: &MirrorStatus) -> Result<()> {
    match mirroring.mode == MirroringMode::Snapshot || status.own.is_up {
        true => Ok(()),
        false => Err(Error::unavailable(format!(
            "volume {id} cannot be copied anew, as the rbd-mirror of this cluster gives no sign of life: start it, and \
             try again"
        ))),
    }
}

/// Asks for a new copy in place of one that cannot follow.
fn ask(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, status: &MirrorStatus, force: bool) -> Result<bool> {
    let said = &status.own.description;
    if !force {
        return Err(Error::precondition(format!(
            "volume {id} cannot follow its primary ({said:?}): resync it with force, which throws away what was \
             written here"
        )));
    }
    ensure_source(id, status)?;
    // Readers would go on with an image that no longer exists.
    refuse_published(pool, id, info, "copied anew")?;
    // Another call's wish may have replaced the image since it was looked at.
    pool.memory().resyncs.0.remember(pool.key_of(&id.object), ());
    if existing_volume(pool, id)?.id != info.id {
        return Ok(false);
    }
    match pool.request_resync(&info.name) {
        Ok(()) => Ok(false),
        Err(failure) => existing_volume(pool, id).and(Err(failure)),
    }
}

/// Whether everything that the peer has is here.
fn is_ready(pool: &Pool<'_>, info: &ImageInfo, mirroring: &Mirroring, status: &MirrorStatus) -> Result<bool> {
    let is_following = status.own.is_up && matches!(status.own.replay, Replay::Replaying | Replay::Unknown);
    let has_primary = status.peers.iter().any(SiteStatus::is_primary);
    if !is_following || !(has_primary || status.peers.iter().any(is_idle)) {
        return Ok(false);
    }
    if mirroring.mode == MirroringMode::Journal {
        let is_read = status.own.progress.behind.is_none_or(|behind| behind == 0);
        return Ok(is_read && (status.own.replay == Replay::Replaying || !has_primary));
    }
    let snapshots = pool.mirror_snapshots(&info.name)?.unwrap_or_default();
    Ok(match Newest::of(&snapshots) {
        Newest::Copied(_) => true,
        // If the peer was promoted since, nothing of that is here.
        Newest::DemotionArrived | Newest::DemotedHere => !has_primary,
        _ => false,
    })
}

/// Whether the peer is demoted as well, so no site is primary.
fn is_idle(peer: &SiteStatus) -> bool {
    peer.is_up && peer.replay == Replay::Unknown
}
