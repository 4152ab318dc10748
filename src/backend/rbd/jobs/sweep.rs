//! Sweeping up after a crash: copies that nobody finishes, volumes held for snapshots that are gone, deleted
//! volumes that wait in the trash. Only images with names that cephlet gives are touched.

use std::time::{Duration, SystemTime};

use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::temporaries::{held_id, is_ours, maker};
use crate::backend::rbd::names::{COPY, TEMPORARY};
use crate::backend::rbd::tool::{Entry, Image, Removed, Spot};
use crate::call::Call;
use crate::error::{Error, Result};

/// A copy of another controller that is older than this is not being made any more.
const ABANDONED: Duration = Duration::from_secs(24 * 60 * 60);

impl Rbd {
    /// Has the clusters swept, beside the calls: a cluster that is down keeps nothing from starting.
    pub(crate) fn sweep(&self) {
        for cluster in self.clusters.all().iter().filter(|cluster| cluster.credentials.is_some()) {
            self.chores.sweep(&cluster.name);
        }
    }

    /// Sweeps every pool of a cluster; one that fails keeps no other from being swept.
    pub(crate) fn sweep_cluster(&self, call: &Call, name: &str) -> Result<()> {
        // It, or its credentials, may have been taken away since.
        let Some(cluster) = self.clusters.find(name)?.filter(|cluster| cluster.credentials.is_some()) else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for spot in self.spots_of(call, &cluster)? {
            if let Err(error) = self.sweep_spot(call, &spot) {
                outcome = Err(error.context(format_args!("sweep pool {:?}", spot.pool)));
            }
        }
        outcome
    }

    /// Goes through one pool; what fails keeps nothing else from being swept.
    pub(crate) fn sweep_spot(&self, call: &Call, spot: &Spot) -> Result<()> {
        let mut outcome = Ok(());
        let images = self.tool.list(call, spot)?;
        for image in &images {
            outcome = outcome.and(self.sweep_image(call, spot, image));
        }
        // What was killed while it was made or removed is in no list but this, and only its name leads to the
        // rest of it.
        for name in self.tool.names(call, spot)? {
            if maker(&name) == Some(&self.tag) && !images.iter().any(|image| image.name == name) {
                outcome = outcome.and(self.drop_temporary(call, spot, &name).map(drop));
            }
        }
        for image in self.tool.trash(call, spot)?.iter().filter(|it| is_ours(&it.name) && !it.by_clones) {
            log::info!("pool {:?}: purging deleted image {} ({})", spot.pool, image.name, image.id);
            outcome = outcome.and(self.purge_soon(call, spot, &image.id, &image.name).map(drop));
        }
        outcome
    }

    fn sweep_image(&self, call: &Call, spot: &Spot, image: &Entry) -> Result<()> {
        let mut kept = image.snapshots.len();
        for copy in image.snapshots.iter().filter_map(|(name, _)| name.strip_prefix(COPY)) {
            kept -= usize::from(self.drop_passing(call, spot, image, copy)?);
        }
        if let Some(id) = held_id(&image.name) {
            return if kept == 0 { self.release_held(call, spot, id) } else { Ok(()) };
        }
        match maker(&image.name) {
            Some(tag) if tag == self.tag => self.drop_temporary(call, spot, &image.name).map(drop),
            Some(_) if self.is_abandoned(call, spot, &image.name)? => {
                self.drop_temporary(call, spot, &image.name).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Removes the snapshot that a killed copy of ours was made from, if nobody makes that copy now.
    fn drop_passing(&self, call: &Call, spot: &Spot, image: &Entry, copy: &str) -> Result<bool> {
        let temporary = format!("{TEMPORARY}{copy}");
        if maker(&temporary) != Some(self.tag.as_str()) {
            return Ok(false);
        }
        let Some(_working) = self.temporaries.try_begin(&temporary) else { return Ok(false) };
        self.tool.remove_snapshot(call, spot, Image::Id(&image.id), &format!("{COPY}{copy}"))?;
        Ok(true)
    }

    fn is_abandoned(&self, call: &Call, spot: &Spot, name: &str) -> Result<bool> {
        let info = self.tool.info(call, spot, Image::Named(name))?;
        let age = info.and_then(|info| SystemTime::now().duration_since(info.created).ok());
        Ok(age.is_some_and(|age| age > ABANDONED))
    }

    /// Removes what is left of a copy that nobody is making; false if somebody is. Each removal that was
    /// killed may have left an image that goes by this name in the trash, unseen, and a removal takes away
    /// one of them.
    pub(crate) fn drop_temporary(&self, call: &Call, spot: &Spot, name: &str) -> Result<bool> {
        let Some(_working) = self.temporaries.try_begin(name) else { return Ok(false) };
        loop {
            match self.remove_copy(call, spot, name)? {
                Removed::Gone => {
                    log::info!("pool {:?}: removed {name}, a copy that was never finished", spot.pool)
                }
                Removed::Absent => return Ok(true),
                Removed::Watched => {
                    return Err(Error::unavailable(format!("image {name:?} is still in use")));
                }
                Removed::HasSnapshots => {
                    log::warn!(
                        "pool {:?}: {name}, a copy never finished, has snapshots: look at it, remove it",
                        spot.pool
                    );
                    return Ok(true);
                }
            }
        }
    }
}
