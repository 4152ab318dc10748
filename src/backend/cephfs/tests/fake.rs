//! A cluster with a file system in memory. It carries out the manager's commands, keeps locks and indexes,
//! and can end the controller before or after any step.

mod locks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::disk::Disk;
use super::servers::Servers;
use crate::backend::ceph::locks::LockHolder;
use crate::backend::ceph::monitor::fake::text;
use crate::backend::ceph::monitor::{Asker, Command, Monitors};
use crate::backend::ceph::objects::{BindObjects, IndexTool, ObjectTool};
use crate::backend::ceph::{Failure, PoolRef};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Output, Why};

/// What happens at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The controller dies before it.
    Before,
    /// The controller dies after it.
    After,
    /// The controller dies; the manager carries the command out at the next start.
    Late,
}

type Other = Box<dyn FnMut() + Send>;

/// The `mds_max_snaps_per_dir` of the cluster.
pub(super) const MOST_SNAPSHOTS: usize = 8;

#[derive(Default)]
struct State {
    groups: BTreeSet<String>,
    /// By `GROUP/NAME`.
    subvolumes: BTreeMap<String, Disk>,
    index: BTreeMap<String, Vec<u8>>,
    /// By object.
    locks: BTreeMap<String, Vec<LockHolder>>,
    /// Commands that the manager carries out late.
    late: Vec<Command>,
    count: usize,
    steps: usize,
    fault: Option<(usize, Fault)>,
    is_dead: bool,
    /// How many more times the manager says that its module is not loaded.
    loads_left: usize,
    /// What becomes of the next clone.
    broken_clone: Option<Disk>,
    servers: Servers,
    /// What another controller does before a step.
    other: Option<(usize, Other)>,
}

/// The cluster. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct FakeFs(Arc<Mutex<State>>);

impl FakeFs {
    /// Ends the controller at this step, counted from now.
    pub fn fail_at(&self, step: usize, fault: Fault) {
        let mut state = self.0.lock();
        (state.steps, state.fault) = (0, Some((step, fault)));
    }

    /// Lets another controller act before this step, counted from now.
    pub fn before_step(&self, step: usize, act: impl FnMut() + Send + 'static) {
        let mut state = self.0.lock();
        let act: Other = Box::new(act);
        (state.steps, state.other) = (0, Some((step, act)));
    }

    /// Starts the manager anew: it says this often that its module is not loaded.
    pub fn restart_manager(&self, loads_left: usize) {
        self.0.lock().loads_left = loads_left;
    }

    /// The next clone is like this.
    pub fn break_clone(&self, left: Disk) {
        self.0.lock().broken_clone = Some(left);
    }

    /// Makes a subvolume by hand, or anew one of which only the snapshots are left.
    pub fn make_by_hand(&self, path: &str, is_old: bool) -> String {
        let mut state = self.0.lock();
        state.count += 1;
        let uuid = format!("uuid-{}", state.count);
        let disk = state.subvolumes.entry(path.to_string()).or_default();
        (disk.is_retained, disk.is_old, disk.uuid) = (false, is_old, uuid.clone());
        uuid
    }

    /// These clients mount all subvolumes: their numbers and the names of their hosts.
    pub fn mount_by(&self, clients: &[(u64, &str)]) {
        let named = |(id, host): &(u64, &str)| (*id, host.to_string());
        self.0.lock().servers.clients = clients.iter().map(named).collect();
    }

