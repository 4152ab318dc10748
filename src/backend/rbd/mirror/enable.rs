//! Beginning to replicate a volume.
//!
//! What the copy needs as well is written to the image before it is mirrored: the id that the volume's IDs
//! name, and the schedule for the side that takes over. After a kill in between, a repeated request does the
//! rest. A complete request is remembered, so its repetition is one query.

use super::begin;
use super::role::{mirroring, refuse_between_roles};
use super::terms::{self, Terms, ensure_schedule};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{existing_volume, with_record};
use crate::backend::rbd::image::retained_checks::check_parent_later;
use crate::backend::rbd::image::watchers::refuse_watched;
use crate::backend::rbd::mirror::users::{published, while_unpublished};
use crate::backend::rbd::names::{RECORD_KEY, REPLICATION_KEY};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, MirrorScope, MirrorState, Mirroring, Parent};
use crate::backend::{MirroringMode, ReplicationTerms, Schedule};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// The features that make up an image's object map.
const OBJECT_MAP: [&str; 2] = ["object-map", "fast-diff"];

/// Replicates a volume as asked, or finds that it is.
pub(super) fn enable(pool: &Pool<'_>, id: &VolumeId, terms: &ReplicationTerms) -> Result<()> {
    let info = existing_volume(pool, id)?;
    if info.mirroring.is_some() {
        return confirm(pool, id, &info, terms);
    }
    begin(pool, &info)?;
    refuse_unmirrored(pool)?;
    if let Some(parent) = &info.parent {
        settle_parent(pool, id, &info, parent, terms)?;
    }
    let mirror = |pool: &Pool<'_>| {
        keep(pool, id, &info, terms, None)?;
        mirror(pool, id, &info.name, terms.mode)
    };
    match terms.mode {
        MirroringMode::Snapshot => mirror(pool)?,
        // The kernel's driver would bypass the journal.
        MirroringMode::Journal => without_clients(pool, id, &info, "given a journal", mirror)?,
    }
    if let Some(schedule) = &terms.schedule {
        pool.add_schedule(&info.name, schedule)?;
    }
    pool.memory().unmirrored.0.forget(&pool.place().key(""));
    pool.memory().enabled.0.remember(info.id, terms.clone());
    Ok(())
}

/// Checks whether an image that is mirrored already is mirrored as requested.
fn confirm(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo, terms: &ReplicationTerms) -> Result<()> {
    let mirroring = mirroring(pool, id, info)?;
    refuse_other_mode(id, mirroring, terms.mode)?;
    // A copy takes no metadata, and its schedule is set when it is promoted.
    if !mirroring.primary || pool.memory().enabled.0.get(&info.id).as_ref() == Some(terms) {
        return Ok(());
    }
    refuse_between_roles(id, info)?;
    // Another controller may have written other terms since.
    let kept = terms::read(pool, info)?;
    keep(pool, id, info, terms, kept)?;
    if mirroring.mode == MirroringMode::Snapshot {
        ensure_schedule(pool, &info.name, terms.schedule.as_ref())?;
    }
    pool.memory().enabled.0.remember(info.id.clone(), terms.clone());
    Ok(())
}

fn refuse_other_mode(id: &VolumeId, present: &Mirroring, asked: MirroringMode) -> Result<()> {
    if present.mode == asked {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "volume {id} is replicated in mode {}, not {}: disable it first, which removes the copy",
        present.mode.word(),
        asked.word()
    )))
}

/// Refuses a pool whose images would not be copied. A pool that was good a while ago is not asked again.
fn refuse_unmirrored(pool: &Pool<'_>) -> Result<()> {
    let known = &pool.memory().mirrored.0;
    let key = pool.place().key("");
    if known.contains(&key) {
        return Ok(());
    }
    let (name, spec) = (&pool.at.pool, pool.at.spec());
    let trouble = match pool.mirror_pool()? {
        MirrorScope::Nothing => {
            format!("is not mirrored: `rbd mirror pool enable {spec} image` enables it, here and at the peer")
        }
        MirrorScope::Pool => format!(
            "is mirrored as a whole, and not image by image: `rbd mirror pool enable {spec} image` changes that"
        ),
        MirrorScope::Alone => format!(
            "has no peer that it is copied to: `rbd mirror pool peer bootstrap create {name}` here, and `rbd mirror \
             pool peer bootstrap import` at the peer, make one"
        ),
        MirrorScope::Images => {
            known.remember(key, ());
            return Ok(());
        }
    };
    Err(Error::precondition(format!("{} {trouble}", pool.at)))
}

