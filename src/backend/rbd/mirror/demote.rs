//! Giving a volume up as the primary, so that its copy can be promoted.

use super::begin;
use super::role::mirroring;
use super::users::refuse_published;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::watchers::{MayBeMirrored, refuse_watched};
use crate::backend::rbd::tool::{ImageInfo, Mirroring};
use crate::call::Call;
use crate::error::Result;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// Demotes a volume, or finds it demoted. The cluster would do so under a writer, whose writes then fail:
/// that takes `force`.
pub(super) fn demote(
    context: &Context,
    call: &Call,
    id: &VolumeId,
    force: bool,
    secrets: &Secrets,
) -> Result<()> {
    let at = context.locate(&id.place, secrets)?;
    let pool = context.pool(call, &at);
    let info = existing_volume(&pool, id)?;
    if !mirroring(&pool, id, &info)?.primary {
        return Ok(());
    }
    begin(&pool, &info)?;
    if !force {
        refuse_users(&pool, id, &info)?;
    }
    pool.memory().scheduled.forget(&info.id);
    let Err(failure) = pool.demote(&info.name) else { return Ok(()) };
    match existing_volume(&pool, id)?.mirroring.as_ref().is_some_and(Mirroring::is_secondary) {
        true => Ok(()),
        false => Err(failure),
    }
}

fn refuse_users(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo) -> Result<()> {
    refuse_published(pool, id, info, "demoted")?;
    let refused = refuse_watched(pool, &info.name, MayBeMirrored::Yes);
    refused.map_err(|error| error.context(format_args!("demote volume {id}")))
}
