//! The source of a clone.

use crate::backend::Origin;
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::chain::{MAX_PARENTS, count_parents};
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::spec::CreateSpec;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::limit;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Parent};
use crate::error::{Error, Result};
use crate::ids::{SnapshotId, VolumeId};

/// A snapshot of an image.
pub(crate) struct CloneSource {
    pub at: PoolRef,
    /// The image's name.
    pub image: String,
    /// Its id.
    pub id: String,
    pub snapshot: String,
    /// How many parents the image has.
    pub parents: usize,
    /// The snapshot is taken for this copy only.
    pub is_transient: bool,
    /// It is not in the pool that topology chose for the copy.
    pub is_elsewhere: bool,
}

impl CloneSource {
    /// Why a copy of it must be flattened while it is made, if so.
    pub fn why_whole(&self) -> Option<String> {
        let is_at_end = self.parents >= MAX_PARENTS;
        let why = || format!("it would have more than {MAX_PARENTS} parents");
        let where_from = || format!("it is in another domain than its source in pool {:?}", self.at.pool);
        is_at_end.then(why).or_else(|| self.is_elsewhere.then(where_from))
    }

    /// Whether an image is a clone of this. By now a transient snapshot is in the trash, where it has another
    /// name.
    pub fn is_parent_of(&self, clone: &ImageInfo) -> bool {
        let is_this = |parent: &Parent| {
            parent.id.as_ref() == Some(&self.id) && (self.is_transient || parent.snapshot == self.snapshot)
        };
        clone.parent.as_ref().is_some_and(is_this)
    }
}

/// Finds the image and counts its parents. `temporary` is the name of the copy while it is made.
pub(crate) fn find_source(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    origin: &Origin,
    temporary: &str,
) -> Result<CloneSource> {
    let at = locate(pool, spec, origin)?;
    let there = pool.other(&at);
    let (info, snapshot) = match origin {
        Origin::Snapshot(id) => (image_of(&there, id, origin)?, names::snapshot(&id.snapshot)),
        Origin::Volume(id) => (volume_to_copy(&there, id)?, names::transient(temporary)),
    };
    let parents = count_parents(&there, &info)?;
    let is_transient = matches!(origin, Origin::Volume(_));
    let is_elsewhere = spec.record.placed.is_some() && at.pool != pool.at.pool;
    drop(there);
    Ok(CloneSource { at, image: info.name, id: info.id, snapshot, parents, is_transient, is_elsewhere })
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

fn image_of(pool: &Pool<'_>, id: &SnapshotId, origin: &Origin) -> Result<ImageInfo> {
    pool.info(ImageRef::Id(&id.source))?.ok_or_else(|| no_source(origin))
}

fn volume_to_copy(pool: &Pool<'_>, id: &VolumeId) -> Result<ImageInfo> {
    let info = existing_volume(pool, id).map_err(|error| error.context("the content source"))?;
    match limit::is_full(&info) {
        true => Err(limit::full(pool, &info).context("the content source")),
        false => Ok(info),
    }
}

/// The refusal of a source that does not exist.
pub(crate) fn no_source(origin: &Origin) -> Error {
    let what = match origin {
        Origin::Snapshot(id) => format!("snapshot {id}"),
        Origin::Volume(id) => format!("volume {id}"),
    };
    Error::not_found(format!("{what}, the content source, does not exist: check the ID"))
}
