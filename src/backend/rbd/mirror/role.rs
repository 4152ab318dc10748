//! What an image's part in mirroring allows.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, MirrorState, Mirroring};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Refuses to change a copy that follows an image of another cluster, or one that nobody can write to. `what`
/// is what was asked.
pub(crate) fn refuse_secondary(id: &VolumeId, info: &ImageInfo, what: &str) -> Result<()> {
    refuse_between_roles(id, info)?;
    if !info.is_secondary() {
        return Ok(());
    }
    Err(Error::precondition(format!(
        "volume {id} cannot be {what} here: it is a copy (secondary) that follows the primary volume of another \
         cluster; do it there, or promote it first (`cephlet replication promote {id}`)"
    )))
}

/// What is said of [`ImageInfo::is_between_roles`].
pub(super) fn between_roles(id: &VolumeId) -> String {
    format!(
        "a promotion or demotion of volume {id} was broken off, and nobody can write to it: promote it again \
         (`cephlet replication promote {id}`), or demote it"
    )
}

/// Refuses to change an image of which nobody knows what it was to become.
pub(super) fn refuse_between_roles(id: &VolumeId, info: &ImageInfo) -> Result<()> {
    if info.is_between_roles() { Err(Error::precondition(between_roles(id))) } else { Ok(()) }
}

/// How a volume is mirrored that is to be.
pub(crate) fn mirroring<'a>(pool: &Pool<'_>, id: &VolumeId, info: &'a ImageInfo) -> Result<&'a Mirroring> {
    match &info.mirroring {
        Some(mirroring) if mirroring.state == MirrorState::Enabled => Ok(mirroring),
        Some(_) => Err(Error::precondition(format!(
            "volume {id} is just beginning or ending to be replicated: try again, or disable it \
             (`cephlet replication disable {id}`) if that was broken off"
        ))),
        None => Err(Error::precondition(format!(
            "volume {id} ({}) is not replicated: enable it with `cephlet replication enable {id}`",
            pool.at
        ))),
    }
}
