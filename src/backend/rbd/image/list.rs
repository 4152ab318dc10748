//! Lists of volumes: one query for each pool and namespace, in the order of the volumes' keys, and no more
//! queries than a page needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::{ImageWithRecord, unknown, with_readable_record};
use crate::backend::rbd::mirror::roles;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::find::volume_of;
use crate::backend::rbd::tool::{ImageInfo, ListedImage, Parent};
use crate::backend::{Page, Replicated, Unlisted, Volume};
use crate::csi::Source;
use crate::dispatch::Call;
use crate::error::{Kind, Result};
use crate::ids::{self, Place, SnapshotId, VolumeId};

/// Up to `limit` volumes (0: all) whose keys follow `after`. `unlisted` decides about a pool or a cluster
/// that cannot be listed.
pub(crate) fn list(
    context: &Context,
    call: &Call,
    (after, limit): (&str, usize),
    unlisted: Unlisted<'_>,
) -> Result<Page<Volume>> {
    let most = if limit == 0 { usize::MAX } else { limit };
    let mut entries: Vec<Volume> = Vec::new();
    let mut silent = BTreeSet::new();
    for at in context.memory.locations.after(&context.question(call), after, unlisted)? {
        let cluster = &at.access.cluster.name;
        if silent.contains(cluster) {
            continue;
        }
        if entries.len() == most {
            return Ok(page(entries, true));
        }
        let left = most - entries.len();
        let found = match volumes_after(&context.pool(call, &at), after) {
            Ok(found) => found,
            Err(error) => {
                // Each further pool of a cluster that does not answer would take as long again.
                if matches!(error.kind(), Kind::Unavailable | Kind::Timeout) {
                    silent.insert(cluster.clone());
                }
                unlisted(error)?;
                continue;
            }
        };
        let is_more = found.len() > left;
        entries.extend(found.into_iter().take(left));
        if is_more {
            return Ok(page(entries, true));
        }
    }
    Ok(page(entries, false))
}

/// The volumes of a pool whose keys follow `after`, by their keys.
fn volumes_after(pool: &Pool<'_>, after: &str) -> Result<Vec<Volume>> {
    let place = pool.place();
    let list = images(pool)?;
    let mut entries: Vec<(String, &ListedImage)> = list
        .iter()
        .filter(|entry| names::is_volume(&entry.name))
        .map(|entry| (place.key(&entry.name), entry))
        .filter(|(key, _)| key.as_str() > after)
        .collect();
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    let roles = if entries.is_empty() { BTreeMap::new() } else { roles(pool) };
    let volume = |(key, entry): (String, &ListedImage)| {
        let role = roles.get(&entry.name).map(|role| Replicated { role: *role, state: None });
        Ok(Volume { replication: role, ..listed(pool, &key, entry, &list)? })
    };
    entries.into_iter().map(volume).collect()
}

/// All images of a pool. An error names the cluster.
fn images(pool: &Pool<'_>) -> Result<Vec<ListedImage>> {
    pool.list().map_err(|error| {
        let place = pool.place();
        pool.memory().locations.forget_unlisted(&place, &error);
        let is_invalid = error.kind() == Kind::InvalidArgument;
        let error = if is_invalid { error.with_kind(Kind::Precondition) } else { error };
        let Place { cluster, pool, namespace, .. } = place;
        error.context(format_args!("list pool {pool:?} with namespace {namespace:?} of cluster {cluster:?}"))
    })
}

/// A volume as a list shows it.
fn listed(pool: &Pool<'_>, key: &str, entry: &ListedImage, list: &[ListedImage]) -> Result<Volume> {
    let place = pool.place();
    let id = VolumeId { place: place.clone(), object: entry.name.clone(), incarnation: None };
    let found = match ids::registration(&entry.name) {
        // Only the record tells from where the volume can be reached. It is read once, and then remembered.
        Some(_) => with_readable_record(pool, info(entry))?,
        None => ImageWithRecord { info: info(entry), record: pool.memory().records.get(key, &entry.id) },
    };
    let is_known = found.record.is_some();
    let volume = found.volume(&id, pool.plugin());
    let source = match &entry.parent {
        Some(parent) if !is_known => source(pool, parent, list)?,
        _ => volume.source,
    };
    Ok(Volume { source, ..volume })
}

fn page(entries: Vec<Volume>, is_more: bool) -> Page<Volume> {
    let next = entries.last().filter(|_| is_more).map(|volume| volume.id.key());
    Page { entries, next }
}

/// The info of an image, as far as a list shows it.
fn info(entry: &ListedImage) -> ImageInfo {
    let (snapshots, parent) = (entry.snapshots.len() as u64, entry.parent.clone());
    ImageInfo { size: entry.size, snapshots, parent, ..unknown(&entry.name, &entry.id) }
}

/// The source of a volume whose record is not known, as far as the list shows it: the snapshot, while it
/// exists. A snapshot that was deleted since, such as the transient one of a volume's copy, has a random
/// name.
fn source(pool: &Pool<'_>, parent: &Parent, list: &[ListedImage]) -> Result<Option<Source>> {
    let find = || {
        let snapshot = names::in_snapshot(&parent.snapshot)?;
        let image = list.iter().find(|entry| entry.name == parent.image)?;
        image.snapshots.iter().any(|it| it.name == parent.snapshot).then_some((image, snapshot))
    };
    let is_here = (&parent.pool, &parent.namespace) == (&pool.at.pool, &pool.at.namespace);
    let Some((image, snapshot)) = find().filter(|_| is_here) else { return Ok(None) };
    let VolumeId { place, object, .. } = volume_of(pool, &image.name, &image.id)?;
    let (source, snapshot) = (image.id.clone(), snapshot.to_string());
    Ok(Some(Source::Snapshot(SnapshotId { place, object: Some(object), source, snapshot }.to_string())))
}
