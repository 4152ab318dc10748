//! The tool's questions, answered from memory.

use std::collections::BTreeMap;
use std::time::Duration;

use super::state::{Disk, Link, State, path};
use super::{FakeCluster, FakePool, Fault};
use crate::backend::ceph::locks::LockState;
use crate::backend::ceph::monitor::fake::text;
use crate::backend::ceph::monitor::{Asker, Command};
use crate::backend::ceph::{ClusterTool, Failure, FreeSpace, Monitors, PoolRef};
use crate::backend::rbd::tool::{
    Changed, ImageInfo, ImageRef, ImageTool, Limits, ListedImage, LockHolder, LockRequest, LockTarget,
    LockTool, Locked, Made, MadeImage, NewClone, NewImage, PoolOptions, PoolTool, RbdTool, Removed,
    RemovedByNumber, Renamed, SnapshotInfo, SnapshotTool, TrashTool, Trashed, Watcher,
};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Output, Why};

/// How long a change takes at most.
const LONGEST_CHANGE: Duration = Duration::from_secs(245);

/// An image in the record of steps.
fn told(image: ImageRef<'_>) -> String {
    match image {
        ImageRef::Name(name) => name.to_string(),
        ImageRef::Id(id) => format!("#{id}"),
    }
}

impl FakePool {
    /// A step that only reads.
    pub(super) fn ask<T>(&self, step: String, read: impl FnOnce(&State) -> T) -> Result<T> {
        self.step(step, |state| state.check(&self.at).map(|()| read(state)))
    }

    /// A step that changes one image, known by name.
    fn change(
        &self,
        step: String,
        image: &str,
        change: impl FnOnce(&mut Disk) -> Result<()>,
    ) -> Result<Changed> {
        self.step(step, |state| {
            state.check_room(&self.at)?;
            match state.find_mut(&self.at, ImageRef::Name(image)) {
                Some(disk) => change(disk).map(|()| Changed::Done),
                None => Ok(Changed::Absent),
            }
        })
    }

    /// Fails, like the runner of a command, if the call may not begin a command any more.
    fn begin(&self) -> Result<()> {
        if self.call.may_begin() { Ok(()) } else { Err(Error::timeout("it may not be begun any more")) }
    }
}

impl ImageTool for FakePool {
    fn create(&self, image: &NewImage<'_>) -> Result<MadeImage> {
        let step = format!("create {}", image.name);
        self.half_step(
            step,
            |state| state.create(&self.at, image),
            |state| state.create_half(&self.at, image),
        )
    }

    fn info(&self, image: ImageRef<'_>) -> Result<Option<ImageInfo>> {
        let step = format!("info {}", told(image));
        let told = |info: ImageInfo| match image {
            ImageRef::Name(name) => ImageInfo { name: name.to_string(), ..info },
            ImageRef::Id(_) => info,
        };
        self.ask(step, |state| state.find(&self.at, image).map(|disk| told(state.info(disk))))
    }

    fn metadata(&self, image: &str, key: &str) -> Result<Option<String>> {
        let value = |state: &State| state.find(&self.at, ImageRef::Name(image))?.metadata.get(key).cloned();
        self.ask(format!("metadata {image} {key}"), value)
    }

    fn all_metadata(&self, image: &str) -> Result<Option<BTreeMap<String, String>>> {
        let all =
            |state: &State| state.find(&self.at, ImageRef::Name(image)).map(|disk| disk.metadata.clone());
        self.ask(format!("all_metadata {image}"), all)
    }

    fn set_metadata(&self, image: &str, key: &str, value: &str) -> Result<Changed> {
        self.change(format!("set_metadata {image} {key}"), image, |disk| {
            disk.metadata.insert(key.to_string(), value.to_string());
            Ok(())
        })
    }

