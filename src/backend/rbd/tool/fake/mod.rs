//! A Ceph cluster in memory, for tests of everything above the tool. It behaves as Ceph 16.2 was seen to
//! behave, oddities included. One method of the tool is one step; a test plans what fails at which step, and
//! what other clients do in between.

mod answers;
mod commands;
mod dump;
mod locks;
mod mirror;
mod mirrored;
mod object;
mod records;
mod script;
mod state;
mod tests;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

pub use self::script::Fault;
use self::script::Script;
use self::state::{Disk, FEATURES, Place, Pool, State};
use super::{ImageRef, Layout, PoolOptions, PoolTool, Watcher};
use crate::backend::BegunRenames;
use crate::backend::ceph::monitor::blocklist::Entry;
use crate::backend::ceph::{ClusterAccess, FreeSpace, PoolRef};
use crate::clock::rfc3339;
use crate::clusters::{Cluster, Credentials};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::secrets::{Secret, Secrets};

/// How long a step takes.
const STEP: Duration = Duration::from_millis(50);

/// A cluster in memory. Clones are the same cluster. All helpers panic if they are asked for something that
/// does not exist, and none of them is a step.
#[derive(Clone)]
pub struct FakeCluster(Arc<Mutex<Inner>>);

/// A pool and namespace of it within a call.
struct FakePool {
    cluster: FakeCluster,
    call: Call,
    at: PoolRef,
}

impl Deref for FakePool {
    type Target = FakeCluster;

    fn deref(&self) -> &FakeCluster {
        &self.cluster
    }
}

struct Inner {
    state: State,
    script: Script,
    /// By the tags of the controllers.
    renames: BTreeMap<String, Arc<dyn BegunRenames>>,
}

impl fmt::Debug for FakeCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dump())
    }
}

impl Default for FakeCluster {
    fn default() -> Self {
        Self::new()
    }
}

/// Access to a cluster as if an operator had set it up; the fake does not look at it.
fn access() -> ClusterAccess {
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let cluster = Cluster { credentials: Some(credentials), ..Cluster::named("ceph") };
    ClusterAccess::new(Arc::new(cluster), &Secrets::default()).expect("credentials")
}

/// The content of a cluster.
impl FakeCluster {
    /// An empty cluster with the pool `rbd`.
    pub fn new() -> Self {
        let (state, script, renames) = (State::new(), Script::default(), BTreeMap::new());
        let cluster = Self(Arc::new(Mutex::new(Inner { state, script, renames })));
        cluster.add_pool("rbd");
        cluster
    }

    /// The pool `rbd`.
    pub fn at(&self) -> PoolRef {
        self.at_pool("rbd", "")
    }

    /// The tool in this pool and namespace, for a call of its own.
    pub fn on(&self, at: &PoolRef) -> Box<dyn PoolTool> {
        Box::new(FakePool { cluster: self.clone(), call: Call::internal("test"), at: at.clone() })
    }

    /// The same in the pool `rbd`.
    pub fn here(&self) -> Box<dyn PoolTool> {
        self.on(&self.at())
    }

    /// A pool and a namespace, existing or not.
    pub fn at_pool(&self, pool: &str, namespace: &str) -> PoolRef {
        PoolRef { access: access(), pool: pool.to_string(), namespace: namespace.to_string() }
    }

    /// Adds a pool with room for 1 TiB.
    pub fn add_pool(&self, pool: &str) {
        let room = FreeSpace { available: 1 << 40, full: false };
        let (namespaces, labels) = (BTreeSet::new(), BTreeMap::new());
        let options = PoolOptions { features: FEATURES.map(str::to_string).into(), ..PoolOptions::default() };
        let added = Pool { room, namespaces, labels, options };
        self.0.lock().state.pools.insert(pool.to_string(), added);
    }

    /// Writes a label on a pool.
    pub fn label(&self, pool: &str, key: &str, value: &str) {
        self.pool(pool, |pool| pool.labels.insert(key.to_string(), value.to_string()));
    }

    /// `rbd config pool set`
    pub fn set_options(&self, pool: &str, set: impl FnOnce(&mut PoolOptions)) {
        self.pool(pool, |pool| set(&mut pool.options));
    }

    /// Takes `count` snapshots of an image.
    pub fn take_snapshots(&self, at: &PoolRef, image: &str, count: usize) {
        let state = &mut self.0.lock().state;
        for number in 0..count {
            state.create_snapshot(at, image, &format!("by-hand-{number}")).expect("an image that is there");
        }
    }

