//! The operations on volumes, independent of any protocol.
//!
//! The caller holds the locks that the operation names (see [`lock_keys`]) and has checked the request. An
//! operation looks first, then acts, then records. So the same request after a crash at any step ends with
//! the same answer.

mod controller;
mod deletion;
pub mod doctor;
mod fencing;
pub mod lock_keys;
mod node;
mod recover;
mod renames;
mod replication;
pub mod request;
mod target;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use crate::backend::{Backend, Backends, Fencing, Served, Service};
use crate::config::SingleNodeTargets;
use crate::csi::{ANOTHER_NODE, Map};
use crate::error::{Error, Kind, Result};
use crate::exec::Runner;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::jobs::JobQueue;
use crate::journal::Journal;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::topology::NodeTopology;
use crate::volume::lock_keys::LockSet;

pub use crate::backend::{Fault, Finding, finding};
pub use controller::inspect::Verdict;
pub use controller::list::Listed;
pub use node::looks::Looks;
pub use node::stats::Usage;
pub use target::{SnapshotTarget, Target, VolumeTarget};

/// Everything that the operations need.
pub struct Operations {
    /// The storage backends.
    pub backends: Backends,
    /// The role that shuts hosts out of the storage.
    pub fencing: Option<Arc<dyn Fencing>>,
    /// Volumes on this node, and deletions and renames under way.
    pub journal: Arc<Journal>,
    /// System calls that may have to wait for storage.
    pub kernel: Kernel,
    /// The conditions of volumes on this node.
    pub looks: Looks,
    /// Programs that are run.
    pub runner: Arc<dyn Runner>,
    /// Jobs in the background.
    pub jobs: Arc<JobQueue>,
    /// Paths of our own.
    pub layout: Layout,
    /// Part of every derived name.
    pub instance: String,
    /// This node.
    pub node_id: String,
    /// The domains of this node.
    pub topology: Arc<NodeTopology>,
    /// Whether this instance serves the node as well, perhaps besides the controller.
    pub serves_node: bool,
    /// Whether this is a container, whose mounts the host sees only where they are shared with it.
    pub in_container: bool,
    /// Whether volumes are staged before an orchestrator publishes them.
    pub stages: bool,
    /// The ID of this boot.
    pub boot_id: String,
    /// How a second target of a single-node mode is treated.
    pub single_node_targets: SingleNodeTargets,
}

impl Operations {
    /// The volume that an ID means; none if this configuration could not have given out the ID.
    pub fn volume(&self, text: String) -> VolumeTarget {
        let target = self.controller_volume(text);
        Target { found: Ok(target.found.unwrap_or(None)), ..target }
    }

    /// The same for using a volume on this node: that its cluster is not set up here names a way out.
    pub fn volume_to_use(&self, text: String) -> VolumeTarget {
        let target = self.controller_volume(text);
        let is_elsewhere = target.found.as_ref().is_err_and(|error| error.kind() != Kind::Precondition);
        if is_elsewhere { Target { found: Ok(None), ..target } } else { target }
    }

    /// The same for giving a volume up on this node: a volume in use here can be given up even if its place
    /// was removed from the configuration.
    pub fn volume_here(&self, text: String) -> VolumeTarget {
        let in_use = || {
            let id = VolumeId::parse(&text)?;
            let backend = self.backends.by_kind(&id.place).filter(|backend| backend.traits().is_remote)?;
            let is_recorded = matches!(self.node_record(&id), Ok(Some(_)));
            is_recorded.then(|| (id, Arc::clone(backend)))
        };
        let target = self.volume(text.clone());
        Target { found: target.found.map(|found| found.or_else(in_use)), ..target }
    }

    /// The volume that a controller has to work on.
    pub fn controller_volume(&self, text: String) -> VolumeTarget {
        let parsed = VolumeId::parse(&text).map(|id| (id.place.clone(), self.key(&id), id));
        self.target("volume", text, parsed)
    }

    /// The snapshot that a controller has to work on.
    pub fn controller_snapshot(&self, text: String) -> SnapshotTarget {
        let parsed = SnapshotId::parse(&text).map(|id| (id.place.clone(), self.snapshot_key(&id), id));
        self.target("snapshot", text, parsed)
    }

    /// Resolves an ID, given with its place and the key of its lock. If only another node's controller can
    /// reach the object, or its cluster is not set up, that is an error: the object is not absent, and must
    /// not be reported as deleted.
    fn target<I>(&self, kind: &'static str, text: String, parsed: Option<(Place, String, I)>) -> Target<I> {
        let known = parsed.and_then(|(place, key, id)| {
            let backend = Arc::clone(self.backends.by_kind(&place)?);
            Some((LockSet::of(&text, &backend.canonical(&place), [key]), place, (id, backend)))
        });
        let Some((locks, place, object)) = known else {
            return Target { kind, locks: LockSet::nothing(&text), text, found: Ok(None) };
        };
        let found = match object.1.serves(&place) {
            Served::Here => Ok(Some(object)),
            Served::Nowhere => Ok(None),
            Served::ByNode(home) => Err(Error::unavailable(format!(
                "{ANOTHER_NODE}: {text} is on node {home:?} and this is {:?}: ask the plugin there",
                self.node_id
            ))),
            Served::NotSetUp => Err(Error::precondition(format!(
                "{text} is in cluster {:?}, which is not set up here, and nothing can be done to it: name the \
                 cluster in the configuration and reload it, or ask a plugin that has it",
                place.cluster
            ))),
        };
        Target { kind, locks, text, found }
    }

    /// The segments of this node: its domains, and the segments of its backends.
    pub fn segments(&self) -> Map {
        let backends = self.backends.iter().filter_map(|backend| backend.topology());
        backends.chain([self.topology.segments()]).flatten().collect()
    }

    /// An error if this instance cannot do this: none of its backends can, or the journal is unusable.
    pub fn health(&self, service: Service) -> Result<()> {
        let ask = |backend: &Arc<dyn Backend>| backend.health(service).err();
        let troubles: Vec<Error> = self.backends.iter().filter_map(ask).collect();
        let works = troubles.len() < self.backends.iter().count();
        match (works, self.journal.poisoned()) {
            (true, None) => Ok(()),
            (_, Some(error)) => Err(error),
            (false, None) => {
                let reasons: Vec<String> = troubles.iter().map(ToString::to_string).collect();
                Err(Error::precondition(format!("nothing that is set up can work: {}", reasons.join("; "))))
            }
        }
    }

    /// The backend of an object that was placed before. If its place was removed from the configuration
    /// since, the backend reports that.
    fn backend_of(&self, place: &Place) -> Result<&Arc<dyn Backend>> {
        let unknown = || Error::internal(format!("no backend {:?} is set up", place.backend));
        self.backends.by_kind(place).ok_or_else(unknown)
    }
}
