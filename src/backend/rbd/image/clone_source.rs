//! The source of a clone.

use crate::backend::Origin;
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::chain::{MAX_PARENTS, count_parents};
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::spec::CreateSpec;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::limit;
use crate::backend::rbd::tool::{ImageInfo, ImageRef};
use crate::error::{Error, Result};
use crate::ids::{SnapshotId, VolumeId};

/// A snapshot of an image.
pub(crate) struct CloneSource {
    pub at: PoolRef,
    /// The image's name, as far as is known.
    pub image: String,
    /// Its id.
    pub id: String,
    pub snapshot: String,
    /// How many parents the image has, at most.
    pub parents: usize,
    /// The snapshot is taken for this copy only.
    pub is_transient: bool,
    /// The image's name was remembered, not asked for.
    pub is_cached_name: bool,
    /// It is not in the pool that topology chose for the copy.
    pub is_elsewhere: bool,
}

/// Why an image is no clone of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// It has no parent.
    NoParent,
    /// It reads from another image or snapshot.
    OtherParent,
}

impl CloneSource {
    /// Why a copy of it must be flattened while it is made, if so.
    pub fn why_whole(&self) -> Option<String> {
        let is_at_end = self.parents >= MAX_PARENTS;
        let why = || format!("it would have more than {MAX_PARENTS} parents");
        let where_from = || format!("it is in another domain than its source in pool {:?}", self.at.pool);
        is_at_end.then(why).or_else(|| self.is_elsewhere.then(where_from))
    }

    /// Why an image is no clone of this, if so. By now a transient snapshot is in the trash, where it has
    /// another name.
    pub fn mismatch(&self, clone: &ImageInfo) -> Option<Mismatch> {
        let Some(parent) = &clone.parent else { return Some(Mismatch::NoParent) };
        let is_same_image = parent.id.as_ref() == Some(&self.id);
        let is_same_name = self.is_transient || parent.snapshot == self.snapshot;
        (!is_same_image || !is_same_name).then_some(Mismatch::OtherParent)
    }
}

/// Finds the image, by a remembered name if `may_guess`: that saves a query, and if the name is out of date,
/// the clone's parent shows it. `temporary` is the name of the copy while it is made.
pub(crate) fn find_source(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    origin: &Origin,
    temporary: &str,
    may_guess: bool,
) -> Result<CloneSource> {
    let at = locate(pool, spec, origin)?;
    let there = pool.other(&at);
    let source = match origin {
        Origin::Snapshot(id) => from_snapshot(&there, id, may_guess),
        Origin::Volume(id) => from_volume(&there, id, temporary),
    };
    let is_elsewhere = spec.record.placed.is_some() && at.pool != pool.at.pool;
    Ok(CloneSource { is_elsewhere, ..source? })
}

fn locate(pool: &Pool<'_>, spec: &CreateSpec<'_>, origin: &Origin) -> Result<PoolRef> {
    let new = &spec.new.place;
    let place = match origin {
        Origin::Snapshot(id) => &id.place,
        Origin::Volume(id) => &id.place,
    };
    let canonical = |place| pool.context.canonical(place).cluster;
    if place.backend != new.backend || canonical(place) != canonical(new) {
        return Err(Error::invalid(format!(
            "the source is on {:?} of backend {:?}, the volume would be on {:?}: a copy stays in its source's \
             cluster",
            place.cluster, place.backend, new.cluster
        )));
    }
    pool.context.locate(place, &spec.new.secrets)
}

fn from_snapshot(pool: &Pool<'_>, asked: &SnapshotId, may_guess: bool) -> Result<CloneSource> {
    let remembered = if may_guess { last_known(pool, asked) } else { None };
    let is_cached_name = remembered.is_some();
    let (image, parents) = match remembered {
        Some(known) => known,
        None => {
            let info = pool.info(ImageRef::Id(&asked.source))?;
            let info = info.ok_or_else(|| no_source(&Origin::Snapshot(asked.clone())))?;
            let parents = count_parents(pool, &info)?;
            (info.name, parents)
        }
    };
    let (at, id, snapshot) = (pool.at.clone(), asked.source.clone(), names::snapshot(&asked.snapshot));
    let (is_transient, is_elsewhere) = (false, false);
    Ok(CloneSource { at, image, id, snapshot, parents, is_transient, is_cached_name, is_elsewhere })
}

/// The name of the image, and the number of its parents, a while ago.
fn last_known(pool: &Pool<'_>, id: &SnapshotId) -> Option<(String, usize)> {
    let memory = pool.memory();
    Some((memory.records.name_of(&id.place, &id.source)?, memory.parent_counts.get(&id.source)?))
}

fn from_volume(pool: &Pool<'_>, id: &VolumeId, temporary: &str) -> Result<CloneSource> {
    let info = existing_volume(pool, id).map_err(|error| error.context("the content source"))?;
    if limit::is_full(&info) {
        return Err(limit::full(pool, &info).context("the content source"));
    }
    let parents = count_parents(pool, &info)?;
    let (at, snapshot) = (pool.at.clone(), names::transient(temporary));
    let (image, id) = (info.name, info.id);
    let (is_transient, is_cached_name, is_elsewhere) = (true, false, false);
    Ok(CloneSource { at, image, id, snapshot, parents, is_transient, is_cached_name, is_elsewhere })
}

/// The refusal of a source that does not exist.
pub(crate) fn no_source(origin: &Origin) -> Error {
    let what = match origin {
        Origin::Snapshot(id) => format!("snapshot {id}"),
        Origin::Volume(id) => format!("volume {id}"),
    };
    Error::not_found(format!("{what}, the content source, does not exist: check the ID"))
}