    /// Removes a pool with all that is in it.
    pub fn remove_pool(&self, pool: &str) {
        let state = &mut self.0.lock().state;
        state.pools.remove(pool);
        state.images.retain(|_, disk| disk.pool != pool);
        state.objects.retain(|(at, ..), _| at != pool);
    }

    /// Adds a namespace to a pool.
    pub fn add_namespace(&self, pool: &str, namespace: &str) {
        self.pool(pool, |pool| pool.namespaces.insert(namespace.to_string()));
    }

    /// Sets the room in a pool. Nothing else changes it; a full pool takes no more images, snapshots, locks
    /// or changes.
    pub fn set_room(&self, pool: &str, room: FreeSpace) {
        self.pool(pool, |pool| pool.room = room);
    }

    fn pool<T>(&self, pool: &str, act: impl FnOnce(&mut Pool) -> T) -> T {
        act(self.0.lock().state.pools.get_mut(pool).expect("a pool that was added"))
    }

    fn disk<T>(&self, at: &PoolRef, image: &str, act: impl FnOnce(&mut Disk) -> T) -> T {
        let mut inner = self.0.lock();
        act(inner
            .state
            .find_mut(at, ImageRef::Name(image))
            .unwrap_or_else(|| panic!("there is no image {image:?}")))
    }

    /// A client of librbd at `address` opens an image.
    pub fn watch(&self, at: &PoolRef, image: &str, address: &str) {
        let watcher = Watcher {
            address: address.to_string(),
            client: format!("client.{}", self.0.lock().state.number()),
            is_kernel: false,
        };
        self.disk(at, image, |disk| disk.watchers.push(watcher));
    }

    /// The kernel's driver at `address` maps an image.
    pub fn watch_by_kernel(&self, at: &PoolRef, image: &str, address: &str) {
        self.watch(at, image, address);
        self.disk(at, image, |disk| {
            disk.watchers.iter_mut().for_each(|it| it.is_kernel |= it.address == address)
        });
    }

    /// A client at `address` opens the image with this id, in whichever pool it is.
    pub fn watch_id(&self, id: &str, address: &str) {
        let watcher = Watcher { address: address.to_string(), client: "client.1".into(), is_kernel: false };
        let mut inner = self.0.lock();
        inner.state.images.get_mut(id).expect("the image exists").watchers.push(watcher);
    }

    /// The client at `address` closes everything.
    pub fn unwatch(&self, address: &str) {
        let disks = &mut self.0.lock().state.images;
        disks.values_mut().for_each(|disk| disk.watchers.retain(|watcher| watcher.address != address));
    }

    /// Shuts a client's address out as librbd does: for an hour.
    pub fn shut_out(&self, address: &str) {
        self.shut_out_for(address, Duration::from_secs(3600));
    }

    /// Shuts a client's address out for this time.
    pub fn shut_out_for(&self, address: &str, time: Duration) {
        let state = &mut self.0.lock().state;
        let until = rfc3339(state.now + time);
        state.monitors.entries.push(Entry::of_address(address, &until));
    }

    /// The addresses that are shut out, and when that ends.
    pub fn blocklist(&self) -> Vec<Entry> {
        self.0.lock().state.monitors.entries.clone()
    }

    /// From now on the daemon's machine has no tools.
    pub fn take_tools_away(&self) {
        self.0.lock().state.without_tools = true;
    }

    /// Writes to an image: the token stands for all its data.
    pub fn write(&self, at: &PoolRef, image: &str, token: &str) {
        self.disk(at, image, |disk| disk.content = token.to_string());
    }

    /// The data of an image; empty if it is blank.
    pub fn content(&self, at: &PoolRef, image: &str) -> String {
        self.disk(at, image, |disk| disk.content.clone())
    }

    /// The metadata of an image, limits (`conf_rbd_qos_iops_limit`, …) included.
    pub fn all_metadata(&self, at: &PoolRef, image: &str) -> BTreeMap<String, String> {
        self.disk(at, image, |disk| disk.metadata.clone())
    }

    /// The layout an image was made with.
    pub fn layout(&self, at: &PoolRef, image: &str) -> Layout {
        self.disk(at, image, |disk| disk.layout.clone())
    }

    /// `rbd trash mv`, by an operator.
    pub fn put_aside(&self, at: &PoolRef, image: &str) {
        self.disk(at, image, |disk| disk.place = Place::Trash);
    }

    /// The killed removal of the image with this id got further: the header is gone, too.
    pub fn remove_header(&self, id: &str) {
        let mut inner = self.0.lock();
        inner.state.images.get_mut(id).expect("the image exists").is_headless = true;
    }