    /// The file system has these ranks, and these metadata servers with their ranks and states.
    pub fn serve_by(&self, ranks: &[u32], daemons: &[(i64, &'static str)]) {
        let servers = &mut self.0.lock().servers;
        (servers.ranks, servers.daemons) = (ranks.to_vec(), daemons.to_vec());
    }

    /// The cluster has the file systems of these names.
    pub fn set_file_systems(&self, names: &[&'static str]) {
        self.0.lock().servers.file_systems = names.to_vec();
    }

    /// Ends each metadata server before it is asked.
    pub fn end_servers(&self) {
        self.0.lock().servers.are_ending = true;
    }

    /// The clients that have all subvolumes mounted.
    pub fn clients(&self) -> Vec<u64> {
        self.0.lock().servers.clients.iter().map(|(id, _)| *id).collect()
    }

    /// Whether the controller was ended.
    pub fn is_dead(&self) -> bool {
        self.0.lock().is_dead
    }

    /// The next controller. What the manager has not carried out yet, it carries out now.
    pub fn restart(&self) {
        let mut state = self.0.lock();
        (state.fault, state.other, state.is_dead) = (None, None, false);
        for command in std::mem::take(&mut state.late) {
            let _ = state.carry_out(&command);
        }
    }

    /// The subvolumes, with their sizes.
    pub fn subvolumes(&self) -> Vec<(String, u64)> {
        let state = self.0.lock();
        let whole = state.subvolumes.iter().filter(|(_, disk)| !disk.is_retained);
        whole.map(|(path, disk)| (path.clone(), disk.size)).collect()
    }

    /// The snapshots, as `GROUP/NAME@SNAPSHOT`.
    pub fn snapshots(&self) -> Vec<String> {
        let state = self.0.lock();
        let all = |(path, disk): (&String, &Disk)| -> Vec<String> {
            disk.snapshots.iter().map(|snapshot| format!("{path}@{snapshot}")).collect()
        };
        state.subvolumes.iter().flat_map(all).collect()
    }

    /// The keys of the index, and the objects with locks that are held.
    pub fn rest(&self) -> Vec<String> {
        let state = self.0.lock();
        let held =
            state.locks.iter().filter(|(_, holders)| !holders.is_empty()).map(|(object, _)| object.clone());
        state.index.keys().cloned().chain(held).collect()
    }

    /// Removes all subvolumes by hand, with their snapshots.
    pub fn remove_by_hand(&self) {
        self.0.lock().subvolumes.clear();
    }

    /// Removes all subvolumes by hand, but for their snapshots.
    pub fn retain_by_hand(&self) {
        self.0.lock().subvolumes.values_mut().for_each(|disk| disk.is_retained = true);
    }

    /// Removes the snapshot with this `KEY-R` by hand.
    pub fn remove_snapshot_by_hand(&self, key_and_drawn: &str) {
        let is_other = |snapshot: &String| !snapshot.ends_with(key_and_drawn);
        self.0.lock().subvolumes.values_mut().for_each(|disk| disk.snapshots.retain(is_other));
    }

    /// Whether a subvolume of the group `csi` is of an old form.
    pub fn is_old(&self, name: &str) -> bool {
        self.0.lock().subvolumes.get(&format!("csi/{name}")).is_some_and(|disk| disk.is_old)
    }

    /// Lets the manager keep the snapshots of all subvolumes for clones that have ended.
    pub fn hold_snapshots(&self, are_held: bool) {
        self.0.lock().subvolumes.values_mut().for_each(|disk| disk.is_held = are_held);
    }

    /// Ends the clones in the manager's list.
    pub fn end_clones(&self) {
        let mut state = self.0.lock();
        state.subvolumes.values_mut().for_each(|disk| disk.is_queued = false);
        state.broken_clone = None;
    }

    /// Writes to all subvolumes, which have this many bytes then.
    pub fn fill(&self, used: u64) {
        self.0.lock().subvolumes.values_mut().for_each(|disk| disk.used = used);
    }

    /// Removes by hand what a manager has lost.
    pub fn remove_lost(&self) {
        self.0.lock().subvolumes.retain(|_, disk| !disk.is_lost);
    }

    /// Loses index and claims.
    pub fn lose_index(&self) {
        let mut state = self.0.lock();
        state.index.clear();
        state.locks.clear();
    }

    /// Carries out a step, unless the controller has died. `late` is the command that the manager may carry
    /// out after that.
    fn step<T>(&self, late: Option<&Command>, act: impl FnOnce(&mut State) -> T) -> Option<T> {
        let other = {
            let mut state = self.0.lock();
            state.steps += 1;
            let steps = state.steps;
            state.other.take_if(|(step, _)| *step == steps)
        };
        if let Some((_, mut act)) = other {
            act();
        }
        let mut state = self.0.lock();
        if state.is_dead {
            return None;
        }
        let fault = state.fault.filter(|(step, _)| *step == state.steps).map(|(_, fault)| fault);
        state.is_dead = fault.is_some();
        match fault {
            None => Some(act(&mut state)),
            Some(Fault::After) => {
                act(&mut state);
                None
            }
            Some(Fault::Before) => None,
            Some(Fault::Late) => {
                state.late.extend(late.cloned());
                None
            }
        }
    }

    fn object<T>(&self, act: impl FnOnce(&mut State) -> T) -> Result<T> {
        self.step(None, act).ok_or_else(|| Error::unavailable("the controller died"))
    }
}

impl State {
    fn has_target_group(&self, command: &Command) -> bool {
        let target = text(command, "target_group_name");
        target.is_empty() || self.groups.contains(target)
    }

    /// Refuses a command whose module the manager has not loaded yet.
    fn load(&mut self, command: &Command) -> Result<(), (i32, String)> {
        if self.loads_left == 0 || !text(command, "prefix").starts_with("fs sub") {
            return Ok(());
        }
        self.loads_left -= 1;
        let text = "Error ENOTSUP: Module 'volumes' is not enabled/loaded (required by command)";
        Err((libc::EOPNOTSUPP, text.into()))
    }

    /// The stdout of a command, or its status and text.
    fn carry_out(&mut self, command: &Command) -> Result<Value, (i32, String)> {
        let group = text(command, "group_name").to_string();
        let name = [text(command, "sub_name"), text(command, "clone_name")].concat();
        let number = |key: &str| {
            command
                .iter()
                .find(|(it, _)| *it == key)
                .and_then(|(_, value)| value.as_u64())
                .unwrap_or_default()
        };
        let path = format!("{group}/{name}");
        self.load(command)?;
        if let Some(answer) = self.servers.carry_out(command) {
            return answer;
        }
        match text(command, "prefix") {
            "fs subvolumegroup ls" => Ok(self.groups.iter().map(|name| json!({ "name": name })).collect()),
            "fs subvolumegroup create" => {
                self.groups.insert(group);
                Ok(Value::Null)
            }
            _ if !self.groups.contains(&group) || !self.has_target_group(command) => {
                Err((libc::ENOENT, format!("Error ENOENT: subvolume group '{group}' does not exist")))
            }
            "fs subvolume ls" => {
                let here = self.subvolumes.keys().filter_map(|path| path.strip_prefix(&format!("{group}/")));
                Ok(here.map(|name| json!({ "name": name })).collect())
            }
            "fs subvolume create" => {
                self.count += 1;
                let uuid = format!("uuid-{}", self.count);
                let disk = self.subvolumes.entry(path).or_insert(Disk { uuid, ..Disk::default() });
                disk.size = number("size");
                Ok(Value::Null)
            }
            "fs subvolume snapshot clone" => self.clone_snapshot(command, &path),
            prefix => self.carry_out_on((&group, &name), prefix, command, &number),
        }
    }

    fn carry_out_on(
        &mut self,
        (group, name): (&str, &str),
        prefix: &str,
        command: &Command,
        number: &dyn Fn(&str) -> u64,
    ) -> Result<Value, (i32, String)> {
        let path = format!("{group}/{name}");
        let absent = || (libc::ENOENT, format!("Error ENOENT: subvolume '{name}' does not exist"));
        let disk = self.subvolumes.get_mut(&path).ok_or_else(absent)?;
        if (disk.is_lost || disk.is_queued || disk.looks_left > 0) && prefix != "fs clone status" {
            return Err((libc::EAGAIN, "Error EAGAIN: is not ready for operation".into()));
        }
        disk.refuse_retention(command)?;
        let mut answer = disk.carry_out(prefix, (group, name), text(command, "snap_name"), number)?;
        if disk.is_retained && disk.snapshots.is_empty() {
            self.subvolumes.remove(&path);
        }
        if prefix == "fs subvolume snapshot info" {
            answer["pending_clones"] = self.queued();
        }
        Ok(answer)
    }

    fn queued(&self) -> Value {
        let queued = self.subvolumes.iter().filter(|(_, disk)| disk.is_queued);
        queued.filter_map(|(path, _)| Some(json!({ "name": path.split_once('/')?.1 }))).collect()
    }

    fn clone_snapshot(&mut self, command: &Command, source: &str) -> Result<Value, (i32, String)> {
        let snapshot = text(command, "snap_name");
        let source = self.subvolumes.get(source).filter(|disk| disk.snapshots.contains(snapshot));
        let Some(size) = source.map(|disk| disk.size) else {
            return Err((libc::ENOENT, format!("Error ENOENT: snapshot '{snapshot}' does not exist")));
        };
        let target = format!("{}/{}", text(command, "target_group_name"), text(command, "target_sub_name"));
        if self.subvolumes.contains_key(&target) {
            return Err((libc::EEXIST, "Error EEXIST: subvolume exists".into()));
        }
        self.count += 1;
        let uuid = format!("uuid-{}", self.count);
        let left = self.broken_clone.take();
        let disk = left.unwrap_or(Disk { size, uuid, looks_left: 2, ..Disk::default() });
        self.subvolumes.insert(target, disk);
        Ok(Value::Null)
    }
}

impl Monitors for FakeFs {
    fn ask(&self, (_, access): Asker<'_>, _: Class, commands: &[Command]) -> Result<Output, Failure> {
        let [command] = commands else { panic!("one command at a time") };
        let failed = |why: Why| Failure::new(access, why.of("ceph"));
        match self.step(Some(command), |state| state.carry_out(command)) {
            None => Err(failed(Why::Stopping)),
            Some(Ok(printed)) => {
                Ok(Output { stdout: printed.to_string().into_bytes(), stderr_tail: String::new() })
            }
            Some(Err((status, stderr_tail))) => {
                Err(failed(Why::Failed { status, stdout: Vec::new(), stderr_tail }))
            }
        }
    }
}

impl BindObjects for FakeFs {
    fn objects<'a>(&'a self, _: &'a Call, _: &'a PoolRef) -> Box<dyn ObjectTool + 'a> {
        Box::new(self.clone())
    }

    fn has_rados(&self) -> Result<()> {
        Ok(())
    }
}

impl IndexTool for FakeFs {
    fn entries(&self, _: &str) -> Result<BTreeMap<String, Vec<u8>>> {
        self.object(|state| state.index.clone())
    }

    fn entry(&self, _: &str, key: &str) -> Result<Option<Vec<u8>>> {
        self.object(|state| state.index.get(key).cloned())
    }

    fn set_entry(&self, _: &str, key: &str, value: &[u8]) -> Result<()> {
        self.object(|state| drop(state.index.insert(key.to_string(), value.to_vec())))
    }

    fn remove_entry(&self, _: &str, key: &str) -> Result<()> {
        self.object(|state| drop(state.index.remove(key)))
    }
}
