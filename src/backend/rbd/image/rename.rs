//! Images with two names. `rbd rename` makes the new name, changes the pool's directory and removes the old
//! name. A killed one leaves both: each opens the image, and the removal of either removes it. The image's
//! own name is the one that the directory has for its id; the other says only how far the renaming came.
//!
//! Renamed are copies, when they are whole, and deleted volumes whose snapshots live on.

use std::thread;
use std::time::Instant;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::create::{HOLLOW, PAUSE};
use crate::backend::rbd::locations::place_of;
use crate::backend::rbd::tool::{Image, Info, Removed, Renamed, Spot};
use crate::call::Call;
use crate::error::{Error, Result};

impl Rbd {
    /// The image of this name, if the name is its own.
    pub(crate) fn named(&self, call: &Call, spot: &Spot, name: &str) -> Result<Option<Info>> {
        match self.tool.info(call, spot, Image::Named(name))? {
            Some(info) if self.may_be_renamed(spot, &info) => {
                Ok(self.is_own_name(call, spot, &info)?.then_some(info))
            }
            found => Ok(found),
        }
    }

    /// Whether the image may be one that was renamed: one with snapshots, or a copy, unless it was seen whole
    /// before.
    fn may_be_renamed(&self, spot: &Spot, info: &Info) -> bool {
        let is_known = || self.records.of(&place_of(spot).key(&info.name), &info.id).is_some();
        info.snapshots > 0 || (info.parent.is_some() && !is_known())
    }

    /// Removes a copy that was not finished. One that a killed renaming has made a volume loses its former
    /// name only.
    pub(crate) fn remove_copy(&self, call: &Call, spot: &Spot, temporary: &str) -> Result<Removed> {
        match self.tool.info(call, spot, Image::Named(temporary))? {
            Some(info) if !self.is_own_name(call, spot, &info)? => Ok(Removed::Gone),
            _ => self.tool.remove(call, spot, temporary),
        }
    }

    /// Gives an image another name that nobody else gives away, also where an earlier attempt was killed.
    pub(crate) fn rename_again(&self, call: &Call, spot: &Spot, info: &Info, name: &str) -> Result<Renamed> {
        let renamed = self.tool.rename(call, spot, &info.name, name)?;
        let taken_by =
            if renamed == Renamed::Taken { self.tool.info(call, spot, Image::Named(name))? } else { None };
        match taken_by {
            Some(taken) if taken.id == info.id && self.is_own_name(call, spot, &taken)? => {
                self.remove_second_name(call, spot, info)?;
                Ok(Renamed::Done)
            }
            Some(taken) if taken.id == info.id => self.tool.rename(call, spot, &info.name, name),
            _ => Ok(renamed),
        }
    }

    /// Whether the image has the name by which it was found. Another is removed, once it is certain that
    /// nobody is renaming.
    fn is_own_name(&self, call: &Call, spot: &Spot, info: &Info) -> Result<bool> {
        let until = Instant::now() + HOLLOW;
        loop {
            match self.tool.info(call, spot, Image::Id(&info.id))? {
                Some(now) if now.name != info.name => {}
                _ => return Ok(true),
            }
            if call.expired() {
                return Err(Error::unavailable(format!(
                    "image {:?} is being renamed at this moment: try again",
                    info.name
                )));
            }
            if Instant::now() >= until {
                self.remove_second_name(call, spot, info)?;
                return Ok(false);
            }
            call.step(format!("waiting until it is certain that nobody renames image {}", info.name));
            thread::sleep(PAUSE);
        }
    }

    /// Removes a name of an image that is not its own, unless it means another by now.
    fn remove_second_name(&self, call: &Call, spot: &Spot, info: &Info) -> Result<()> {
        match self.tool.info(call, spot, Image::Named(&info.name))? {
            Some(now) if now.id == info.id => {
                log::warn!(
                    "pool {:?}: {} is what a killed renaming left of image {}: it goes",
                    spot.pool,
                    info.name,
                    info.id
                );
                self.tool.remove_name(call, spot, &info.name)
            }
            _ => Ok(()),
        }
    }
}
