//! What the operations of this backend share, and their way into a cluster and a file system.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::ceph::cache::Cache;
use crate::backend::ceph::claim::{FirstSeen, Name};
use crate::backend::ceph::domains::DomainPools;
use crate::backend::ceph::locks::LockTarget;
use crate::backend::ceph::monitor::MonitorClient;
use crate::backend::ceph::objects::BindObjects;
use crate::backend::ceph::placement::known;
use crate::backend::ceph::publication::deletion::{Deleter, DeletionTimes};
use crate::backend::ceph::publication::{NodePublication, PublicationLock, Stage};
use crate::backend::ceph::{ClusterAccess, Monitors, PoolRef};
use crate::backend::cephfs::index::Index;
use crate::backend::cephfs::names::{NAME, NAMESPACE, is_plain};
use crate::backend::cephfs::subvolumes::{FileSystem, Subvolumes, file_systems};
use crate::clusters::Clusters;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{self, Place, VolumeId};
use crate::secrets::Secrets;

/// How long the file systems of a cluster are remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How long a pending copy is remembered: longer than the pauses between the requests for it.
const PENDING_REMEMBERED: Duration = Duration::from_secs(60 * 60);

/// How long to wait for each thing in a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// Deletions.
    pub deletion: DeletionTimes,
    /// How long another controller's claim of a name is watched before it counts as dead.
    pub claim_grace: Duration,
    /// The same for a snapshot.
    pub snapshot_claim_grace: Duration,
    /// The pause between two looks how far a copy is, and how long a call waits for one.
    pub copy_look: Duration,
    pub copy_wait: Duration,
    /// For how long a copy must be pending before the manager is asked whether it knows of it.
    pub lost_copy: Duration,
    /// A manager that answered within this time has not died meanwhile: another needs longer to start.
    pub same_manager: Duration,
    /// A volume that has been in the making for longer is not made any more.
    pub abandoned: Duration,
    /// The pause between two searches for leftovers.
    pub sweep_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            deletion: DeletionTimes {
                wait: Duration::from_secs(5),
                poll: Duration::from_millis(500),
                decision: Duration::from_secs(60),
                lifetime: Duration::from_secs(5 * 60),
            },
            claim_grace: Duration::from_secs(10),
            snapshot_claim_grace: Duration::from_secs(60),
            copy_look: Duration::from_secs(1),
            copy_wait: Duration::from_secs(60 * 60),
            lost_copy: Duration::from_secs(60),
            same_manager: Duration::from_secs(1),
            abandoned: Duration::from_secs(24 * 60 * 60),
            sweep_interval: Duration::from_secs(60 * 60),
        }
    }
}

/// The identity of this controller, and what it may do.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The plugin's name, with which the keys of its topology begin.
    pub plugin: String,
    /// 8 hexadecimal digits that tell what this controller makes from what others make.
    pub tag: String,
    /// Whether the mounts of nodes that are lost are shut out.
    pub fences: bool,
}

/// What operations share.
pub(crate) struct Context {
    pub clusters: Arc<Clusters>,
    pub monitors: Arc<dyn Monitors>,
    pub objects: Arc<dyn BindObjects>,
    pub identity: Identity,
    pub timing: Timing,
    /// What topology remembers of pools.
    pub domains: DomainPools,
    file_systems: Cache<String, Arc<Vec<FileSystem>>>,
    /// Since when a copy is pending, or was last in the manager's list.
    pub pending_copies: Cache<String, Instant>,
    claims: FirstSeen,
}

/// A file system and a group within one call, and the pool with its index.
pub(crate) struct Fs<'a> {
    pub context: &'a Context,
    pub call: &'a Call,
    /// The place, with the name of the file system.
    pub place: Place,
    pub file_system: FileSystem,
    /// The metadata pool, with the namespace of cephlet's objects.
    pub registry: PoolRef,
}

impl Context {
    pub fn new(
        clusters: Arc<Clusters>,
        (monitors, objects): (Arc<dyn Monitors>, Arc<dyn BindObjects>),
        identity: Identity,
        timing: Timing,
    ) -> Self {
        let (domains, file_systems) = (DomainPools::default(), Cache::for_at_most(REMEMBERED));
        let (pending_copies, claims) = (Cache::for_at_most(PENDING_REMEMBERED), FirstSeen::default());
        Self { clusters, monitors, objects, identity, timing, domains, file_systems, pending_copies, claims }
    }

