//! Chains of clones, kept short and within a domain. A clone reads what it lacks from its parent, and the
//! parent from its own parent. Each link costs time, and the kernel follows sixteen. A copy that would have
//! more than [`MAX_PARENTS`], or that is in another domain than its source, is given all its data while it is
//! made, under its temporary name: no caller has a right to it yet, so it gives way to no client.
//!
//! A killed flatten is never repeated on the same copy. `rbd flatten` skips every object that exists
//! according to the object map, and the map is changed before the object is written. So after nearly every
//! kill, a second flatten silently loses data when it removes the parent (Ceph 16.2). The copy is removed and
//! begun again. A volume that a node has written to counts as killed too, as the node may have crashed: it is
//! flattened with a map that nothing relies on.

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::parent::check_parent_later;
use crate::backend::rbd::tool::{Changed, ImageInfo, ImageRef, Parent};
use crate::error::Result;

/// The features that make up an image's object map.
const OBJECT_MAP: [&str; 2] = ["object-map", "fast-diff"];

/// How many parents an image may have, one behind the other.
pub(crate) const MAX_PARENTS: usize = 8;

/// How many parents an image has, one behind the other. One process for each parent.
pub(crate) fn count_parents(pool: &Pool<'_>, image: &ImageInfo) -> Result<usize> {
    let (mut count, mut next) = (0, image.parent.clone());
    while let Some(Parent { pool: name, namespace, id, .. }) = next {
        count += 1;
        let Some(id) = id else { break };
        let at = PoolRef { access: pool.at.access.clone(), pool: name, namespace };
        next = pool.other(&at).info(ImageRef::Id(&id))?.and_then(|parent| parent.parent);
    }
    Ok(count)
}

/// Gives a copy that is being made all its data. The call then continues even if its client gives up: a
/// repeated request waits for the copy, or finds it. Meanwhile the call occupies no worker: the limit on
/// concurrent flattens is that of other commands without a deadline.
pub(crate) fn flatten(pool: &Pool<'_>, copy: &ImageInfo, why: &str) -> Result<Changed> {
    log::info!("{}: flattening {}, as {why}", pool.at, copy.name);
    pool.call.ignore_deadline();
    let flattened = pool.call.rest(|| pool.flatten(&copy.name));
    // Also after a failure: the command may have been killed between the parent and the rest.
    copy.parent.iter().for_each(|parent| check_parent_later(pool, parent));
    flattened
}

/// Gives a volume a new object map, which is not relied on before it is rebuilt. No client may have the
/// volume open. A kill in between loses the features, which only makes some commands slower.
pub(crate) fn renew_object_map(pool: &Pool<'_>, volume: &ImageInfo) -> Result<()> {
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
