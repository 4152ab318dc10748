//! Large images, whose removal takes too long for a call: they are moved to the trash, and purged by the
//! cluster's manager, or by this daemon if there is none.
//!
//! Another controller may take a snapshot between the look at an image and its move. Nobody purges an image
//! with snapshots, but they cannot be used in the trash either. So the image is looked at again, beside the
//! call, and one with snapshots is taken back and held for them. What the daemon did not live to look at the
//! next start's sweep looks at.

use std::time::Duration;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::deletion_lock::Right;
use crate::backend::rbd::image::temporaries::{held_id, held_name};
use crate::backend::rbd::jobs::RETRY;
use crate::backend::rbd::names::COPY;
use crate::backend::rbd::snapshot::OBJECT;
use crate::backend::rbd::tool::{Changed, Handed, Info, Removed, Renamed, Spot};
use crate::call::Call;
use crate::error::{Error, Result};

/// Images with more bytes are not removed while a call waits: that is 1024 objects of the usual 4 MiB.
pub(crate) const LARGE: u64 = 4 << 30;

impl Rbd {
    /// Moves an image to the trash and sees to its purge. The purge is by id and tells whether the image is
    /// in the trash: if it is not, another was moved in its place, and is taken back. False if the image was
    /// taken back, as it has snapshots by now.
    pub(crate) fn move_aside(&self, call: &Call, spot: &Spot, info: &Info, right: Right) -> Result<bool> {
        // The trash takes images that are in use.
        self.refuse_watched(call, spot, &info.name)?;
        right.check()?;
        let moved = self.tool.move_to_trash(call, spot, &info.name)?;
        if !right.snapshots_may_outlive && self.restore_snapshotted(call, spot, info)? {
            return Ok(false);
        }
        match (self.purge_soon(call, spot, &info.id, &info.name)?, moved) {
            // Also if it was moved before, by an attempt that died.
            (true, _) => Ok(true),
            (false, Changed::Done) => self.restore_moved(call, spot, &info.name, &info.id).map(|()| true),
            (false, Changed::Absent) => {
                Err(Error::unavailable(format!("image {:?} is gone at this moment: try again", info.name)))
            }
        }
    }

    /// Has an image in the trash, which has this name there, purged by whoever can. False if it is not in the
    /// trash.
    pub(crate) fn purge_soon(&self, call: &Call, spot: &Spot, image: &str, name: &str) -> Result<bool> {
        match self.tool.purge_by_manager(call, spot, image)? {
            Handed::Over => {
                self.chores.look_for_snapshots(spot, image, name);
                Ok(true)
            }
            Handed::Absent => Ok(false),
            Handed::NoManager => {
                let there = self.is_trashed(call, spot, image)?;
                if there {
                    self.chores.purge(spot, image, name);
                }
                Ok(there)
            }
        }
    }

    /// Purges an image in the trash. Tells when to try again, if it has to be.
    pub(crate) fn purge_now(
        &self,
        call: &Call,
        spot: &Spot,
        image: &str,
        name: &str,
    ) -> Result<Option<Duration>> {
        match self.tool.purge(call, spot, image)? {
            Removed::Gone | Removed::Absent => Ok(None),
            Removed::Watched => {
                Err(Error::unavailable("it is in use, or its purge was broken off a moment ago"))
            }
            Removed::HasSnapshots => Ok((!self.take_back(call, spot, image, name)?).then_some(RETRY)),
        }
    }

    /// Takes an image in the trash back if it has snapshots that live, and holds it for them. False if it
    /// stays there.
    pub(crate) fn take_back(&self, call: &Call, spot: &Spot, image: &str, name: &str) -> Result<bool> {
        let Some(live) = self.live_snapshots(call, spot, image)? else { return Ok(true) };
        if live.iter().all(|name| name.starts_with(COPY)) {
            self.remove_copies(call, spot, image, &live)?;
            return Ok(false);
        }
        let held = held_name(image);
        match self.tool.restore_from_trash(call, spot, image, &held)? {
            Renamed::Done => {
                log::warn!(
                    "image {name:?} of pool {:?} got a snapshot while it was deleted: it is {held:?}",
                    spot.pool
                )
            }
            // By an attempt that came no further; or by an operator, whose image it is then.
            Renamed::Absent => {}
            Renamed::Taken => {
                let rest = "look at that image and remove it";
                return Err(Error::precondition(format!(
                    "its snapshots live, but the name {held:?} is taken: {rest}"
                )));
            }
        }
        if held_id(name).is_none() {
            self.tool.set_metadata(call, spot, &held, OBJECT, name)?;
        }
        self.give_right_back(call, spot, image);
        // The last of them may be deleted since.
        self.release_held(call, spot, image).map(|()| true)
    }

    /// Whether the trash has the image, and not for its clones.
    pub(crate) fn is_trashed(&self, call: &Call, spot: &Spot, image: &str) -> Result<bool> {
        let trash = self.tool.trash(call, spot)?;
        Ok(trash.iter().any(|it| it.id == image && !it.by_clones))
    }

    /// Restores what was moved to the trash in place of the image `meant`.
    fn restore_moved(&self, call: &Call, spot: &Spot, name: &str, meant: &str) -> Result<()> {
        let trash = self.tool.trash(call, spot)?;
        let Some(wrong) = trash.iter().find(|it| it.name == name && it.id != meant && !it.by_clones) else {
            return Ok(());
        };
        let restored = self.tool.restore_from_trash(call, spot, &wrong.id, name)?;
        log::warn!(
            "image {name:?} of pool {:?} was replaced while it was deleted; id {}: {restored:?}",
            spot.pool,
            wrong.id
        );
        Err(Error::unavailable(format!("image {name:?} was replaced by another at this moment: try again")))
    }
}