    /// The place as locks name it: a cluster may have several names, and a request may leave the file system
    /// out.
    pub fn canonical(&self, place: &Place) -> Place {
        Place { cluster: self.clusters.canonical(&place.cluster), pool: String::new(), ..place.clone() }
    }

    /// Runs `act` in the file system and group of a place, reached with a request's secrets or the cluster's
    /// own key.
    pub fn within<T>(
        &self,
        call: &Call,
        (place, secrets): (&Place, &Secrets),
        act: impl FnOnce(&Fs<'_>) -> Result<T>,
    ) -> Result<T> {
        self.within_any(call, (place, secrets), act)?.ok_or_else(|| no_file_system(place))
    }

    /// The same; None if the cluster has no such file system.
    pub fn within_any<T>(
        &self,
        call: &Call,
        (place, secrets): (&Place, &Secrets),
        act: impl FnOnce(&Fs<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let access = ClusterAccess::new(known(&self.clusters, &place.cluster)?, secrets)?;
        let Some(file_system) = self.file_system(call, &access, &place.pool)? else { return Ok(None) };
        act(&self.at(call, access, file_system, &place.namespace)).map(Some)
    }

    /// The same for what has to do with a subvolume: the place, the subvolume, and the secrets. None if there
    /// cannot be such a subvolume, or if the file system was removed: the operator lists it among the removed
    /// pools, and the cluster has none of that name. This is logged if something is to be removed there:
    /// `removal` names it.
    pub fn unless_removed<T>(
        &self,
        call: &Call,
        (place, subvolume, secrets): (&Place, &str, &Secrets),
        removal: Option<fmt::Arguments<'_>>,
        act: impl FnOnce(&Fs<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if !may_exist(place, subvolume) {
            return Ok(None);
        }
        let done = self.within_any(call, (place, secrets), act)?;
        if done.is_none() {
            let Place { cluster, pool, .. } = place;
            if !known(&self.clusters, cluster)?.removed_pools.contains(pool) {
                return Err(no_file_system(place));
            }
            if let Some(what) = removal {
                log::warn!(
                    "{what} counts as gone, as the clusters file says that file system {pool:?} of cluster \
                     {cluster:?} was removed"
                );
            }
        }
        Ok(done)
    }

    /// A group of a file system.
    fn at<'a>(&'a self, call: &'a Call, access: ClusterAccess, fs: FileSystem, group: &str) -> Fs<'a> {
        let (pool, namespace) = (fs.metadata_pool.clone(), NAMESPACE.to_string());
        let place = Place {
            backend: NAME.into(),
            cluster: access.cluster.name.clone(),
            pool: fs.name.clone(),
            namespace: group.to_string(),
        };
        Fs { context: self, call, place, file_system: fs, registry: PoolRef { access, pool, namespace } }
    }

    /// The file systems of a cluster, without a group.
    pub fn roots<'a>(&'a self, call: &'a Call, access: &ClusterAccess) -> Result<Vec<Fs<'a>>> {
        let all = self.file_systems(call, access)?;
        Ok(all.iter().map(|it| self.at(call, access.clone(), it.clone(), "")).collect())
    }

    fn file_systems(&self, call: &Call, access: &ClusterAccess) -> Result<Arc<Vec<FileSystem>>> {
        let ask = || file_systems(&self.monitors.of(call, access)).map(Arc::new);
        self.file_systems.get_or_ask(access.cluster.name.clone(), ask)
    }

    /// The file system of this name; without a name, the only one. None if the cluster has none.
    fn file_system(&self, call: &Call, access: &ClusterAccess, name: &str) -> Result<Option<FileSystem>> {
        let cluster = &access.cluster.name;
        let choose = || choose(&self.file_systems(call, access)?, cluster, name);
        match choose()? {
            Some(found) => Ok(Some(found)),
            None => {
                // It may have been made since the cluster was asked.
                self.file_systems.forget(cluster);
                choose()
            }
        }
    }
}

fn choose(all: &[FileSystem], cluster: &str, name: &str) -> Result<Option<FileSystem>> {
    let found = match (name, all) {
        ("", [only]) => Some(only),
        ("", []) => None,
        ("", several) => {
            let names: Vec<&str> = several.iter().map(|fs| fs.name.as_str()).collect();
            return Err(Error::invalid(format!(
                "the parameter \"fsName\" is missing: cluster {cluster:?} has several file systems, {}",
                names.join(", ")
            )));
        }
        (name, all) => all.iter().find(|fs| fs.name == name),
    };
    Ok(found.cloned())
}

fn no_file_system(Place { cluster, pool: name, .. }: &Place) -> Error {
    let which = if name.is_empty() { String::new() } else { format!(" {name:?}") };
    Error::precondition(format!(
        "cluster {cluster:?} has no file system{which}: `ceph fs ls` shows those that it has; one that was removed \
         with all its volumes goes into `removed_pools` under [cluster.{cluster}] in the clusters file"
    ))
}

impl Fs<'_> {
    /// The monitors and the manager of the cluster.
    pub fn monitors(&self) -> MonitorClient<'_> {
        self.context.monitors.of(self.call, &self.registry.access)
    }

    /// The subvolumes of the group.
    pub fn subvolumes(&self) -> Subvolumes<'_> {
        Subvolumes { monitors: self.monitors(), fs: &self.place.pool, group: &self.place.namespace }
    }

