//! The source of a clone.
//!
//! A clone reads what it lacks from its parent, and the parent from its own parent. Each link of this chain
//! costs time, and the kernel follows sixteen. So a copy that would have more than [`MAX_PARENTS`], or that
//! is in another domain than its source, is given all its data while it is made, under its temporary name: no
//! caller has a right to it yet, so it gives way to no client.

use crate::backend::Origin;
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::image::spec::CreateSpec;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::limit::refuse_full;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Parent};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// How many parents an image may have, one behind the other.
pub(crate) const MAX_PARENTS: usize = 8;

/// A snapshot of an image.
pub(crate) struct CloneSource {
    pub at: PoolRef,
    /// The image's name.
    pub image: String,
    /// Its id.
    pub id: String,
    pub snapshot: String,
    /// The snapshot is taken for this copy only.
    pub is_transient: bool,
    /// Why a copy of it must be flattened while it is made, if so.
    pub why_whole: Option<String>,
}

impl CloneSource {
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
    let new = &spec.new.place;
    let place = match origin {
        Origin::Snapshot(id) => &id.place,
        Origin::Volume(id) => &id.place,
    };
    let cluster = pool.context.clusters.canonical(&place.cluster);
    if place.backend != new.backend || cluster != pool.at.access.cluster.name {
        return Err(Error::invalid(format!(
            "the source is on {:?} of backend {:?}, the volume would be on {:?}: a copy stays in its source's \
             cluster",
            place.cluster, place.backend, new.cluster
        )));
    }
    let at = pool.context.locate(place, &spec.new.secrets)?;
    let there = pool.other(&at);
    let (info, snapshot) = match origin {
        Origin::Snapshot(id) => {
            let image = there.info(ImageRef::Id(&id.source))?;
            (image.ok_or_else(|| no_source(origin))?, names::snapshot(&id.snapshot))
        }
        Origin::Volume(id) => (volume_to_copy(&there, id)?, names::transient(temporary)),
    };
    let why_whole = match count_parents(&there, &info)? {
        MAX_PARENTS.. => Some(format!("it would have more than {MAX_PARENTS} parents")),
        _ if spec.record.placed.is_some() && at.pool != pool.at.pool => {
            Some(format!("it is in another domain than its source in pool {:?}", at.pool))
        }
        _ => None,
    };
    let is_transient = matches!(origin, Origin::Volume(_));
    drop(there);
    Ok(CloneSource { at, image: info.name, id: info.id, snapshot, is_transient, why_whole })
}

fn volume_to_copy(pool: &Pool<'_>, id: &VolumeId) -> Result<ImageInfo> {
    let found = existing_volume(pool, id).and_then(|info| refuse_full(pool, &info).map(|()| info));
    found.map_err(|error| error.context("the content source"))
}

/// How many parents an image has, one behind the other. One process for each parent.
fn count_parents(pool: &Pool<'_>, image: &ImageInfo) -> Result<usize> {
    let (mut count, mut next) = (0, image.parent.clone());
    while let Some(Parent { pool: name, namespace, id, .. }) = next {
        count += 1;
        let Some(id) = id else { break };
        let at = PoolRef { access: pool.at.access.clone(), pool: name, namespace };
        next = pool.other(&at).info(ImageRef::Id(&id))?.and_then(|parent| parent.parent);
    }
    Ok(count)
}

/// The refusal of a source that does not exist.
pub(crate) fn no_source(origin: &Origin) -> Error {
    let what = match origin {
        Origin::Snapshot(id) => format!("snapshot {id}"),
        Origin::Volume(id) => format!("volume {id}"),
    };
    Error::not_found(format!("{what}, the content source, does not exist: check the ID"))
}
