//! What every operation works with: the clusters and the tool, what is remembered, the jobs to do later, and
//! who we are.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::Arc;

use crate::backend::ceph::claim::Name;
use crate::backend::ceph::locations::Question;
use crate::backend::ceph::{PoolRef, placement, removed};
use crate::backend::rbd::jobs::Jobs;
use crate::backend::rbd::memory::Memory;
use crate::backend::rbd::names::NAME;
use crate::backend::rbd::timing::Timing;
use crate::backend::rbd::tool::{
    Changed, ImageInfo, ImageRef, Limits, ListedImage, LockHolder, LockRequest, LockState, LockTarget,
    Locked, Made, MirrorPool, MirrorSnapshot, MirrorStatus, NewClone, NewImage, PoolOptions, Promoted,
    RbdTool, Removed, RemovedByNumber, Renamed, SnapshotInfo, Trashed, Watcher,
};
use crate::backend::replication::Schedule;
use crate::backend::{BegunRenames, MirroringMode, Served};
use crate::clusters::Clusters;
use crate::dispatch::{Call, ObjectLocks};
use crate::error::{Kind, Result};
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
    /// For internal images, temporary or retained, that this daemon works on.
    pub locks: Arc<dyn ObjectLocks>,
    /// Renames of copies that may have been killed.
    pub renames: Arc<dyn BegunRenames>,
    /// Clients of nodes that have not given an image back are shut out.
    pub fences: bool,
}

/// Who we are to the clusters.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The plugin's name, with which the keys of its topology begin.
    pub plugin: String,
    /// This node.
    pub node: String,
    /// The machine that it is, and that machine's boot.
    pub machine: Machine,
    /// 8 hexadecimal digits that tell the temporary images of this controller from those of others: the same
    /// after a restart, whatever was lost.
    pub tag: String,
}

impl Context {
    /// The place, reached with a request's secrets or the cluster's own key.
    pub fn locate(&self, place: &Place, secrets: &Secrets) -> Result<PoolRef> {
        placement::locate(&self.clusters, place, secrets)
    }

    /// The place of a volume that is to be taken back from a node: reached as [`Context::locate`] does, else
    /// with the secrets that it was published with. Nothing in CSI makes an orchestrator send them again.
    pub fn locate_to_unpublish(&self, id: &VolumeId, secrets: &Secrets) -> Result<PoolRef> {
        self.locate(&id.place, secrets).or_else(|error| {
            match self.memory.published_with.get(&self.key_of(id)) {
                Some(known) if error.kind() == Kind::Unauthenticated => self.locate(&id.place, &known),
                _ => Err(error),
            }
        })
    }

    /// Whether everything in this pool is gone, because the pool was removed ([`removed`]).
    pub fn is_removed(&self, call: &Call, at: &PoolRef) -> Result<bool> {
        removed::is_removed(&*self.tool, call, at)
    }

    /// The same, for something there (`what`) that is to go. What is let go of is logged.
    pub fn lets_go(&self, call: &Call, at: &PoolRef, what: impl Display) -> Result<bool> {
        let is_removed = self.is_removed(call, at)?;
        if is_removed {
            log::warn!(
                "{what} counts as gone, as the clusters file says that {at} of cluster {:?} was removed",
                at.access.cluster.name
            );
        }
        Ok(is_removed)
    }

    /// The place by the cluster's own name, whatever name of it is used.
    pub fn canonical(&self, place: &Place) -> Place {
        Place { cluster: self.clusters.canonical(&place.cluster), ..place.clone() }
    }

    /// What a volume is remembered by, under whatever name of its cluster it is asked for.
    pub fn key_of(&self, id: &VolumeId) -> String {
        self.canonical(&id.place).key(&id.object)
    }

    /// Whether there may be volumes of ours at a place; a configuration that cannot be read says nothing
    /// against it.
    pub fn serves(&self, place: &Place) -> Served {
        match self.clusters.find(&place.cluster) {
            Ok(None) => Served::NotSetUp,
            Ok(Some(_)) | Err(_) => Served::Here,
        }
    }

    /// A pool as a call works with it.
    pub fn pool<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Pool<'a> {
        Pool { context: self, call, at }
    }

    /// The name of a volume, by its key, in its registry.
    pub fn volume_name<'a>(&'a self, call: &'a Call, registry: &'a PoolRef, key: &'a str) -> Name<'a> {
        let (tool, tag) = (&*self.tool, self.identity.tag.as_str());
        let (target, grace) = (LockTarget::VolumeName(key), self.timing.claim_grace);
        Name { tool, call, at: registry, target, tag, grace }
    }

    /// Whose pools and namespaces are asked for.
    pub fn question<'a>(&'a self, call: &'a Call) -> Question<'a> {
        Question { backend: NAME, clusters: &self.clusters, tool: &*self.tool, call }
    }
}