    /// The publications of a volume that are in force.
    pub fn publications(&self, subvolume: &str) -> Result<Vec<NodePublication>> {
        let (path, locks) = (self.path(subvolume), self.context.objects.locks(self.call, &self.registry));
        let held = PublicationLock::read_all(&locks.holders(LockTarget::Subvolume(&path))?)?;
        let given = held.into_iter().filter(|lock| lock.stage == Stage::Given);
        Ok(given.map(|lock| lock.publication).collect())
    }

    /// The index of the file system.
    pub fn index(&self) -> Index<'_> {
        Index(self.context.objects.objects(self.call, &self.registry))
    }

    /// This controller, when it deletes.
    pub fn deleter(&self) -> Deleter<'_> {
        let Self { context, call, registry, .. } = self;
        let times = context.timing.deletion;
        Deleter { locks: context.objects.locks(call, registry), call, tag: &context.identity.tag, times }
    }

    /// Another group of the same file system.
    pub fn in_group(&self, group: &str) -> Self {
        let (access, file_system) = (self.registry.access.clone(), self.file_system.clone());
        self.context.at(self.call, access, file_system, group)
    }

    /// The same group within another call.
    pub fn within_call<'b>(&'b self, call: &'b Call) -> Fs<'b> {
        Fs { call, ..self.in_group(&self.place.namespace) }
    }

    /// The name of a subvolume in the index, in locks and in claims.
    pub fn path(&self, subvolume: &str) -> String {
        format!("{}/{subvolume}", self.place.namespace)
    }

    /// The claim of a volume's name, by the key of the request's name.
    pub fn name<'a>(&'a self, key: &'a str) -> Name<'a> {
        let (tag, grace) = (self.context.identity.tag.as_str(), self.context.timing.claim_grace);
        let target = LockTarget::VolumeName(key);
        let (tool, first_seen) = (&*self.context.objects, &self.context.claims);
        Name { tool, call: self.call, at: &self.registry, target, tag, grace, first_seen }
    }

    /// The name of a snapshot in the index and in claims.
    pub fn snapshot_path(&self, subvolume: &str, snapshot: &str) -> String {
        format!("{}@{snapshot}", self.path(subvolume))
    }

    /// The claim of a snapshot's name, by the key of the request's name.
    pub fn snapshot_name<'a>(&'a self, key: &'a str) -> Name<'a> {
        let (target, grace) = (LockTarget::SnapshotName(key), self.context.timing.snapshot_claim_grace);
        Name { target, grace, ..self.name(key) }
    }

    /// The ID of a volume that cephlet made.
    pub fn id_of(&self, subvolume: &str) -> VolumeId {
        VolumeId { place: self.place.clone(), object: subvolume.to_string(), incarnation: None }
    }
}

/// Whether there can be a subvolume of this name at all. The manager must not be asked about other names.
pub(crate) fn may_exist(Place { pool, namespace, .. }: &Place, subvolume: &str) -> bool {
    is_plain(subvolume) && is_plain(pool) && (namespace.is_empty() || is_plain(namespace))
}

/// Whether cephlet made the volume: then its name alone identifies it.
pub(crate) fn is_drawn(id: &VolumeId) -> bool {
    ids::undrawn(&id.object).is_some()
}
