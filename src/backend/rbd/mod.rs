//! The RBD backend: volumes that are images of a Ceph cluster.
//!
//! The cluster is the source of truth. It stores what is needed to answer a repeated request:
//!
//! | what | where |
//! |---|---|
//! | a volume | image `csi-vol-[SLUG-]KEY`, from the name in the request; the image's id is the incarnation |
//! | a volume whose pool topology chose | image `csi-vol-[SLUG-]KEY.REGISTRY`: the pool with the registry |
//! | that pool | a lock on the object `cephlet.name.KEY` in the registry, whose tag is the pool |
//! | the request for a volume | `cephlet.request` in the image's metadata |
//! | how it is replicated | `cephlet.replication` in the image's metadata |
//! | a snapshot | snapshot `csi-snap-KEY-R` of its source |
//! | the name of a snapshot | a lock on the object `cephlet.snap.KEY`, whose tag is `IMAGE@csi-snap-KEY-R` |
//! | to which nodes a volume is published | locks on the image's header: cookie = node |
//! | which clients of nodes write to it | another lock there: cookie = address |
//! | a copy that is being made | image `csi-tmp-…`, renamed when it is whole |
//! | a deleted volume that is large or needed | image `csi-held-<id>`, until it is removed |
//!
//! [`names`] has the names; `image`, `snapshot`, `publish` and `mirror` the operations; `node` the devices;
//! `jobs` the background work; [`tool`] the requests to a cluster. All of them work with a `context` and its
//! `memory`.

mod context;
mod image;
mod jobs;
mod memory;
mod mirror;
mod names;
pub mod node;
mod node_clients;
mod parameters;
mod publish;
mod snapshot;
mod timing;
pub mod tool;

#[cfg(test)]
pub(crate) mod tests;

pub use self::context::Identity;
pub use self::parameters::{LIMITS, PARAMETERS};
pub(crate) use self::timing::Timing;

use std::sync::{Arc, Weak};

use self::context::Context;
use self::jobs::{Job, Jobs, examine, run, sweep};
use self::memory::Memory;
use self::names::NAME;
use self::node::Mapper;
use self::node::attach::Node;
use self::parameters::Settings;
use self::tool::RbdTool;
use super::{
    Backend, BegunRenames, Fault, Finding, NodeDriver, Placement, PlacementRequest, Publisher, Replication,
    Served, Service, Snapshots, Traits, Volumes,
};
use crate::backend::ceph::domains::Wishes;
use crate::backend::ceph::{placement, reach};
use crate::backend::parameters::check_file_system;
use crate::clusters::Clusters;
use crate::csi::{Access, Capability};
use crate::dispatch::{Call, ObjectLocks};
use crate::error::{Error, Result};
use crate::ids::Place;
use crate::jobs::{JobQueue, Requeue};

/// Volumes in Ceph clusters.
pub struct Rbd {
    context: Arc<Context>,
    node: Node,
}

impl Rbd {
    /// The volumes of `clusters`, reached through `tool`, for the node of `identity`. The last tuple has what
    /// the background work needs.
    pub(crate) fn new(
        clusters: Arc<Clusters>,
        tool: Arc<dyn RbdTool>,
        mapper: Mapper,
        (identity, fences, timing): (Identity, bool, Timing),
        (queue, locks, renames): (Arc<JobQueue>, Arc<dyn ObjectLocks>, Arc<dyn BegunRenames>),
    ) -> Self {
        // The queue must not keep the context alive.
        let context = Arc::new_cyclic(|weak| {
            let weak = Weak::clone(weak);
            let runner = Arc::new(move |call: &Call, job: &mut Job| match weak.upgrade() {
                Some(context) => run::run(&context, call, job),
                None => Ok(Requeue::Never),
            });
            Context {
                clusters,
                tool,
                identity,
                timing,
                memory: Memory::default(),
                jobs: Jobs { queue, runner },
                locks,
                renames,
                fences,
            }
        });
        let node = Node::new(Arc::clone(&context), mapper);
        Self { context, node }
    }
}

impl Backend for Rbd {
    fn name(&self) -> &'static str {
        NAME
    }

    /// Published nodes are locks on each single image. A list of them would take two processes an image.
    fn traits(&self) -> Traits {
        Traits {
            is_remote: true,
            records_deletions: true,
            lists_published_nodes: false,
            grows_on_nodes: true,
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
            Service::Controller => self.context.tool.usable(),
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
        let wishes = Wishes::new(&self.context.identity.plugin, request.topology);
        match settings.leave_pool_to(&wishes) {
            true => settings.registry(&self.context.clusters).map(Placement::Registered),
            false => settings.place(&self.context.clusters).map(Placement::At),
        }
    }

    fn canonical(&self, place: &Place) -> Place {
        self.context.canonical(place)
    }

    fn serves(&self, place: &Place) -> Served {
        placement::serves(&self.context.clusters, place)
    }

    fn supports(&self, capability: &Capability) -> Result<()> {
        check_file_system(capability)?;
        match &capability.access {
            Access::Mount { .. } if capability.mode.is_multi_node() && !capability.mode.is_read_only() => {
                Err(Error::invalid(format!(
                    "a file system on an RBD image breaks when two nodes have it mounted and one writes, so \
                     the access mode {:?} is not possible: use it as a block volume",
                    capability.mode
                )))
            }
            _ => Ok(()),
        }
    }

    fn recover(&self) -> Result<()> {
        sweep::sweep_later(&self.context);
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

    fn replication(&self) -> Option<&dyn Replication> {
        Some(&*self.context)
    }
}
