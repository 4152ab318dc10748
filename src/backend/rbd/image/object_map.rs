//! The object map of an image that is flattened.
//!
//! `rbd flatten` passes over every object that exists by the map. But the map is changed before an object is
//! written: where the writer dies in between (a flatten that is killed, a node that crashes), the object's
//! data are in the parent only. A later flatten passes it over all the same, and with the parent its data are
//! gone, without a word (Ceph 16.2: after nearly every kill). Rebuilding the map does not find such objects.
//!
//! A map that is made anew is marked as invalid, and then nothing relies on it. So that comes before every
//! flatten, and the map is rebuilt when there is no parent any more.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::ImageInfo;
use crate::error::Result;

/// The features that are the object map.
const FEATURES: [&str; 2] = ["object-map", "fast-diff"];
/// How `rbd info` says that a map is not relied on.
const INVALID: &str = "object map invalid";

/// The features of an image that are its object map.
pub(crate) fn features(info: &ImageInfo) -> Vec<&'static str> {
    FEATURES.into_iter().filter(|feature| info.features.contains(*feature)).collect()
}

/// Has the object map of an image marked as invalid. `former` are the features before the first attempt: one
/// that was killed may have taken them away only.
pub(crate) fn invalidate(pool: &Pool<'_>, info: &ImageInfo, former: &[&str]) -> Result<()> {
    if former.is_empty() || info.flags.contains(INVALID) {
        return Ok(());
    }
    let present = features(info);
    if !present.is_empty() {
        pool.disable_features(&info.name, &present)?;
    }
    pool.enable_features(&info.name, former).map(drop)
}

/// Whether somebody may be flattening the image: its map is invalid meanwhile.
pub(crate) fn may_be_flattened(info: &ImageInfo) -> bool {
    info.parent.is_some() && info.flags.contains(INVALID)
}

/// Makes the object map of an image without a parent right again. One that stays invalid is only slower.
pub(crate) fn rebuild(pool: &Pool<'_>, image: &str, former: &[&str]) -> Result<()> {
    if former.is_empty() { Ok(()) } else { pool.rebuild_object_map(image).map(drop) }
}
