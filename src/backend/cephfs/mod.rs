//! The CephFS backend: volumes that are subvolumes of a file system.
//!
//! A subvolume has no metadata before it is whole, its name can be made twice at once, and the manager may
//! carry out a command late. So names are drawn ([`names`]), and objects in the metadata pool say which
//! subvolumes are volumes:
//!
//! | what | where |
//! |---|---|
//! | a volume | subvolume `csi-vol-[SLUG-]KEY-R` of a group |
//! | a volume that [shares](volumes::share) a snapshot | nothing but its entry in the index |
//! | which volumes there are, and their requests | the [`index`], which maps `GROUP/SUBVOLUME` to JSON |
//! | the name of a volume | a lock on the object `cephlet.name.KEY`, whose tag is `GROUP/SUBVOLUME` |
//! | the nodes that have a volume | locks on the object `cephlet.vol.GROUP/SUBVOLUME`: cookie = node |
//!
//! An ID means the subvolume that the manager shows under its name. Index and claims may be lost: no ID
//! changes its meaning, and nothing is removed for want of an entry. Only a volume that shares a snapshot is
//! gone without its entry.

mod clients;
mod context;
mod examine;
mod fence;
mod fuse;
mod index;
mod names;
mod node;
mod parameters;
mod publish;
mod snapshot;
mod subvolumes;
mod sweep;
mod volumes;

#[cfg(test)]
mod tests;

pub use self::context::Identity;
pub use self::node::ThisNode;
pub use self::parameters::PARAMETERS;

use std::sync::Arc;

use self::context::{Context, Timing};
use self::names::NAME;
use self::node::Node;
use self::parameters::{Settings, refuse_own_flags};
use super::{
    Backend, Fault, Finding, NodeDriver, Placement, PlacementRequest, Publisher, Served, Service, Snapshots,
    Traits, Volumes,
};
use crate::backend::ceph::domains::Wishes;
use crate::backend::ceph::{Programs, placement, reach};
use crate::clusters::Clusters;
use crate::csi::{Access, Capability};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::Runner;
use crate::ids::Place;
use crate::jobs::JobQueue;

/// The file system type of volumes, in requests and in the table of mounts.
const FS_TYPE: &str = "ceph";

/// Volumes in the file systems of Ceph clusters.
pub struct CephFs {
    context: Arc<Context>,
    node: Node,
    queue: Arc<JobQueue>,
}

impl CephFs {
    /// The volumes of `clusters`, asked by `programs`, for this controller and for this node. `runner`
    /// loads the kernel's client.
    pub fn new(
        clusters: Arc<Clusters>,
        (programs, runner): (Programs, Arc<dyn Runner>),
        (identity, node): (Identity, ThisNode),
        queue: Arc<JobQueue>,
    ) -> Self {
        let tools = (Arc::new(programs.clone()) as _, Arc::new(programs) as _);
        let context = Arc::new(Context::new(clusters, tools, identity, Timing::default()));
        let node = Node::new(Arc::clone(&context), runner, node);
        Self { context, node, queue }
    }
}

impl Backend for CephFs {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Published nodes are locks on an object of each single volume.
    fn traits(&self) -> Traits {
        Traits {
            is_remote: true,
            records_deletions: false,
            lists_published_nodes: false,
            grows_on_nodes: false,
        }
    }

    fn is_set_up(&self) -> bool {
        self.context.clusters.are_set_up()
    }

    fn health(&self, service: Service) -> Result<()> {
        if let Some(why) = self.context.clusters.trouble() {
            return Err(Error::precondition(why));
        }
        match service {
            Service::Any => Ok(()),
            Service::Controller => self.context.objects.has_rados(),
            Service::Node => self.node.usable(),
        }
    }

    fn storage_faults(&self, _call: &Call) -> Vec<Fault> {
        reach::storage_faults(&self.context.clusters)
    }

    fn examine(&self) -> Vec<Finding> {
        examine::examine(&self.context)
    }

    fn place(&self, request: &PlacementRequest<'_>) -> Result<Placement> {
        let settings = Settings::parse(request.parameters, request.mutable_parameters)?;
        let place = settings.place(&self.context.clusters)?;
        let wishes = Wishes::new(&self.context.identity.plugin, request.topology);
        Ok(if settings.leave_pool_to(&wishes) { Placement::Within(place) } else { Placement::At(place) })
    }

    fn canonical(&self, place: &Place) -> Place {
        self.context.canonical(place)
    }

    fn serves(&self, place: &Place) -> Served {
        placement::serves(&self.context.clusters, place)
    }

    /// Any number of nodes may write.
    fn supports(&self, capability: &Capability) -> Result<()> {
        match &capability.access {
            Access::Block => Err(Error::invalid(
                "a CephFS volume is a tree of files, so it cannot be used as a block device: use the backend rbd, or \
                 mount it",
            )),
            Access::Mount { fs_type, .. } if !["", FS_TYPE].contains(&fs_type.as_str()) => {
                Err(Error::invalid(format!(
                    "a CephFS volume cannot have the file system {fs_type:?}: leave the type out"
                )))
            }
            Access::Mount { flags, .. } => refuse_own_flags(flags),
        }
    }

    fn recover(&self) -> Result<()> {
        sweep::sweep_later(&self.context, &self.queue);
        Ok(())
    }

    fn volumes(&self) -> &dyn Volumes {
        &*self.context
    }

    fn snapshots(&self) -> &dyn Snapshots {
        &*self.context
    }

    fn publisher(&self) -> &dyn Publisher {
        &*self.context
    }

    fn node(&self) -> &dyn NodeDriver {
        &self.node
    }
}
