//! What is done beside the calls: purging the trash, sweeping up after a crash, flattening. Each cluster has
//! a lane for it.
//!
//! The list is in memory only. After a restart the sweep finds in the clusters what was on it, but for images
//! to be flattened.

pub(crate) mod flatten;
pub(crate) mod preempt;
pub(crate) mod sweep;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::ceph::Access;
use crate::backend::rbd::Rbd;
use crate::backend::rbd::image::clone::DEAD_CLIENT;
use crate::backend::rbd::jobs::flatten::Leaf;
use crate::backend::rbd::lanes::{Lanes, Rest};
use crate::backend::rbd::tool::{Info, Spot};
use crate::call::Call;
use crate::error::Result;
use crate::secrets::Secrets;

/// From the move of an image to the trash to the first look whether it has got a snapshot, when the command
/// that was taking one may have ended. The second comes when it has ended in any case.
const SOON: Duration = Duration::from_secs(5);
/// Before something that failed is tried again.
pub(crate) const RETRY: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

/// Something to do.
#[derive(Clone, Debug)]
pub(crate) enum Chore {
    /// Look for what a crash left.
    Sweep { cluster: String },
    /// Delete an image in the trash.
    Purge { spot: Spot, image: String, name: String },
    /// Take an image in the trash back that got a snapshot while it was deleted.
    LookForSnapshots { spot: Spot, image: String, name: String, again: bool },
    /// Remove a copy that was not finished.
    Remove { spot: Spot, temporary: String },
    /// Flatten a copy that is too deep.
    Flatten(Leaf),
}

/// What there is to do, and from when on.
#[derive(Default)]
pub(crate) struct Chores(pub(crate) Lanes<Chore>);

impl Chores {
    /// Has a cluster looked through for what a crash left.
    pub fn sweep(&self, cluster: &str) {
        self.0.add(cluster, NOW, Chore::Sweep { cluster: cluster.to_string() });
    }

    /// Puts the purge of an image in the trash, which has this name there, on the list.
    pub fn purge(&self, spot: &Spot, image: &str, name: &str) {
        self.add(
            spot,
            NOW,
            Chore::Purge { spot: spot.clone(), image: image.to_string(), name: name.to_string() },
        );
    }

    /// Has an image looked at that was moved to the trash, where it has this name.
    pub fn look_for_snapshots(&self, spot: &Spot, image: &str, name: &str) {
        let (image, name) = (image.to_string(), name.to_string());
        self.add(spot, SOON, Chore::LookForSnapshots { spot: spot.clone(), image, name, again: true });
    }

    /// Puts the removal of a copy on the list: for when the command that had it open counts as its watcher no
    /// more.
    pub fn remove(&self, spot: &Spot, temporary: &str) {
        self.add(spot, DEAD_CLIENT, Chore::Remove { spot: spot.clone(), temporary: temporary.to_string() });
    }

    /// Has a new image flattened if it has to be.
    pub fn flatten(&self, spot: &Spot, info: &Info) {
        if let Some(leaf) = Leaf::of(spot, info) {
            self.add(spot, NOW, Chore::Flatten(leaf));
        }
    }

    fn add(&self, spot: &Spot, pause: Duration, chore: Chore) {
        self.0.add(&spot.access.cluster.name, pause, chore);
    }
}

impl Rbd {
    /// Has chores done from now on, by threads that end with this backend and keep nothing from ending.
    pub fn start_background(self: &Arc<Self>) {
        let rbd = Arc::downgrade(self);
        self.chores.0.start(move |chore| rbd.upgrade()?.do_chore(chore));
    }

    /// Does a chore; tells what is left of it. What fails is due again later.
    pub(crate) fn do_chore(&self, mut chore: Chore) -> Rest<Chore> {
        let again = self.try_chore(&mut chore).unwrap_or_else(|error| {
            log::warn!("{chore}: {error}; it is tried again in {} s", RETRY.as_secs());
            Some(RETRY)
        });
        again.map(|pause| (pause, chore))
    }

    /// Tells after which pause the chore is to be done again, if it is.
    fn try_chore(&self, chore: &mut Chore) -> Result<Option<Duration>> {
        if !self.renew(chore)? {
            return Ok(None);
        }
        Ok(match chore {
            Chore::Sweep { cluster } => {
                self.sweep_cluster(&Call::internal("sweep"), cluster)?;
                None
            }
            Chore::Remove { spot, temporary } => {
                let over = self.drop_temporary(&Call::internal("clean up"), spot, temporary)?;
                (!over).then_some(RETRY)
            }
            Chore::Purge { spot, image, name } => {
                self.purge_now(&Call::internal("purge"), spot, image, name)?
            }
            Chore::LookForSnapshots { spot, image, name, again } => {
                let over = self.take_back(&Call::internal("take back"), spot, image, name)?;
                (!over && std::mem::take(again)).then(|| self.longest_command())
            }
            Chore::Flatten(leaf) => self.look_at_leaf(leaf)?,
        })
    }

    /// Gives a chore the credentials that its cluster has now: they may be others than when it was added.
    /// False if the cluster is set up no more.
    pub(crate) fn renew(&self, chore: &mut Chore) -> Result<bool> {
        let spot = match chore {
            Chore::Sweep { .. } => return Ok(true),
            Chore::Purge { spot, .. } | Chore::LookForSnapshots { spot, .. } | Chore::Remove { spot, .. } => {
                spot
            }
            Chore::Flatten(leaf) => &mut leaf.spot,
        };
        let Some(cluster) = self.clusters.find(&spot.access.cluster.name)? else { return Ok(false) };
        if spot.access.is_own() {
            spot.access = Access::new(cluster, &Secrets::default())?;
        }
        Ok(true)
    }
}

impl std::fmt::Display for Chore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sweep { cluster } => write!(f, "sweep cluster {cluster:?}"),
            Self::Remove { spot, temporary } => write!(f, "remove image {temporary} of {}", at(spot)),
            Self::Flatten(leaf) => write!(f, "flatten image {} of {}", leaf.id, at(&leaf.spot)),
            Self::Purge { spot, image, .. } => {
                write!(f, "purge image {image} from the trash of {}", at(spot))
            }
            Self::LookForSnapshots { spot, image, .. } => {
                write!(f, "look at image {image} in the trash of {}", at(spot))
            }
        }
    }
}

/// A place, for people. Without the namespace the same names elsewhere would read alike.
fn at(spot: &Spot) -> String {
    match spot.namespace.as_str() {
        "" => format!("pool {:?}", spot.pool),
        namespace => format!("pool {:?}, namespace {namespace:?}", spot.pool),
    }
}
