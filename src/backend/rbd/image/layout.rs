//! The layout of new images. Each is created with explicit values for everything that an option of the pool
//! or the cluster could change. If the request leaves something open, the value is:
//!
//! | | a new image | a copy |
//! |---|---|---|
//! | features | `rbd_default_features`, with those that every volume needs | the same |
//! | data pool | `rbd_default_data_pool` | the same |
//! | object size, stripes | 4 MiB, none | its parent's, which no option changes |

use std::collections::BTreeSet;

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{DEFAULT_OBJECT_SIZE, EXCLUSIVE_LOCK, Layout, PoolOptions};
use crate::error::Result;
use crate::ids::VolumeId;

/// Without `layering` there are no clones, without the exclusive lock no writers.
const NEEDED: [&str; 2] = ["layering", EXCLUSIVE_LOCK];

/// The layout of a new image.
pub(crate) fn of_new(pool: &Pool<'_>, asked: &Layout) -> Result<Layout> {
    let object_size = asked.object_size.unwrap_or(DEFAULT_OBJECT_SIZE);
    let layout = of_copy(pool, asked)?;
    let striping = layout.striping.or(Some((object_size, 1)));
    Ok(Layout { object_size: Some(object_size), striping, ..layout })
}

/// The layout of a clone.
pub(crate) fn of_copy(pool: &Pool<'_>, asked: &Layout) -> Result<Layout> {
    let PoolOptions { mut features, data_pool, .. } = pool.options()?;
    features.extend(NEEDED.map(str::to_string));
    Ok(Layout {
        features: asked.features.clone().or(Some(features)),
        is_default_data_pool: asked.data_pool.is_none(),
        data_pool: asked.data_pool.clone().or(data_pool),
        ..asked.clone()
    })
}

/// Why an image with these features is not given to a writer.
pub(crate) fn why_read_only(id: &VolumeId, features: &BTreeSet<String>) -> Option<String> {
    if features.contains(EXCLUSIVE_LOCK) {
        return None;
    }
    let path = [&id.place.pool, &id.place.namespace, &id.object].map(String::as_str);
    let path = path.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    Some(format!(
        "volume {id} cannot be written to: its image lacks the feature {EXCLUSIVE_LOCK}, without which the \
         cluster cannot keep a second writer out: run `rbd feature enable {path} {EXCLUSIVE_LOCK}` while the image \
         is not in use, or publish the volume for reading only"
    ))
}
