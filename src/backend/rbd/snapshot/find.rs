//! Finding a snapshot.

use crate::backend::Snapshot;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{unknown, with_readable_record};
use crate::backend::rbd::names::{self, OBJECT_KEY};
use crate::backend::rbd::tool::{ImageRef, SnapshotInfo};
use crate::csi::Map;
use crate::error::Result;
use crate::ids::{self, SnapshotId, VolumeId};

/// The snapshot as the cluster has it; None if the image or the snapshot is gone.
pub(crate) fn find_in(pool: &Pool<'_>, id: &SnapshotId) -> Result<Option<SnapshotInfo>> {
    let name = names::snapshot(&id.snapshot);
    let all = pool.snapshots(ImageRef::Id(&id.source))?;
    Ok(all.into_iter().flatten().find(|it| !it.trashed && it.name == name))
}

/// Looks a snapshot up.
pub(crate) fn find(pool: &Pool<'_>, id: &SnapshotId) -> Result<Option<Snapshot>> {
    if pool.is_removed()? {
        return Ok(None);
    }
    let Some(object) = id.object.clone() else { return Ok(None) };
    let Some(info) = find_in(pool, id)? else { return Ok(None) };
    let source = VolumeId { place: id.place.clone(), object, incarnation: Some(id.source.clone()) };
    let topology = topology(pool, &source, &id.source)?;
    Ok(Some(Snapshot { id: id.clone(), source, size: info.size, created: info.created, topology }))
}

/// From where volumes made of a snapshot of this volume can be reached: from where the volume can be. As in a
/// list of volumes, the record is read only where topology has chosen the pool.
pub(crate) fn topology(pool: &Pool<'_>, source: &VolumeId, image: &str) -> Result<Vec<Map>> {
    let record = match ids::registration(&source.object) {
        None => pool.memory().records.get(&pool.key_of(&source.object), image),
        Some(_) => with_readable_record(pool, unknown(&source.object, image))?.record,
    };
    let placed = record.and_then(|record| record.placed);
    Ok(placed.map(|placed| placed.domains.accessible(pool.plugin())).unwrap_or_default())
}

/// The volume that an image is, or was before it was deleted: a retained image has another name.
pub(crate) fn volume_of(pool: &Pool<'_>, image: &str, id: &str) -> Result<VolumeId> {
    let volume = |object: String| VolumeId { place: pool.place(), object, incarnation: Some(id.to_string()) };
    let cache = &pool.memory().former_names;
    if names::id_of_retained(image).is_none() {
        return Ok(volume(image.to_string()));
    }
    if let Some(name) = cache.get(&id.to_string()) {
        return Ok(volume(name));
    }
    let Some(name) = pool.metadata(image, OBJECT_KEY)? else { return Ok(volume(image.to_string())) };
    cache.remember(id.to_string(), name.clone());
    Ok(volume(name))
}
