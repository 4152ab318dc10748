//! The local backend: volumes that are files on this node, attached as loop devices.
//!
//! Everything lies in one directory:
//!
//! | path | what |
//! |---|---|
//! | `volumes/csi-vol-[SLUG-]KEY/image` | the content, sparse unless preallocated |
//! | `volumes/csi-vol-[SLUG-]KEY/record` | how it was asked for, and its incarnation |
//! | `volumes/csi-vol-[SLUG-]KEY/published` | there while the volume is given to this node |
//! | `snapshots/csi-snap-KEY-R/{image,record}` | a full copy, by reflink where the file system can |
//! | `pending/` | half-made and half-removed things under random names, and notes of freezes |
//! | `lock` | flock held by the one daemon that serves the controller here |
//! | `id` | the directory's own ID: [`identity`] |
//! | `node` | the name of its node, and earlier ones: [`NodeName`] |
//!
//! Volumes and snapshots do not depend on each other: either can be deleted first.
//!
//! An operator may put a directory with an `image` and no `record` into `volumes/`: it is used by its ID
//! without incarnation.

mod attach;
mod copy;
mod files;
mod find;
mod identity;
mod image;
mod parameters;
mod publish;
mod record;
mod snapshots;
mod store;
mod volumes;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use self::files::failed;
pub use self::identity::{is_known, name_of_node, write_name_of_node};
use self::parameters::Settings;
use self::store::{Shelf, discard};
use super::{
    Backend, Fault, NodeDriver, Placement, PlacementRequest, Publisher, Reason, Served, Service, Snapshots,
    Traits, Volumes,
};
use crate::backend::parameters::check_file_system;
use crate::csi::{ANOTHER_NODE, Capability, Map, TopologyRequirement};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{Place, VolumeId};
use crate::kernel::Loops;
use crate::node_name::{LOCAL, NodeName};
use crate::sys::file;
use crate::sys::flock::FileLock;
use crate::sys::statfs::Usage;
use crate::topology::{NODE_LABEL, segment_key};

/// The first field of IDs.
const NAME: &str = LOCAL;

/// Volumes in files of this node.
pub struct Local {
    root: PathBuf,
    node: NodeName,
    topology_key: String,
    volumes: Shelf,
    snapshots: Shelf,
    pending: Shelf,
    loops: Arc<dyn Loops>,
    reflink: bool,
    /// The file that remembers the directory's ID; None if another daemon is the controller.
    identity: Option<PathBuf>,
    /// Why no volume can be attached on this node, as found at start.
    node_trouble: Option<Error>,
    lock: Mutex<Option<FileLock>>,
    /// Whether a look at the file system of the directory is under way.
    is_looked_at: AtomicBool,
}

impl Local {
    /// Opens the directory `root`, or makes it, for the node `node` of the plugin `plugin`. The directory may
    /// know earlier names of the node. If this instance of the daemon makes and deletes volumes, `identity`
    /// is the file that remembers the directory's ID; only then [`Backend::recover`] has to be called.
    ///
    /// # Errors
    /// The directory cannot be made or, for a controller, not be written to; the message says why. Or it
    /// belongs to a node with another name; a controller finds that out in [`Backend::recover`].
    pub fn open(
        root: PathBuf,
        node: &NodeName,
        plugin: &str,
        loops: Arc<dyn Loops>,
        identity: Option<PathBuf>,
    ) -> Result<Self> {
        let known = match &identity {
            Some(_) => name_of_node(&root)?,
            None => NodeName::recall(&identity::name_file(&root), node.current())?,
        };
        let pending = Shelf::ensure(root.join("pending"))?;
        Ok(Self {
            volumes: Shelf::ensure(root.join("volumes"))?,
            snapshots: Shelf::ensure(root.join("snapshots"))?,
            reflink: identity.is_some() && copy::has_reflink(&pending)?,
            node: known.map_or_else(|| node.clone(), |known| node.joined(&known)),
            topology_key: segment_key(plugin, NODE_LABEL),
            lock: Mutex::default(),
            is_looked_at: AtomicBool::new(false),
            root,
            pending,
            node_trouble: loops
                .usable()
                .err()
                .inspect(|trouble| log::warn!("no local volume can be attached here: {trouble}")),
            loops,
            identity,
        })
    }

    fn own_place(&self) -> Place {
        Place {
            backend: NAME.into(),
            cluster: self.node.current().to_string(),
            pool: String::new(),
            namespace: String::new(),
        }
    }

    fn segment(&self) -> Map {
        Map::from([(self.topology_key.clone(), self.node.current().to_string())])
    }

    /// Whether this is the place of the volumes here, under any name of the node.
    fn is_own(&self, place: &Place) -> bool {
        self.node.has(&place.cluster) && self.canonical(place) == self.canonical(&self.own_place())
    }

    /// Whether two IDs name the same object; their incarnations may differ.
    fn is_same_object(&self, one: &VolumeId, other: &VolumeId) -> bool {
        let key = |id: &VolumeId| self.canonical(&id.place).key(&id.object);
        key(one) == key(other)
    }

    /// Takes the lock of the directory, and holds it as long as `self` lives.
    fn take_lock(&self) -> Result<()> {
        let Some(lock) = try_lock(&self.root)? else {
            return Err(Error::precondition(format!(
                "another daemon serves the controller for the local volumes in {} (it holds {}): stop it, or \
                 give this one another \
                 CEPHLET_LOCAL_DIR",
                self.root.display(),
                lock_file(&self.root).display()
            )));
        };
        *self.lock.lock() = Some(lock);
        Ok(())
    }

