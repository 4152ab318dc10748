//! The state of replicated volumes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use super::health::{Asked, of_primary, of_secondary};
use super::role::{between_roles, mirroring};
use super::terms;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::tool::{ImageInfo, Mirroring};
use crate::backend::{
    Condition, Fault, Reason, Replicated, ReplicationHealth, ReplicationInfo, ReplicationRole,
};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// The health of the replication of a primary volume.
pub(super) fn info(pool: &Pool<'_>, id: &VolumeId) -> Result<ReplicationInfo> {
    let info = existing_volume(pool, id)?;
    let mirroring = mirroring(pool, id, &info)?;
    if !mirroring.primary {
        return Err(Error::precondition(format!(
            "volume {id} is a copy (secondary): ask where it is primary, or look at it with `cephlet volume show {id}`"
        )));
    }
    let judged = judge(pool, id, &info, mirroring)?;
    judged.ok_or_else(|| Error::unavailable(format!("volume {id} was changed during this call: try again")))
}

fn judge(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    mirroring: &Mirroring,
) -> Result<Option<ReplicationInfo>> {
    let Some(status) = pool.mirror_status(&info.name)? else { return Ok(None) };
    let asked = Asked { mode: mirroring.mode, period: terms::period(pool, info)?, now: SystemTime::now() };
    let mut judged =
        if mirroring.primary { of_primary(&status, asked) } else { of_secondary(&status, asked) };
    // An error, such as a second primary, says more.
    if info.is_between_roles() && judged.health != ReplicationHealth::Error {
        (judged.health, judged.message) = (ReplicationHealth::Error, between_roles(id));
    }
    Ok(Some(judged))
}

/// What an inspection says of a replicated volume: its role, how far the other side is, and what is wrong.
/// None if it is not replicated.
pub(crate) fn replicated(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
) -> Result<Option<(Replicated, Condition)>> {
    let Some(mirroring) = &info.mirroring else { return Ok(None) };
    let role = if mirroring.primary { ReplicationRole::Primary } else { ReplicationRole::Secondary };
    let judged = judge(pool, id, info, mirroring)?;
    let wrong = judged.as_ref().filter(|it| it.health == ReplicationHealth::Error);
    let detail = |it: &ReplicationInfo| format!("its replication has failed: {}", it.message);
    let wrong = wrong.map(|it| Fault::new(Reason::ReplicationFailed, detail(it)));
    Ok(Some((Replicated { role, state: judged.map(|it| it.message) }, wrong)))
}

/// The roles of the images of a pool, by their names. A pool in which nothing is mirrored is not asked again
/// for a while. If the roles cannot be read, a list does without them.
pub(crate) fn roles(pool: &Pool<'_>) -> BTreeMap<String, ReplicationRole> {
    let (memory, key) = (&pool.memory().unmirrored.0, pool.place().key(""));
    if memory.contains(&key) {
        return BTreeMap::new();
    }
    let images = pool.mirrored_images().unwrap_or_else(|error| {
        log::warn!("volumes are listed without their parts in replication: {error}");
        Vec::new()
    });
    if images.is_empty() {
        memory.remember(key, ());
    }
    let role = |primary| match primary {
        Some(true) => ReplicationRole::Primary,
        Some(false) => ReplicationRole::Secondary,
        None => ReplicationRole::Unknown,
    };
    images.into_iter().map(|(name, primary)| (name, role(primary))).collect()
}
