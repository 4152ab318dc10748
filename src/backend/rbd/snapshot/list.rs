//! Lists of snapshots. One look at each pool shows which snapshots exist. One look at each image shows when
//! they were taken, which is remembered.

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::find_volume;
use crate::backend::rbd::names::{self, NAME};
use crate::backend::rbd::snapshot::find::{topology, volume_of};
use crate::backend::rbd::tool::{ImageRef, SnapshotInfo};
use crate::backend::{Page, Snapshot};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::secrets::Secrets;

/// A page ends after this many images that are listed for the first time, as each takes a process.
const IMAGES: usize = 200;

/// A snapshot that a look at its pool showed.
struct Listed {
    at: PoolRef,
    /// Without the name of its volume, which a retained image does not have any more.
    id: SnapshotId,
    image: String,
    size: u64,
}

/// A page of all snapshots, in the order of their places, images and names. A page may have fewer entries
/// than asked for and still not be the last.
pub(crate) fn list_all(context: &Context, call: &Call, after: &str, limit: usize) -> Result<Page<Snapshot>> {
    let mut listed = look(context, call)?;
    listed.sort_by_cached_key(|it| it.id.to_string());
    let mut entries = Vec::new();
    let (mut asked, mut last) = (0, None);
    for it in listed.iter().filter(|it| it.id.to_string().as_str() > after) {
        if (limit != 0 && entries.len() == limit) || asked == IMAGES {
            return Ok(Page { entries, next: last });
        }
        let is_known = context.memory.snapshots.created(&it.id).is_some();
        asked += usize::from(!is_known);
        entries.extend(complete(&context.pool(call, &it.at), it)?);
        last = Some(it.id.to_string());
    }
    Ok(Page { entries, next: None })
}

/// The snapshots of all pools.
fn look(context: &Context, call: &Call) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    for at in context.memory.locations.after(&context.question(call), "", &Err)? {
        let pool = context.pool(call, &at);
        let place = pool.place();
        for entry in pool.list()? {
            let ours = entry.snapshots.iter();
            let ours = ours.filter_map(|it| Some((names::in_snapshot(&it.name)?, it)));
            listed.extend(ours.map(|(snapshot, it)| Listed {
                at: at.clone(),
                id: snapshot_id(&place, None, &entry.id, snapshot),
                image: entry.name.clone(),
                size: it.size,
            }));
        }
    }
    Ok(listed)
}

/// The snapshot; None if it was deleted since its pool was looked at.
fn complete(pool: &Pool<'_>, listed: &Listed) -> Result<Option<Snapshot>> {
    let Listed { id, image, size, .. } = listed;
    let cache = &pool.memory().snapshots;
    if cache.created(id).is_none() {
        let all = pool.snapshots(ImageRef::Id(&id.source))?.unwrap_or_default();
        ours(&all).for_each(|(snapshot, it)| cache.remember(&id.source, snapshot, it));
    }
    let Some(created) = cache.created(id) else { return Ok(None) };
    let source = volume_of(pool, image, &id.source)?;
    let topology = topology(pool, &source, &id.source)?;
    let id = SnapshotId { object: Some(source.object.clone()), ..id.clone() };
    Ok(Some(Snapshot { id, source, size: *size, created, topology }))
}

/// The snapshots of one volume, deleted or not: found by its incarnation, or by its name if no image has that
/// id.
pub(crate) fn list_of(
    context: &Context,
    call: &Call,
    volume: &VolumeId,
    secrets: &Secrets,
) -> Result<Vec<Snapshot>> {
    let is_unknown = matches!(context.clusters.find(&volume.place.cluster), Ok(None));
    if volume.place.backend != NAME || is_unknown || names::is_internal(&volume.object) {
        return Ok(Vec::new());
    }
    let at = context.locate(&volume.place, secrets)?;
    let pool = context.pool(call, &at);
    if pool.is_removed()? {
        return Ok(Vec::new());
    }
    let found = snapshots_of(&pool, volume)?;
    let Some((image, all)) = found else { return Ok(Vec::new()) };
    let incarnation = Some(volume.incarnation.clone().unwrap_or_else(|| image.clone()));
    let source = VolumeId { incarnation, ..volume.clone() };
    let topology = topology(&pool, &source, &image)?;
    let snapshot = |(snapshot, it): (&str, &SnapshotInfo)| Snapshot {
        id: snapshot_id(&volume.place, Some(&volume.object), &image, snapshot),
        source: source.clone(),
        size: it.size,
        created: it.created,
        topology: topology.clone(),
    };
    let mut snapshots: Vec<_> = ours(&all).map(snapshot).collect();
    snapshots.sort_by_cached_key(|it| it.id.to_string());
    Ok(snapshots)
}

/// The id of a volume's image and its snapshots.
fn snapshots_of(pool: &Pool<'_>, volume: &VolumeId) -> Result<Option<(String, Vec<SnapshotInfo>)>> {
    if let Some(id) = &volume.incarnation
        && let Some(all) = pool.snapshots(ImageRef::Id(id))?
    {
        return Ok(Some((id.clone(), all)));
    }
    let Some(info) = find_volume(pool, volume)? else { return Ok(None) };
    Ok(pool.snapshots(ImageRef::Id(&info.id))?.map(|all| (info.id, all)))
}

fn snapshot_id(place: &Place, object: Option<&str>, image: &str, snapshot: &str) -> SnapshotId {
    SnapshotId {
        place: place.clone(),
        object: object.map(str::to_string),
        source: image.to_string(),
        snapshot: snapshot.to_string(),
    }
}

/// The snapshots that were asked for and are not deleted, with their `KEY-R`.
fn ours(snapshots: &[SnapshotInfo]) -> impl Iterator<Item = (&str, &SnapshotInfo)> {
    snapshots.iter().filter(|it| !it.trashed).filter_map(|it| Some((names::in_snapshot(&it.name)?, it)))
}

/// The part of a sorted list that follows `after`.
pub(crate) fn page(mut sorted: Vec<Snapshot>, after: &str, limit: usize) -> Page<Snapshot> {
    sorted.retain(|it| it.id.to_string().as_str() > after);
    if limit == 0 || sorted.len() <= limit {
        return Page { entries: sorted, next: None };
    }
    sorted.truncate(limit);
    let next = sorted.last().map(|it| it.id.to_string());
    Page { entries: sorted, next }
}
