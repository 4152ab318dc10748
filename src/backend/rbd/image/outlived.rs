//! Volumes whose deletion would free nothing, because their snapshots need the image: it would only get
//! another name.

use crate::backend::rbd::Rbd;
use crate::backend::rbd::tool::{Image, Info, Renamed, Snap, Spot};
use crate::call::Call;
use crate::error::{Error, Result};

impl Rbd {
    /// The names of an image's snapshots, without those that only clones keep; None where the image is
    /// absent.
    pub(crate) fn live_snapshots(
        &self,
        call: &Call,
        spot: &Spot,
        image: &str,
    ) -> Result<Option<Vec<String>>> {
        let snapshots = self.tool.snapshots(call, spot, Image::Id(image))?;
        let live = |all: Vec<Snap>| all.into_iter().filter(|it| !it.trashed).map(|it| it.name).collect();
        Ok(snapshots.map(live))
    }

    /// Whether an image is there and has such snapshots.
    pub(crate) fn has_live_snapshots(&self, call: &Call, spot: &Spot, image: &str) -> Result<bool> {
        Ok(self.live_snapshots(call, spot, image)?.is_some_and(|live| !live.is_empty()))
    }

    /// Takes an image back from the trash if it has snapshots: they were taken between the last look and the
    /// move, and would keep it there for good. False also for one that is not in the trash.
    pub(crate) fn restore_snapshotted(&self, call: &Call, spot: &Spot, info: &Info) -> Result<bool> {
        if !self.has_live_snapshots(call, spot, &info.id)? {
            return Ok(false);
        }
        match self.tool.restore_from_trash(call, spot, &info.id, &info.name)? {
            Renamed::Done => Ok(true),
            Renamed::Absent => Ok(false),
            Renamed::Taken => Err(Error::precondition(format!(
                "it has a new snapshot, but is in the trash of pool {:?} as {}, and another image has its \
                 name: give it a name with \
                 `rbd trash restore`",
                spot.pool, info.id
            ))),
        }
    }
}

/// The refusal of a volume whose storage its snapshots would keep.
pub(crate) fn needed_by(snapshots: &[String]) -> Error {
    Error::has_snapshots(format!(
        "its storage cannot be freed, it has the snapshots {}: delete them first",
        snapshots.join(", ")
    ))
}