    /// Removes everything that a crash left half made or half removed. An entry that cannot be removed does
    /// not keep the daemon from starting.
    fn sweep(&self) -> Result<()> {
        let names = self.pending.names()?;
        self.thaw_left_over(&Call::internal("recover"), &names);
        names.iter().for_each(|name| discard(&self.pending.path.join(name)));
        Ok(())
    }

    /// Whether this instance makes and deletes volumes.
    fn is_controller(&self) -> bool {
        self.identity.is_some()
    }

    /// A controller can make volumes even if no volume can be attached here.
    fn ready(&self) -> Result<()> {
        if let (false, Some(trouble)) = (self.is_controller(), &self.node_trouble) {
            return Err(trouble.clone());
        }
        if self.is_controller() && self.lock.lock().is_none() {
            return Err(Error::precondition(format!(
                "the lock of {} is not held: see the log of the start",
                self.root.display()
            )));
        }
        Ok(())
    }

    fn refuse_other_topologies(&self, topology: &TopologyRequirement) -> Result<()> {
        let here =
            |segments: &Map| segments.get(&self.topology_key).is_some_and(|node| node == self.node.current());
        if topology.requisite.is_empty() || topology.requisite.iter().any(here) {
            return Ok(());
        }
        Err(Error::no_space(format!(
            "{}: a local volume made here is reachable only where {} = {:?}, which \
             accessibility_requirements does not allow: ask \
             the plugin on an allowed node",
            ANOTHER_NODE,
            self.topology_key,
            self.node.current()
        )))
    }
}

/// The file whose lock is held by the daemon that serves the controller.
fn lock_file(root: &Path) -> PathBuf {
    root.join("lock")
}

/// Takes the lock of a directory; None while another process holds it.
fn try_lock(root: &Path) -> Result<Option<FileLock>> {
    let path = lock_file(root);
    file::open_lock(&path).and_then(FileLock::try_exclusive).map_err(failed("lock", &path))
}

impl Backend for Local {
    fn name(&self) -> &'static str {
        NAME
    }

    fn traits(&self) -> Traits {
        Traits {
            is_remote: false,
            records_deletions: false,
            lists_published_nodes: true,
            grows_on_nodes: true,
        }
    }

    fn health(&self, service: Service) -> Result<()> {
        match service {
            Service::Any | Service::Controller => self.ready(),
            Service::Node => self.loops.usable(),
        }
    }

    fn storage_faults(&self, call: &Call) -> Vec<Fault> {
        // A look that hangs is not awaited, and another one would hang as well.
        if self.is_looked_at.swap(true, Ordering::AcqRel) {
            return vec![Reason::StorageSilent.into()];
        }
        let space = self.loops.space(call, &self.root);
        self.is_looked_at.store(false, Ordering::Release);
        let fault = match space {
            Err(error) => Fault::new(Reason::LocalDiskFailed, error.to_string()),
            Ok(Usage { bytes, .. }) if bytes.available < bytes.total / 20 => {
                let reason = Reason::LocalDiskNearlyFull;
                Fault::new(reason, format!("{}; {} bytes are left", reason.sentence(), bytes.available))
            }
            Ok(_) => return Vec::new(),
        };
        vec![fault]
    }

    fn topology(&self) -> Option<Map> {
        Some(self.segment())
    }

    fn place(&self, request: &PlacementRequest<'_>) -> Result<Placement> {
        Settings::parse(request.parameters, request.mutable_parameters)?;
        self.refuse_other_topologies(request.topology)?;
        Ok(Placement::At(self.own_place()))
    }

    /// The place under the first name of the node, which never changes.
    fn canonical(&self, place: &Place) -> Place {
        match place.backend == NAME && self.node.has(&place.cluster) {
            true => Place { cluster: self.node.first().to_string(), ..place.clone() },
            false => place.clone(),
        }
    }

    fn serves(&self, place: &Place) -> Served {
        let own = self.own_place();
        match *place == (Place { cluster: place.cluster.clone(), ..own }) {
            true if self.node.has(&place.cluster) => Served::Here,
            true => Served::ByNode(place.cluster.clone()),
            false => Served::Nowhere,
        }
    }

    fn supports(&self, capability: &Capability) -> Result<()> {
        if capability.mode.is_multi_node() {
            return Err(Error::invalid(format!(
                "a local volume is reachable from its own node only, so the access mode {:?} is not \
                 possible: use a single-node mode",
                capability.mode
            )));
        }
        check_file_system(capability)
    }

    fn recover(&self) -> Result<()> {
        self.take_lock()?;
        if let Some(remembered) = &self.identity {
            identity::ensure_same(&self.root, remembered, &self.node)?;
        }
        // A crash may have come between a rename and its sync: from here on every visible name is durable.
        self.volumes.sync()?;
        self.snapshots.sync()?;
        self.sweep()
    }

    fn volumes(&self) -> &dyn Volumes {
        self
    }

    fn snapshots(&self) -> &dyn Snapshots {
        self
    }

    fn publisher(&self) -> &dyn Publisher {
        self
    }

    fn node(&self) -> &dyn NodeDriver {
        self
    }
}
