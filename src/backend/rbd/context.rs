//! What every operation works with: the clusters, the tool, the memory, the background jobs, and the identity
//! of this daemon.

use std::fmt::Display;
use std::ops::Deref;
use std::sync::Arc;

use crate::backend::BegunRenames;
use crate::backend::ceph::claim::Name;
use crate::backend::ceph::locations::Question;
use crate::backend::ceph::publication::deletion::{Deleter, DeletionTimes};
use crate::backend::ceph::{ClusterAccess, PoolRef, placement};
use crate::backend::rbd::jobs::Jobs;
use crate::backend::rbd::memory::Memory;
use crate::backend::rbd::names::NAME;
use crate::backend::rbd::timing::Timing;
use crate::backend::rbd::tool::{LockTarget, PoolOptions, PoolTool, RbdTool};
use crate::clusters::Clusters;
use crate::dispatch::{Call, Held, ObjectLocks};
use crate::error::{Error, Kind, Result};
use crate::ids::{Place, VolumeId};
use crate::secrets::Secrets;
use crate::sys::random::Machine;

/// What operations share.
pub(crate) struct Context {
    pub clusters: Arc<Clusters>,
    pub tool: Arc<dyn RbdTool>,
    pub identity: Identity,
    pub timing: Timing,
    pub memory: Memory,
    pub jobs: Jobs,
    /// Locks on the internal images, temporary or retained, that this daemon works on.
    pub locks: Arc<dyn ObjectLocks>,
    /// Renames of copies that were begun and may have been killed.
    pub renames: Arc<dyn BegunRenames>,
    /// Whether the cluster shuts out the clients of nodes that have not given an image back.
    pub fences: bool,
}

/// The identity of this daemon towards the clusters.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The plugin's name, with which the keys of its topology begin.
    pub plugin: String,
    /// This node.
    pub node: String,
    /// The machine of this node, and that machine's boot.
    pub machine: Machine,
    /// 8 hexadecimal digits that tell the temporary images of this controller from those of others. The state
    /// directory keeps them, so they are the same after a restart.
    pub tag: String,
}

impl Context {
    /// The place, reached with a request's secrets or the cluster's own key.
    pub fn locate(&self, place: &Place, secrets: &Secrets) -> Result<PoolRef> {
        let cluster = placement::known(&self.clusters, &place.cluster)?;
        // A removed pool need not be among the allowed pools.
        if !cluster.allows(&place.pool, &place.namespace) && !cluster.removed_pools.contains(&place.pool) {
            return Err(Error::precondition(format!(
                "pool {:?} with namespace {:?} is not among those allowed for cluster {:?}: allow it in the file \
                 of clusters",
                place.pool, place.namespace, place.cluster
            )));
        }
        let access = ClusterAccess::new(cluster, secrets)?;
        Ok(PoolRef { access, pool: place.pool.clone(), namespace: place.namespace.clone() })
    }

    /// The place of a volume that is taken back from a node, reached as [`Context::locate`] does. If that
    /// lacks credentials, the secrets of the publication serve: CSI does not make an orchestrator send them
    /// again.
    pub fn locate_to_unpublish(&self, id: &VolumeId, secrets: &Secrets) -> Result<PoolRef> {
        self.locate(&id.place, secrets).or_else(|error| {
            match self.memory.published_with.get(&self.canonical(&id.place).key(&id.object)) {
                Some(known) if error.kind() == Kind::Unauthenticated => self.locate(&id.place, &known),
                _ => Err(error),
            }
        })
    }

    /// The place with the cluster's canonical name; `place` may use any name of the cluster.
    pub fn canonical(&self, place: &Place) -> Place {
        Place { cluster: self.clusters.canonical(&place.cluster), ..place.clone() }
    }

    /// Runs `act` in a place, reached as [`Context::locate`] does.
    pub fn within<T>(
        &self,
        call: &Call,
        (place, secrets): (&Place, &Secrets),
        act: impl FnOnce(&Pool<'_>) -> Result<T>,
    ) -> Result<T> {
        act(&self.pool(call, &self.locate(place, secrets)?))
    }

    /// A pool as a call works with it.
    pub fn pool<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Pool<'a> {
        Pool { context: self, call, at, tool: self.tool.bind(call, at) }
    }

    /// The name of a volume, by its key, in its registry.
    pub fn volume_name<'a>(&'a self, call: &'a Call, registry: &'a PoolRef, key: &'a str) -> Name<'a> {
        let (tool, tag) = (&*self.tool, self.identity.tag.as_str());
        let (target, grace) = (LockTarget::VolumeName(key), self.timing.claim_grace);
        Name { tool, call, at: registry, target, tag, grace, first_seen: &self.memory.claims }
    }

