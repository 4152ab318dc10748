//! Making a copy anew that has gone its own way.
//!
//! rbd-mirror deletes the image and copies it from the primary, in some seconds and under another id. That is
//! asked for only where the copy cannot follow by itself, and only while the peer is primary: a wish that
//! cannot be met waits, and strikes when nobody thinks of it any more. It is asked for once: the wish stands
//! on the image until it is met, and then the image has no error.

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

/// How the key of the wish begins; the uuid of this site's mirror follows.
const WISH: &str = ".rbd_mirror.";

/// Resyncs a copy if it has to be, and says whether it is an up-to-date copy.
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
        pool.memory().resyncs.0.remember(pool.key_of(id), ());
        return ensure_source(id, &status).map(|()| false);
    }
    if status.own.replay == Replay::Error {
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

/// Takes back the wishes that stand on an image, as rbd-mirror does when it has met one: on what was promoted
/// they would wait, and have it deleted and copied anew whenever it is demoted.
pub(super) fn withdraw_wishes(
    pool: &Pool<'_>,
    info: &ImageInfo,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let withdraw =
        |key: &String| pool.set_metadata(&info.name, key, "{\"resync_requested\": false}").map(drop);
    wishes(metadata).try_for_each(withdraw)
}

/// Refuses what could only wait for somebody to become primary.
fn ensure_source(id: &VolumeId, status: &MirrorStatus) -> Result<()> {
    match status.peers.iter().any(SiteStatus::is_primary) {
        true => Ok(()),
        false => Err(Error::precondition(format!(
            "volume {id} is to be copied anew, but is not primary at the other site, or that gives no sign of life: \
             promote it there first, or there is nothing that it could be copied from"
        ))),
    }
}

/// The copy cannot follow: it is given up for a new one.
fn ask(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, status: &MirrorStatus, force: bool) -> Result<bool> {
    let said = &status.own.description;
    if !force {
        return Err(Error::precondition(format!(
            "volume {id} cannot follow its primary ({said:?}): resync it with force, which throws away what was \
             written here"
        )));
    }
    ensure_source(id, status)?;
    // Readers would go on with an image that is not there any more.
    refuse_published(pool, id, info, "copied anew")?;
    // What was looked at may have been the image that another call's wish has replaced meanwhile.
    pool.memory().resyncs.0.remember(pool.key_of(id), ());
    if existing_volume(pool, id)?.id != info.id {
        return Ok(false);
    }
    match pool.request_resync(&info.name) {
        Ok(()) => Ok(false),
        Err(failure) => existing_volume(pool, id).and(Err(failure)),
    }
}

/// Whether all that the peer has is here.
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
        // Of a primary that was promoted since, nothing is here.
        Newest::DemotionArrived | Newest::DemotedHere => !has_primary,
        _ => false,
    })
}

/// Demoted as well: nobody is primary.
fn is_idle(peer: &SiteStatus) -> bool {
    peer.is_up && peer.replay == Replay::Unknown
}
