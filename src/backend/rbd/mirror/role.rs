//! What an image's role in mirroring allows.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, MirrorState, MirrorStatus, Mirroring, Replay, SiteStatus};
use crate::error::{Error, Result};
use crate::ids::VolumeId;

/// Refuses to change a copy that follows an image of another cluster, or an image between two roles. `what`
/// is the requested change.
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

/// Refuses to delete a copy: the rbd-mirror here removes it with its primary. The error says what to wait
/// for, and what to do if the primary is gone.
pub(crate) fn refuse_to_delete_copy(pool: &Pool<'_>, id: &VolumeId, info: &ImageInfo) -> Result<()> {
    refuse_between_roles(id, info)?;
    if !info.is_secondary() {
        return Ok(());
    }
    let status = pool.mirror_status(&info.name)?;
    let awaited = match &status {
        Some(status) if follows(status) => String::from(
            "delete that volume there, or disable its replication there; then the rbd-mirror here removes the copy",
        ),
        _ => {
            let is_silent = status.is_none_or(|status| !status.own.is_up);
            let sign = if is_silent { ", which gives no sign of life now" } else { "" };
            format!(
                "the other cluster does not have it as its primary volume any more, or is lost: if it was deleted \
                 there, or its replication disabled, the rbd-mirror here{sign} removes the copy as soon as it hears \
                 of that; if it never will, make the copy a volume of its own (`cephlet replication disable {id} \
                 --force`) and delete it then"
            )
        }
    };
    Err(Error::precondition(format!(
        "volume {id} cannot be deleted here: it is a copy (secondary) of the primary volume of another cluster: \
         {awaited}"
    )))
}

/// Whether a copy follows an image that is primary at another site.
pub(super) fn follows(status: &MirrorStatus) -> bool {
    status.own.replay != Replay::Error && status.peers.iter().any(SiteStatus::is_primary)
}

/// The message for an image with [`ImageInfo::is_between_roles`].
pub(super) fn between_roles(id: &VolumeId) -> String {
    format!(
        "a promotion or demotion of volume {id} was broken off, and nobody can write to it: promote it again \
         (`cephlet replication promote {id}`), or demote it"
    )
}

/// Refuses to change an image whose intended role is unknown.
pub(super) fn refuse_between_roles(id: &VolumeId, info: &ImageInfo) -> Result<()> {
    if info.is_between_roles() { Err(Error::precondition(between_roles(id))) } else { Ok(()) }
}

/// How a volume is mirrored; an error if it is not.
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