    /// What a look for pools and namespaces needs.
    pub fn question<'a>(&'a self, call: &'a Call) -> Question<'a> {
        Question { backend: NAME, clusters: &self.clusters, tool: &*self.tool, call }
    }
}

/// A pool and namespace within one call, with the methods of the tool there.
pub(crate) struct Pool<'a> {
    pub context: &'a Context,
    pub call: &'a Call,
    pub at: &'a PoolRef,
    tool: Box<dyn PoolTool + 'a>,
}

impl<'a> Deref for Pool<'a> {
    type Target = dyn PoolTool + 'a;

    fn deref(&self) -> &Self::Target {
        &*self.tool
    }
}

impl<'a> Pool<'a> {
    /// Another pool within the same call.
    pub fn other(&self, at: &'a PoolRef) -> Self {
        self.context.pool(self.call, at)
    }

    /// The same pool in another call.
    pub fn with_call(&self, call: &'a Call) -> Self {
        self.context.pool(call, self.at)
    }

    /// Waits for an internal image, temporary or retained, and locks it: in this daemon, one call or job at a
    /// time works on each. No volume has the name of an internal image.
    pub fn lock_internal(&self, name: &str) -> Result<Held> {
        self.context.locks.lock(self.call, self.key_of(name).into())
    }

    /// Locks an internal image that is not locked; None if it is.
    pub fn try_lock_internal(&self, name: &str) -> Result<Option<Held>> {
        self.context.locks.try_lock(self.call, self.key_of(name).into())
    }

    /// This controller, when it deletes here. Its lock lasts until a removal that was started under it has
    /// ended: the next holder must not meet one that still has to look up the name.
    pub fn deleter(&self) -> Deleter<'_> {
        let (timing, tool) = (self.timing(), &self.context.tool);
        let times = DeletionTimes {
            wait: timing.deletion_wait,
            poll: timing.poll,
            decision: timing.deletion_decision,
            lifetime: timing.deletion_decision + tool.longest_change(),
        };
        Deleter { locks: tool.locks(self.call, self.at), call: self.call, tag: self.tag(), times }
    }

    /// The pool's options, which are read once a minute. A pool that does not exist has none: the next
    /// command says so.
    pub fn options(&self) -> Result<PoolOptions> {
        let known = &self.memory().pool_options.0;
        let key = Place { namespace: String::new(), ..self.place() }.key("");
        if let Some(options) = known.get(&key) {
            return Ok(options);
        }
        // A missing pool is not remembered: it may be made before the next request.
        let Some(read) = self.pool_options()? else { return Ok(PoolOptions::default()) };
        known.remember(key, read.clone());
        Ok(read)
    }

    /// Whether everything in this pool is gone, because the pool was removed ([`placement`]).
    pub fn is_removed(&self) -> Result<bool> {
        self.at.is_removed(&*self.context.tool, self.call)
    }

    /// The same, for `what`, which is to be removed there. The pool's removal is logged.
    pub fn lets_go(&self, what: impl Display) -> Result<bool> {
        let (is_removed, at) = (self.at.is_removed(&*self.context.tool, self.call)?, self.at);
        if is_removed {
            log::warn!(
                "{what} counts as gone, as the clusters file says that {at} of cluster {:?} was removed",
                at.access.cluster.name
            );
        }
        Ok(is_removed)
    }

    /// The place of this pool.
    pub fn place(&self) -> Place {
        self.at.place(NAME)
    }

    /// The key by which an image is remembered and locked. It is the same for all names of its cluster.
    pub fn key_of(&self, image: &str) -> String {
        self.place().key(image)
    }

    /// The tag of this controller.
    pub fn tag(&self) -> &'a str {
        &self.context.identity.tag
    }

    /// The name of a snapshot, by its key.
    pub fn snapshot_name(&self, key: &'a str) -> Name<'a> {
        let (target, grace) = (LockTarget::SnapshotName(key), self.timing().snapshot_claim_grace);
        let tool = &*self.context.tool;
        let first_seen = &self.memory().claims;
        Name { tool, call: self.call, at: self.at, target, tag: self.tag(), grace, first_seen }
    }

    /// The plugin's name.
    pub fn plugin(&self) -> &'a str {
        &self.context.identity.plugin
    }

    /// The pauses and graces of this backend.
    pub fn timing(&self) -> &'a Timing {
        &self.context.timing
    }

    /// What this daemon remembers.
    pub fn memory(&self) -> &'a Memory {
        &self.context.memory
    }
}