    fn set_limits(&self, image: &str, limits: Limits<'_>) -> Result<Changed> {
        self.change(format!("set_limits {image}"), image, |disk| {
            // The cluster keeps limits as metadata, so clones inherit them with the rest.
            for (key, value) in limits.iter().map(|(name, value)| (format!("conf_{name}"), value)) {
                match value {
                    0 => disk.metadata.remove(&key),
                    _ => disk.metadata.insert(key, value.to_string()),
                };
            }
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<ListedImage>> {
        self.ask("list".to_string(), |state| state.entries(&self.at))
    }

    fn names(&self) -> Result<Vec<String>> {
        self.ask("names".to_string(), |state| state.names(&self.at))
    }

    /// No step: it changes nothing, and is asked once a minute.
    fn pool_options(&self) -> Result<Option<PoolOptions>> {
        Ok(self.0.lock().state.pools.get(&self.at.pool).map(|pool| pool.options.clone()))
    }

    fn remove(&self, image: &str) -> Result<Removed> {
        self.begin()?;
        let act = |state: &mut State| state.check(&self.at).map(|()| state.remove_named(&self.at, image));
        self.broken_step(format!("remove {image}"), act, |state, fault| match fault {
            Fault::HalfMoved => state.move_half(&self.at, image),
            _ => state.remove_half(&self.at, image),
        })
    }

    fn remove_large(&self, image: &str) -> Result<Removed> {
        self.remove(image)
    }

    fn rename(&self, from: &str, to: &str) -> Result<Renamed> {
        self.begin()?;
        let act = |state: &mut State| state.check(&self.at).map(|()| state.rename(&self.at, from, to));
        self.broken_step(format!("rename {from} {to}"), act, |state, fault| {
            state.rename_half(&self.at, from, to, fault)
        })
    }

    fn remove_name(&self, name: &str) -> Result<()> {
        let act = |state: &mut State| {
            state.check(&self.at).map(|()| state.second_names.remove(&path(&self.at, name)))
        };
        self.step(format!("remove_name {name}"), act).map(drop)
    }

    fn resize(&self, image: &str, size: u64) -> Result<Changed> {
        self.change(format!("resize {image}"), image, |disk| {
            if size < disk.size {
                return Err(Error::out_of_range(format!(
                    "image {image:?} has {} bytes: it is not made smaller",
                    disk.size
                )));
            }
            disk.size = size;
            Ok(())
        })
    }

    fn watchers(&self, image: &str) -> Result<Option<Vec<Watcher>>> {
        let watchers =
            |state: &State| state.find(&self.at, ImageRef::Name(image)).map(|disk| disk.watchers.clone());
        self.ask(format!("watchers {image}"), watchers)
    }
}

impl SnapshotTool for FakePool {
    fn create_snapshot(&self, image: &str, snapshot: &str) -> Result<Option<Made>> {
        let act = |state: &mut State| {
            state.check_room(&self.at).map(|()| state.create_snapshot(&self.at, image, snapshot))
        };
        self.step(format!("take_snapshot {image}@{snapshot}"), act)
    }

    fn snapshots(&self, image: ImageRef<'_>) -> Result<Option<Vec<SnapshotInfo>>> {
        let all = |disk: &Disk| disk.snapshots.iter().map(|shot| shot.snap.clone()).collect();
        self.ask(format!("snapshots {}", told(image)), |state| state.find(&self.at, image).map(all))
    }

    fn remove_snapshot(&self, image: ImageRef<'_>, snapshot: &str) -> Result<Removed> {
        let act = |state: &mut State| {
            state.check(&self.at).and_then(|()| state.remove_snapshot(&self.at, image, snapshot))
        };
        self.step(format!("remove_snapshot {}@{snapshot}", told(image)), act)
    }

    fn has_clones(&self, image: &str) -> Result<bool> {
        self.ask(format!("has_clones {image}"), |state| {
            state.find(&self.at, ImageRef::Name(image)).is_some_and(|disk| state.has_clones(&disk.id))
        })
    }

    fn remove_snapshot_by_number(&self, image: &str, snapshot: u64) -> Result<RemovedByNumber> {
        let link = Link { image: image.to_string(), snapshot };
        let act = |state: &mut State| state.check(&self.at).map(|()| state.remove_snapshot_by_number(&link));
        self.step(format!("remove_snapshot_by_number #{image}@{snapshot}"), act)
    }

    fn clone_image(&self, clone: &NewClone<'_>) -> Result<Option<Made>> {
        let NewClone { from, image, snapshot, to, name, layout } = *clone;
        let act = |state: &mut State| {
            state.check(from)?;
            state.clone_image(state.link(from, image, snapshot), to, name, layout)
        };
        let half = |state: &mut State| state.clone_half(state.link(from, image, snapshot), to, name, layout);
        self.half_step(format!("clone_image {image}@{snapshot} {name}"), act, half)
    }

    fn flatten(&self, image: &str) -> Result<Changed> {
        let act =
            |state: &mut State| state.check_room(&self.at).and_then(|()| state.flatten(&self.at, image));
        self.half_step(format!("flatten {image}"), act, |state| state.flatten_half(&self.at, image))
    }

    fn disable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.change(format!("disable_features {image}"), image, |disk| {
            let has_all = features.iter().all(|feature| disk.features.remove(*feature));
            if has_all { Ok(()) } else { Err(Error::invalid("features that are already disabled")) }
        })
    }

    fn enable_features(&self, image: &str, features: &[&str]) -> Result<Changed> {
        self.change(format!("enable_features {image}"), image, |disk| {
            let has_none = features.iter().all(|feature| disk.features.insert((*feature).to_string()));
            disk.is_map_invalid = true;
            if has_none { Ok(()) } else { Err(Error::invalid("features that are already enabled")) }
        })
    }

    fn rebuild_object_map(&self, image: &str) -> Result<Changed> {
        self.change(format!("rebuild_object_map {image}"), image, |disk| {
            disk.is_map_invalid = false;
            Ok(())
        })
    }
}

impl TrashTool for FakePool {
    fn trash(&self) -> Result<Vec<Trashed>> {
        self.ask("trash".to_string(), |state| state.in_trash(&self.at))
    }

    fn purge(&self, id: &str) -> Result<Removed> {
        self.step(format!("purge #{id}"), |state| state.check(&self.at).map(|()| state.purge(&self.at, id)))
    }
}

/// As `rados` does, these methods check the pool, and not the namespace.
impl LockTool for FakePool {
    fn lock(&self, on: LockTarget<'_>, hold: &LockRequest) -> Result<Locked> {
        self.begin()?;
        self.step(format!("lock {on:?} {}", hold.cookie), |state| {
            state.check_pool_room(&self.at.pool).map(|()| state.lock(&self.at, on, hold))
        })
    }

    fn lock_state(&self, on: LockTarget<'_>) -> Result<LockState> {
        self.step(format!("holders {on:?}"), |state| {
            state.pool(&self.at.pool)?;
            Ok(state.lock_state(&self.at, on))
        })
    }

    fn unlock(&self, on: LockTarget<'_>, holder: &LockHolder) -> Result<()> {
        self.step(format!("unlock {on:?} {}", holder.cookie), |state| {
            state.pool(&self.at.pool)?;
            state.unlock(&self.at, on, holder);
            Ok(())
        })
    }

    fn remove_lockable(&self, on: LockTarget<'_>) -> Result<()> {
        self.step(format!("remove_lockable {on:?}"), |state| {
            state.pool(&self.at.pool)?;
            state.remove_object(&self.at, on)
        })
    }
}

impl ClusterTool for FakeCluster {
    fn monitors(&self) -> &dyn Monitors {
        self
    }

    fn has_pool(&self, _: &Call, at: &PoolRef) -> Result<bool> {
        self.step(format!("has_pool {}", at.pool), |state| Ok(state.pools.contains_key(&at.pool)))
    }

    fn namespaces(&self, _: &Call, at: &PoolRef) -> Result<Vec<String>> {
        self.step(format!("namespaces {}", at.pool), |state| {
            Ok(state.pool(&at.pool)?.namespaces.iter().cloned().collect())
        })
    }

    fn free_space(&self, _: &Call, at: &PoolRef, pool: &str) -> Result<FreeSpace> {
        self.step(format!("room {pool}"), |state| {
            state.check(at).and_then(|()| state.pool(pool).map(|pool| pool.room))
        })
    }
}

/// The name of the step for a command to the monitors.
fn step_of(command: &Command) -> String {
    match (text(command, "prefix"), text(command, "blocklistop")) {
        ("osd pool ls", _) => "pools".into(),
        ("df", _) => "rooms".into(),
        ("health", _) => "health".into(),
        ("osd blocklist", "add") => format!("shut_out {}", text(command, "addr")),
        ("osd blocklist ls", _) => "blocklist".into(),
        other => panic!("nothing of RBD asks for {other:?}"),
    }
}

/// What monitors answer.
type Asked = std::result::Result<Output, Failure>;

impl Monitors for FakeCluster {
    fn ask(&self, (_, access): Asker<'_>, _: Class, commands: &[Command]) -> Asked {
        let step = step_of(&commands[0]);
        let answer = self.step(step.clone(), |state| Ok(state.ask_monitors(commands)));
        let killed = |_| Why::TimedOut { after: LONGEST_CHANGE, reaped: true, stderr_tail: String::new() };
        answer.map_err(killed).and_then(|answer| answer).map_err(|why| Failure::new(access, why.of(step)))
    }
}

impl RbdTool for FakeCluster {
    fn bind<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn PoolTool + 'a> {
        Box::new(FakePool { cluster: self.clone(), call: call.clone(), at: at.clone() })
    }

    fn usable(&self) -> Result<()> {
        if self.0.lock().state.without_tools { Err(Error::precondition("there is no rbd")) } else { Ok(()) }
    }

    fn longest_change(&self) -> Duration {
        LONGEST_CHANGE
    }
}
