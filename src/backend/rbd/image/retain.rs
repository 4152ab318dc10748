//! Deleted volumes whose snapshots live on. Snapshots cannot be used while their image is in the trash, so
//! the image keeps existing under another name, `csi-held-<id>`, until the last of them is deleted.

use std::thread;
use std::time::Duration;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::delete::in_use;
use crate::backend::rbd::image::deletion_lock::Right;
use crate::backend::rbd::image::temporaries::held_name;
use crate::backend::rbd::names::COPY;
use crate::backend::rbd::snapshot::OBJECT;
use crate::backend::rbd::tool::{Image, Info, Renamed, Spot, Watcher};
use crate::call::Call;
use crate::error::{Error, Result};

/// How often a watcher must be seen again, and with what pause, to count.
const LOOKS: usize = 2;
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 700 });

impl Rbd {
    /// Gives an image with snapshots the name of a held one. The name is looked up again afterwards: rename
    /// takes what has the old name, whatever that is by then, and even what is in use.
    pub(crate) fn hold(&self, call: &Call, spot: &Spot, info: &Info, right: Right) -> Result<()> {
        let Info { name, id, .. } = info;
        self.refuse_watched(call, spot, name)?;
        right.check()?;
        self.tool.set_metadata(call, spot, name, OBJECT, name)?;
        let held = held_name(id);
        match self.rename_again(call, spot, info, &held)? {
            Renamed::Done => {}
            Renamed::Absent => {
                return Err(Error::unavailable(format!("image {name:?} is gone at this moment: try again")));
            }
            Renamed::Taken => {
                return Err(Error::precondition(format!(
                    "it has snapshots, and the name {held:?} that would keep them is taken: look at that \
                     image and remove it"
                )));
            }
        }
        let hit = self.tool.info(call, spot, Image::Named(&held))?.map(|info| info.id);
        if hit.as_ref() == Some(id) {
            self.give_right_back(call, spot, id);
            return Ok(());
        }
        self.tool.rename(call, spot, &held, name)?;
        Err(Error::unavailable(format!("image {name:?} was replaced by another at this moment: try again")))
    }

    /// Called when a snapshot of a deleted volume is deleted: removes the image if that was the last one.
    pub(crate) fn release_held(&self, call: &Call, spot: &Spot, image: &str) -> Result<()> {
        match self.tool.info(call, spot, Image::Id(image))? {
            Some(info) if info.name == held_name(image) => self.dispose(call, spot, info, Right::unneeded()),
            _ => Ok(()),
        }
    }

    /// Removes the snapshots that killed copies left, from which their clones read on. Whether there were
    /// any.
    pub(crate) fn remove_copies(
        &self,
        call: &Call,
        spot: &Spot,
        image: &str,
        live: &[String],
    ) -> Result<bool> {
        let copies: Vec<&String> = live.iter().filter(|name| name.starts_with(COPY)).collect();
        for name in &copies {
            self.tool.remove_snapshot(call, spot, Image::Id(image), name)?;
        }
        Ok(!copies.is_empty())
    }

    pub(crate) fn refuse_watched(&self, call: &Call, spot: &Spot, name: &str) -> Result<()> {
        let watchers = self.staying_watchers(call, spot, name)?;
        if watchers.is_empty() { Ok(()) } else { Err(in_use(name, &watchers)) }
    }

    /// Who has the image open for longer than a command does: another controller that reads the record of the
    /// image or takes a snapshot counts as a watcher too, for a moment.
    pub(crate) fn staying_watchers(&self, call: &Call, spot: &Spot, name: &str) -> Result<Vec<Watcher>> {
        let mut staying = self.tool.watchers(call, spot, name)?.unwrap_or_default();
        for _ in 0..LOOKS {
            if staying.is_empty() || call.expired() {
                break;
            }
            thread::sleep(PAUSE);
            let now = self.tool.watchers(call, spot, name)?.unwrap_or_default();
            staying.retain(|watcher| now.iter().any(|it| it.address == watcher.address));
        }
        Ok(staying)
    }
}
