//! Chains of clones, kept short and within a domain. A clone reads what it does not have itself from its
//! parent, and that one from its own: each link costs time, and the kernel follows sixteen. A copy that would
//! have more than [`MAX_PARENTS`], or that is to be where its source is not, is given all its data while it
//! is made, under its temporary name: nobody has a right to it yet, so it gives way to nobody.
//!
//! A flatten that was killed is never repeated over what it has done. `rbd flatten` passes over every object
//! of which the object map says that it exists, and the map is changed before the object is written: after
//! nearly every kill a second flatten loses data with the parent, without a word (Ceph 16.2). The copy is
//! removed and begun again. What a node has written to is like what was killed, as the node may have crashed:
//! it is flattened with a map that nothing relies on.

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::parent::check_parent_later;
use crate::backend::rbd::tool::{Changed, ImageInfo, ImageRef, Parent};
use crate::error::Result;

/// The features that are an image's object map.
const OBJECT_MAP: [&str; 2] = ["object-map", "fast-diff"];

/// So many parents an image may have, one behind the other.
pub(crate) const MAX_PARENTS: usize = 8;

/// How many parents an image has, or had when they were counted. One process for each link that is not known
/// yet.
pub(crate) fn count_parents(pool: &Pool<'_>, image: &ImageInfo) -> Result<usize> {
    let counts = &pool.memory().parent_counts;
    let (mut unknown, mut link) = (Vec::new(), image.clone());
    let mut next = loop {
        if let Some(known) = counts.get(&link.id) {
            break known + 1;
        }
        unknown.push(link.id);
        let Some(Parent { pool: name, namespace, id: Some(id), .. }) = link.parent else { break 0 };
        let at = PoolRef { access: pool.at.access.clone(), pool: name, namespace };
        let Some(parent) = pool.other(&at).info(ImageRef::Id(&id))? else { break 1 };
        link = parent;
    };
    for id in unknown.into_iter().rev() {
        counts.remember(id, next);
        next += 1;
    }
    Ok(next - 1)
}

/// Gives a copy that is being made all its data. It then goes on to its end also for a client that gives up,
/// whose repeated request waits for it, or finds it. The call is no worker meanwhile: how many copies are
/// flattened at once is limited as other commands without a deadline are.
pub(crate) fn flatten(pool: &Pool<'_>, copy: &ImageInfo, why: &str) -> Result<Changed> {
    log::info!("{}: flattening {}, as {why}", pool.at, copy.name);
    pool.call.ignore_deadline();
    let flattened = pool.call.rest(|| pool.flatten(&copy.name));
    // Also of one that failed: it may be killed between the parent and the rest.
    copy.parent.iter().for_each(|parent| check_parent_later(pool, parent));
    flattened
}

/// Gives a volume a new object map, which is not relied on before it is rebuilt. Nobody may have the volume
/// open. Killed in between it has lost the features, which only makes some commands slower.
pub(crate) fn renew_object_map(pool: &Pool<'_>, volume: &ImageInfo) -> Result<()> {
    let map = object_map(volume);
    if map.is_empty() {
        return Ok(());
    }
    pool.disable_features(&volume.name, &map)?;
    pool.enable_features(&volume.name, &map).map(drop)
}

/// Gives a volume all its data, also one that was written to, or whose flatten was killed; who maps it
/// meanwhile writes to it in turn. Its object map must be new: to rebuild an older one would not find what is
/// wrong with it.
pub(crate) fn flatten_volume(pool: &Pool<'_>, volume: &ImageInfo) -> Result<()> {
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
