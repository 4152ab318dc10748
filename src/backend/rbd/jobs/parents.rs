//! Deleted images that are kept in the trash for their clones.
//!
//! librbd removes such a parent with the last of its clones. But where the last two are removed at once, each
//! of them may find the other's client on the parent ("image has watchers - not removing"), and then it stays
//! for ever, with all its data and without a snapshot. So whoever has removed a clone looks after its parent a
//! little later, and a job looks from time to time for those that others have left.
//!
//! Nobody can be about to clone from such a parent: `rbd clone` names its source, which an image in the trash
//! cannot be, and a clone that exists keeps a snapshot, with which an image is not purged. The purge itself,
//! by id, refuses one with snapshots or clients, and finds none that was restored meanwhile. It is this
//! daemon's work also where the image is large: the cluster's manager fails on an entry that librbd has put into
//! the trash (status 22, Ceph 16.2).

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, Removed};
use crate::error::Result;
use crate::jobs::try_each;

/// What became of a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// It is gone, or still needed.
    Settled,
    /// Nobody needs it, but a client has it open.
    Watched,
}

/// Purges a parent in the trash that has no clones any more.
pub(crate) fn purge_if_childless(pool: &Pool<'_>, image: &str) -> Result<Checked> {
    let info = pool.info(ImageRef::Id(image))?;
    let childless = info.filter(|info| info.snapshots == 0 && names::is_ours(&info.name));
    let Some(info) = childless else { return Ok(Checked::Settled) };
    match pool.purge(image)? {
        Removed::Gone => {
            log::info!("{}: purged {} ({image}), which no clone needs any more", pool.at, info.name);
            Ok(Checked::Settled)
        }
        Removed::Absent | Removed::HasSnapshots => Ok(Checked::Settled),
        Removed::Watched => Ok(Checked::Watched),
    }
}

/// Looks at every parent in the trash of a pool; one that fails keeps no other from being looked at.
pub(crate) fn purge_childless(pool: &Pool<'_>) -> Result<()> {
    let trash = pool.trash()?;
    let parents = trash.iter().filter(|it| it.by_clones && names::is_ours(&it.name));
    try_each(parents, |parent| purge_if_childless(pool, &parent.id).map(drop))
}