/// A clone is copied only with its parent, and only while the parent's snapshot exists: otherwise nothing
/// ever arrives, though no command says so. A flattened image needs neither.
fn settle_parent(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    parent: &Parent,
    terms: &ReplicationTerms,
) -> Result<()> {
    let Some(trouble) = trouble_with_parent(pool, parent)? else { return Ok(()) };
    if !terms.flatten {
        return Err(Error::precondition(format!(
            "volume {id} is a clone and cannot be replicated alone: {trouble}; let it be flattened first \
             (parameter flattenMode=force, or `rbd flatten`)"
        )));
    }
    // The kernel's driver would not keep the new object map.
    without_clients(pool, id, info, "flattened", |pool| renew_object_map(pool, info))?;
    flatten_volume(pool, info)
}

/// Gives a volume a new object map, which is not relied on before it is rebuilt: a volume that a node has
/// written to counts as one whose flatten was killed (see `image::clone`), as the node may have crashed. No
/// client may have the volume open. A kill in between loses the features, which only makes some commands
/// slower.
fn renew_object_map(pool: &Pool<'_>, volume: &ImageInfo) -> Result<()> {
    let map = object_map(volume);
    if map.is_empty() {
        return Ok(());
    }
    pool.disable_features(&volume.name, &map)?;
    pool.enable_features(&volume.name, &map).map(drop)
}

/// Gives a volume all its data, even one that was written to, or whose flatten was killed. A client that maps
/// it meanwhile takes turns in writing. Its object map must be new: a rebuild of an older map would not find
/// what is wrong with it.
fn flatten_volume(pool: &Pool<'_>, volume: &ImageInfo) -> Result<()> {
    pool.flatten(&volume.name)?;
    volume.parent.iter().for_each(|parent| check_parent_later(pool, parent));
    match object_map(volume).is_empty() {
        true => Ok(()),
        false => pool.rebuild_object_map(&volume.name).map(drop),
    }
}

/// Those of the features of the object map that the volume has.
fn object_map(volume: &ImageInfo) -> Vec<&'static str> {
    OBJECT_MAP.into_iter().filter(|it| volume.features.contains(*it)).collect()
}

/// Changes the features of an image that no client has open: the kernel's driver reads them when it maps.
fn without_clients(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    what: &str,
    change: impl FnOnce(&Pool<'_>) -> Result<()>,
) -> Result<()> {
    while_unpublished(
        pool,
        &info.id,
        |holders| published(id, holders, what),
        |pool| {
            refuse_watched(pool, info)?;
            change(pool)
        },
    )
}

/// Why a clone of this parent would not be copied, if so.
fn trouble_with_parent(pool: &Pool<'_>, parent: &Parent) -> Result<Option<String>> {
    let at = PoolRef { pool: parent.pool.clone(), namespace: parent.namespace.clone(), ..pool.at.clone() };
    let (there, name) = (pool.other(&at), &parent.image);
    let image = parent.id.as_deref().map_or(ImageRef::Name(name), ImageRef::Id);
    let info = there.info(image)?;
    let is_mirrored = info.and_then(|info| info.mirroring).is_some_and(|it| it.state == MirrorState::Enabled);
    if parent.in_trash || !is_mirrored {
        return Ok(Some(format!("its parent, image {name:?} in {at}, is not replicated")));
    }
    let snapshots = there.snapshots(image)?.unwrap_or_default();
    // A snapshot that was deleted has a random name.
    let is_there = snapshots.iter().any(|it| !it.trashed && it.name == parent.snapshot);
    Ok((!is_there).then(|| format!("the snapshot of {name:?} that it was cloned from was deleted")))
}

/// Writes what the other side must know of the volume. `kept` is the schedule that is written already.
fn keep(
    pool: &Pool<'_>,
    id: &VolumeId,
    info: &ImageInfo,
    terms: &ReplicationTerms,
    kept: Option<Schedule>,
) -> Result<()> {
    let found = with_record(pool, info.clone())?;
    if let Some(mut record) = found.record.filter(|record| record.first_id.is_none()) {
        record.first_id = Some(info.id.clone());
        pool.set_metadata(&info.name, RECORD_KEY, &record.text()?)?;
        pool.memory().records.remember(&pool.key_of(&id.object), &info.id, &record);
    }
    if kept != terms.schedule {
        let text = Terms::new(terms.schedule.as_ref()).text()?;
        pool.set_metadata(&info.name, REPLICATION_KEY, &text)?;
        pool.memory().schedules.0.remember(info.id.clone(), terms.schedule.clone());
    }
    Ok(())
}

/// Mirrors the image, or finds that another controller has done so meanwhile.
fn mirror(pool: &Pool<'_>, id: &VolumeId, name: &str, mode: MirroringMode) -> Result<()> {
    let Err(failure) = pool.enable_mirroring(name, mode) else { return Ok(()) };
    match existing_volume(pool, id)?.mirroring {
        Some(mirroring) if mirroring.state == MirrorState::Enabled => refuse_other_mode(id, &mirroring, mode),
        _ => Err(failure),
    }
}