    /// `rbd snap protect`
    pub fn protect_snapshot(&self, at: &PoolRef, image: &str, number: u64) {
        self.disk(at, image, |disk| {
            disk.snapshots
                .iter_mut()
                .filter(|shot| shot.snap.id == number)
                .for_each(|shot| shot.is_protected = true);
        });
    }

    /// A deletion of a snapshot is killed after it has moved the snapshot to its image's trash.
    pub fn leave_snapshot_in_trash(&self, at: &PoolRef, image: &str, number: u64) {
        self.disk(at, image, |disk| {
            disk.snapshots
                .iter_mut()
                .filter(|shot| shot.snap.id == number)
                .for_each(|shot| shot.snap.trashed = true);
        });
    }

    /// From now on a snapshot stays in the trash when its last clone goes, as it does if the removal of the
    /// clone is killed.
    pub fn leave_snapshots(&self) {
        self.0.lock().state.leaves_snapshots = true;
    }

    /// From now on a rename finds a taken name free, as if the name was taken after the rename looked.
    pub fn overtake_renames(&self) {
        self.0.lock().state.overtakes_renames = true;
    }

    /// Lets time pass; locks taken for some seconds run out.
    pub fn advance(&self, time: Duration) {
        self.0.lock().state.now += time;
    }

    /// Sets the time.
    pub fn set_now(&self, now: SystemTime) {
        self.0.lock().state.now = now;
    }

    /// Everything that exists, one line each, sorted; see the module `dump`.
    pub fn dump(&self) -> String {
        let state = &mut self.0.lock().state;
        state.expire();
        dump::text(state)
    }
}

/// What happens at which step. `k` counts from now; the next step is 1.
impl FakeCluster {
    /// The steps so far, as method and names: how many processes would have run.
    pub fn steps(&self) -> Vec<String> {
        self.0.lock().script.steps.clone()
    }

    /// Empties the record of steps.
    pub fn forget_steps(&self) {
        self.0.lock().script.steps.clear();
    }

    /// Has the k-th step fail like a command that was killed.
    pub fn fail_at(&self, k: u64, fault: Fault) {
        self.0.lock().script.plan_fault(k, fault, false);
    }

    /// Has the daemon die at the k-th step: all later steps fail without being taken, until
    /// [`restart`](Self::restart).
    pub fn crash_at(&self, k: u64, fault: Fault) {
        self.0.lock().script.plan_fault(k, fault, true);
    }

    /// Whether the daemon has died.
    pub fn is_dead(&self) -> bool {
        self.0.lock().script.is_dead()
    }

    /// Whether a planned fault was not reached yet: a loop over all steps ends here.
    pub fn fault_pending(&self) -> bool {
        self.0.lock().script.fault_pending()
    }

    /// The daemon is back, and no faults are planned any more.
    pub fn restart(&self) {
        self.0.lock().script.restart();
    }

    /// Runs `hook` after the k-th step, before the caller goes on. Steps that are taken meanwhile are neither
    /// recorded nor counted, and do not fail.
    pub fn on_step(&self, k: u64, hook: impl FnOnce(&FakeCluster) + Send + 'static) {
        self.0.lock().script.plan_hook(k, Box::new(hook));
    }

    fn step<T>(&self, name: String, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        self.half_step(name, act, |_| ())
    }

    /// Takes one step: all of it, half of it or nothing.
    fn half_step<T>(
        &self,
        name: String,
        act: impl FnOnce(&mut State) -> Result<T>,
        half: impl FnOnce(&mut State),
    ) -> Result<T> {
        self.broken_step(name, act, |state, _| half(state))
    }

    /// The same for a step that can be broken off at more than one point.
    fn broken_step<T>(
        &self,
        name: String,
        act: impl FnOnce(&mut State) -> Result<T>,
        half: impl FnOnce(&mut State, Fault),
    ) -> Result<T> {
        let mut guard = self.0.lock();
        let Inner { state, script, .. } = &mut *guard;
        state.now += STEP;
        let fault = script.step(&name);
        let answer = match fault {
            None => Some(act(state)),
            Some(Fault::Before) => None,
            Some(Fault::After) => {
                drop(act(state));
                None
            }
            Some(fault @ (Fault::HalfMade | Fault::HalfMoved)) => {
                half(state, fault);
                None
            }
        };
        let hook = script.hook();
        script.intruding |= hook.is_some();
        drop(guard);
        if let Some(hook) = hook {
            hook(self);
            self.0.lock().script.intruding = false;
        }
        answer.unwrap_or_else(|| Err(Error::timeout(format!("{name}: killed, it took too long"))))
    }
}
