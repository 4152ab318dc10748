//! Giving a volume up as the primary, so that its copy can be promoted.

use super::begin;
use super::newest::Newest;
use super::role::mirroring;
use super::users::refuse_published;
use crate::backend::MirroringMode;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::watchers::{MayBeMirrored, refuse_watched};
use crate::backend::rbd::names::DEMOTED_KEY;
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
    let &Mirroring { mode, primary: is_primary, .. } = mirroring(&pool, id, &info)?;
    if is_demoted(&pool, &info)? {
        return Ok(());
    }
    begin(&pool, &info)?;
    if is_primary && !force {
        refuse_users(&pool, id, &info)?;
    }
    pool.memory().scheduled.forget(&info.id);
    if !is_primary {
        // One that was broken off begins anew: nobody else has been able to take it over.
        pool.promote(&info.name)?;
    }
    if mode == MirroringMode::Journal {
        pool.set_metadata(&info.name, DEMOTED_KEY, &info.id)?;
    }
    let Err(failure) = pool.demote(&info.name) else { return Ok(()) };
    match is_demoted(&pool, &existing_volume(&pool, id)?)? {
        true => Ok(()),
        false => Err(failure),
    }
}

/// Whether an image is not primary, and its peer learns that.
fn is_demoted(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    let Some(mirroring) = info.mirroring.as_ref().filter(|it| it.is_secondary()) else { return Ok(false) };
    if mirroring.mode == MirroringMode::Journal {
        return Ok(true);
    }
    let snapshots = pool.mirror_snapshots(&info.name)?.unwrap_or_default();
    Ok(Newest::of(&snapshots) != Newest::HalfDemoted)
}

fn refuse_users(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo) -> Result<()> {
    refuse_published(pool, id, info, "demoted")?;
    let refused = refuse_watched(pool, &info.name, MayBeMirrored::Yes);
    refused.map_err(|error| error.context(format_args!("demote volume {id}")))
}