/// A pool and namespace within one call. Its methods are the tool's.
#[derive(Clone, Copy)]
pub(crate) struct Pool<'a> {
    pub context: &'a Context,
    pub call: &'a Call,
    pub at: &'a PoolRef,
}

impl<'a> Pool<'a> {
    /// Another pool within the same call.
    pub fn other(&self, at: &'a PoolRef) -> Self {
        Self { at, ..*self }
    }

    /// The place it is.
    pub fn place(&self) -> Place {
        self.at.place(NAME)
    }

    /// [`Context::key_of`]
    pub fn key_of(&self, id: &VolumeId) -> String {
        self.context.key_of(id)
    }

    /// The tag of this controller.
    pub fn tag(&self) -> &'a str {
        &self.context.identity.tag
    }

    /// The name of a snapshot, by its key.
    pub fn snapshot_name(&self, key: &'a str) -> Name<'a> {
        let (target, grace) = (LockTarget::SnapshotName(key), self.timing().snapshot_claim_grace);
        Name { tool: self.tool(), call: self.call, at: self.at, target, tag: self.tag(), grace }
    }

    /// The plugin's name.
    pub fn plugin(&self) -> &'a str {
        &self.context.identity.plugin
    }

    /// How long to wait for each thing.
    pub fn timing(&self) -> &'a Timing {
        &self.context.timing
    }

    /// What is remembered.
    pub fn memory(&self) -> &'a Memory {
        &self.context.memory
    }

    fn tool(&self) -> &'a dyn RbdTool {
        &*self.context.tool
    }
}

/// [`ImageTool`](crate::backend::rbd::tool::ImageTool), here.
impl Pool<'_> {
    pub fn create(&self, image: &NewImage<'_>) -> Result<Made> {
        self.tool().create(self.call, self.at, image)
    }

    pub fn info(&self, image: ImageRef<'_>) -> Result<Option<ImageInfo>> {
        self.tool().info(self.call, self.at, image)
    }

    pub fn metadata(&self, image: &str, key: &str) -> Result<Option<String>> {
        self.tool().metadata(self.call, self.at, image, key)
    }

    pub fn all_metadata(&self, image: &str) -> Result<Option<BTreeMap<String, String>>> {
        self.tool().all_metadata(self.call, self.at, image)
    }

    pub fn set_metadata(&self, image: &str, key: &str, value: &str) -> Result<Changed> {
        self.tool().set_metadata(self.call, self.at, image, key, value)
    }

    pub fn set_limits(&self, image: &str, limits: Limits<'_>) -> Result<Changed> {
        self.tool().set_limits(self.call, self.at, image, limits)
    }

    pub fn list(&self) -> Result<Vec<ListedImage>> {
        self.tool().list(self.call, self.at)
    }

    pub fn names(&self) -> Result<Vec<String>> {
        self.tool().names(self.call, self.at)
    }

    pub fn pool_options(&self) -> Result<Option<PoolOptions>> {
        self.tool().pool_options(self.call, self.at)
    }

    /// `rbd rm`, for [`remove`](crate::backend::rbd::image::remove) alone.
    pub fn remove(&self, image: &str) -> Result<Removed> {
        self.tool().remove(self.call, self.at, image)
    }

    /// The same.
    pub fn remove_large(&self, image: &str) -> Result<Removed> {
        self.tool().remove_large(self.call, self.at, image)
    }

    pub fn rename(&self, from: &str, to: &str) -> Result<Renamed> {
        self.tool().rename(self.call, self.at, from, to)
    }

    pub fn remove_name(&self, name: &str) -> Result<()> {
        self.tool().remove_name(self.call, self.at, name)
    }

    pub fn resize(&self, image: &str, size: u64) -> Result<Changed> {
        self.tool().resize(self.call, self.at, image, size)
    }

    pub fn watchers(&self, image: &str) -> Result<Option<Vec<Watcher>>> {
        self.tool().watchers(self.call, self.at, image)
    }
}

