//! Finding a snapshot.

use crate::backend::Snapshot;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::names::{self, OBJECT_KEY};
use crate::backend::rbd::tool::{ImageRef, SnapshotInfo};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::{SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// The snapshot as the cluster has it; None where image or snapshot are gone.
pub(crate) fn find_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Option<SnapshotInfo>> {
    let named = all_named(pool, &id.source, &id.snapshot)?;
    Ok(named.into_iter().find(|it| !it.trashed && id.means(&it.id.to_string())))
}

/// All that were taken by a name and are not gone: one at most that bears it now, the others in the trash.
pub(crate) fn all_named(pool: &Pool<'_>, image: &str, digits: &str) -> Result<Vec<SnapshotInfo>> {
    let name = names::snapshot(digits);
    let all = pool.snapshots(ImageRef::Id(image))?;
    Ok(all.into_iter().flatten().filter(|snapshot| snapshot.name == name).collect())
}

/// Looks a snapshot up.
pub(crate) fn find(
    context: &Context,
    call: &Call,
    id: &SnapshotId,
    secrets: &Secrets,
) -> Result<Option<Snapshot>> {
    let at = context.locate(&id.place, secrets)?;
    if context.is_removed(call, &at)? {
        return Ok(None);
    }
    let pool = context.pool(call, &at);
    let Some(info) = find_in(&pool, id)? else { return Ok(None) };
    let name = match context.memory.records.name_of(&id.place, &id.source) {
        Some(name) => Some(name),
        None => pool.info(ImageRef::Id(&id.source))?.map(|info| info.name),
    };
    let Some(name) = name else { return Ok(None) };
    let source = volume_of(&pool, &name, &id.source)?;
    Ok(Some(Snapshot { id: id.clone(), source, size: info.size, created: info.created }))
}

/// The volume that an image is, or was before it was deleted.
pub(crate) fn volume_of(pool: &Pool<'_>, image: &str, id: &str) -> Result<VolumeId> {
    let former = match names::id_of_retained(image) {
        Some(_) => former_name(pool, image, id)?,
        None => None,
    };
    let object = former.unwrap_or_else(|| image.to_string());
    Ok(VolumeId { place: pool.place(), object, incarnation: Some(id.to_string()) })
}

/// What a retained image was called as a volume.
fn former_name(pool: &Pool<'_>, image: &str, id: &str) -> Result<Option<String>> {
    let cache = &pool.memory().former_names;
    if let Some(name) = cache.get(&id.to_string()) {
        return Ok(Some(name));
    }
    let name = pool.metadata(image, OBJECT_KEY)?;
    if let Some(name) = &name {
        cache.remember(id.to_string(), name.clone());
    }
    Ok(name)
}