/// [`SnapshotTool`](crate::backend::rbd::tool::SnapshotTool), here.
impl Pool<'_> {
    pub fn create_snapshot(&self, image: &str, snapshot: &str) -> Result<Option<Made>> {
        self.tool().create_snapshot(self.call, self.at, image, snapshot)
    }

    pub fn snapshots(&self, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>> {
        self.tool().snapshots(self.call, self.at, image)
    }

    pub fn remove_snapshot(&self, image: ImageRef<'_>, snapshot: &str) -> Result<Removed> {
        self.tool().remove_snapshot(self.call, self.at, image, snapshot)
    }

    pub fn has_clones(&self, image: &str) -> Result<bool> {
        self.tool().has_clones(self.call, self.at, image)
    }

    pub fn remove_snapshot_by_number(&self, image: &str, snapshot: u64) -> Result<RemovedByNumber> {
        self.tool().remove_snapshot_by_number(self.call, self.at, image, snapshot)
    }

    pub fn clone_image(&self, clone: &NewClone<'_>) -> Result<Option<Made>> {
        self.tool().clone_image(self.call, clone)
    }

    pub fn flatten(&self, image: &str) -> Result<Changed> {
        self.tool().flatten(self.call, self.at, image)
    }

    pub fn disable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.tool().disable_features(self.call, self.at, image, features)
    }

    pub fn enable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.tool().enable_features(self.call, self.at, image, features)
    }

    pub fn rebuild_object_map(&self, image: &str) -> Result<Changed> {
        self.tool().rebuild_object_map(self.call, self.at, image)
    }
}

/// [`TrashTool`](crate::backend::rbd::tool::TrashTool), here.
impl Pool<'_> {
    pub fn trash(&self) -> Result<Vec<Trashed>> {
        self.tool().trash(self.call, self.at)
    }

    pub fn purge(&self, id: &str) -> Result<Removed> {
        self.tool().purge(self.call, self.at, id)
    }
}

/// [`LockTool`](crate::backend::rbd::tool::LockTool), here.
impl Pool<'_> {
    pub fn lock(&self, target: LockTarget<'_>, request: &LockRequest) -> Result<Locked> {
        self.tool().lock(self.call, self.at, target, request)
    }

    pub fn lock_state(&self, target: LockTarget<'_>) -> Result<LockState> {
        self.tool().lock_state(self.call, self.at, target)
    }

    pub fn holders(&self, target: LockTarget<'_>) -> Result<Vec<LockHolder>> {
        self.tool().holders(self.call, self.at, target)
    }

    pub fn unlock(&self, target: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        self.tool().unlock(self.call, self.at, target, holder)
    }

    pub fn remove_lockable(&self, target: LockTarget<'_>) -> Result<()> {
        self.tool().remove_lockable(self.call, self.at, target)
    }
}

/// [`MirrorTool`](crate::backend::rbd::tool::MirrorTool), here.
impl Pool<'_> {
    pub fn mirror_pool(&self) -> Result<MirrorPool> {
        self.tool().mirror_pool(self.call, self.at)
    }

    pub fn mirror_daemons(&self) -> Result<BTreeSet<String>> {
        self.tool().mirror_daemons(self.call, self.at)
    }

    pub fn mirror_status(&self, image: &str) -> Result<Option<MirrorStatus>> {
        self.tool().mirror_status(self.call, self.at, image)
    }

    pub fn mirrored_images(&self) -> Result<Vec<(String, Option<bool>)>> {
        self.tool().mirrored_images(self.call, self.at)
    }

    pub fn mirror_snapshots(&self, image: &str) -> Result<Option<Vec<MirrorSnapshot>>> {
        self.tool().mirror_snapshots(self.call, self.at, image)
    }

    pub fn has_bare_tag(&self, info: &ImageInfo) -> Result<bool> {
        self.tool().has_bare_tag(self.call, self.at, &info.name, &info.id)
    }

    pub fn enable_mirroring(&self, image: &str, mode: MirroringMode) -> Result<()> {
        self.tool().enable_mirroring(self.call, self.at, image, mode)
    }

    pub fn disable_mirroring(&self, image: &str, force: bool) -> Result<()> {
        self.tool().disable_mirroring(self.call, self.at, image, force)
    }

    pub fn promote(&self, image: &str) -> Result<Promoted> {
        self.tool().promote(self.call, self.at, image)
    }

    pub fn promote_by_force(&self, image: &str) -> Result<()> {
        self.tool().promote_by_force(self.call, self.at, image)
    }

    pub fn is_promoted_by_force(&self, image: &str) -> Result<bool> {
        self.tool().is_promoted_by_force(self.at, image)
    }

    pub fn demote(&self, image: &str) -> Result<()> {
        self.tool().demote(self.call, self.at, image)
    }

    pub fn request_resync(&self, image: &str) -> Result<()> {
        self.tool().request_resync(self.call, self.at, image)
    }

    pub fn schedules(&self, image: &str) -> Result<Vec<Schedule>> {
        self.tool().schedules(self.call, self.at, image)
    }

    pub fn add_schedule(&self, image: &str, schedule: &Schedule) -> Result<()> {
        self.tool().add_schedule(self.call, self.at, image, schedule)
    }

    pub fn remove_schedule(&self, image: &str, schedule: Option<&Schedule>) -> Result<()> {
        self.tool().remove_schedule(self.call, self.at, image, schedule)
    }
}
