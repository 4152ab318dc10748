//! The commands for clones of snapshots. A clone takes the quota, the owner and the mode of its source. Until
//! it is complete, most commands say EAGAIN of it.

use serde::Deserialize;
use serde_json::Value;

use super::snapshots::snap_name;
use super::{
    Subvolumes, ask, is_absent, is_only_retained, is_wrong_pool, lacks_group, lacks_module, wrong_pool,
};
use crate::backend::ceph::read;
use crate::backend::cephfs::index::SnapshotPath;
use crate::error::{Error, Result};
use crate::exec::Class;

/// Whether a clone was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Now, or before.
    Yes,
    /// The manager makes as many as it can.
    NotYet,
    /// There is no such snapshot.
    NoSource,
}

/// How far a clone is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloneState {
    /// The manager has not begun to copy.
    Pending,
    /// In progress, in the manager's words.
    Unfinished(String),
    Complete,
    /// Broken off; in the manager's words.
    Failed(String),
    /// There is no such subvolume, or only its snapshots are left.
    Absent,
}

impl Subvolumes<'_> {
    /// Begins a clone of a snapshot, in this group, under a name that must be new. Its data go to this pool;
    /// without one to that of the source.
    pub fn begin_clone(&self, name: &str, of: &SnapshotPath, pool: Option<&str>) -> Result<Begun> {
        let source = Subvolumes { group: &of.group, ..*self };
        let begin = || {
            let arguments = [
                Some(snap_name(&of.snapshot)),
                Some(("target_sub_name", name.into())),
                self.group_as("target_group_name"),
                pool.map(|pool| ("pool_layout", pool.into())),
            ];
            let arguments = arguments.into_iter().flatten();
            source.of_one(Class::Change, "fs subvolume snapshot clone", &of.subvolume, arguments)
        };
        match self.within_group(begin)? {
            Ok(_) => Ok(Begun::Yes),
            Err(failure) if failure.status() == Some(libc::EEXIST) => Ok(Begun::Yes),
            Err(failure) if failure.status() == Some(libc::EAGAIN) => Ok(Begun::NotYet),
            Err(failure) if lacks_group(&failure) => {
                Err(Error::not_found("the group of its source was removed"))
            }
            Err(failure) if is_absent(&failure) => Ok(Begun::NoSource),
            Err(failure) if is_wrong_pool(&failure) => Err(wrong_pool(failure, pool)),
            Err(failure) => Err(self.error(failure, "copy to", name)),
        }
    }

    /// How far a clone is.
    pub fn clone_state(&self, name: &str) -> Result<CloneState> {
        let named = [("vol_name", Value::from(self.fs)), ("clone_name", name.into())];
        let arguments = named.into_iter().chain(self.group_as("group_name")).collect();
        match ask(&self.monitors, Class::Question, "fs clone status", arguments) {
            Ok(printed) => Ok(read::<CloneStatus>("ceph fs clone status", &printed)?.status.into()),
            Err(failure) if is_absent(&failure) => Ok(CloneState::Absent),
            Err(failure) if is_only_retained(&failure) => Ok(CloneState::Absent),
            // The manager died before it wrote that this is a clone.
            Err(failure) if failure.status() == Some(libc::EOPNOTSUPP) && !lacks_module(&failure) => {
                Ok(CloneState::Failed("it is no clone".to_string()))
            }
            Err(failure) => Err(self.error(failure, "look how far the copy is to", name)),
        }
    }

    /// Whether a clone of a snapshot is in the manager's list; None if the manager does not tell. A manager
    /// that dies in `snapshot clone` may leave a clone that is not in the list of its successor. It stays
    /// pending for ever: it can be neither cancelled nor removed.
    pub fn is_queued(&self, name: &str, of: &SnapshotPath) -> Result<Option<bool>> {
        self.queue(of).map(|queue| queue.has(name))
    }

    /// Whether the manager counts clones of a snapshot that have ended, and so never removes it. A manager
    /// takes a clone that has ended from its list, and then notes at the source that nothing is cloned from
    /// the snapshot (`detach_snapshot` in subvolume_v1.py); it may die in between. Managers before 16.2.11 do
    /// not tell.
    pub fn is_held_by_ended_clone(&self, of: &SnapshotPath) -> Result<bool> {
        self.queue(of).map(|queue| queue.orphan_clones_count > 0)
    }

    fn queue(&self, of: &SnapshotPath) -> Result<Queue> {
        let source = Subvolumes { group: &of.group, ..*self };
        let snapshot = [snap_name(&of.snapshot)];
        match source.of_one(Class::Question, "fs subvolume snapshot info", &of.subvolume, snapshot) {
            Ok(printed) => read("ceph fs subvolume snapshot info", &printed),
            Err(failure) if is_absent(&failure) => Ok(Queue::default()),
            Err(failure) => Err(source.error(failure, "look for copies of a snapshot of", &of.subvolume)),
        }
    }

    /// Removes a clone that is not complete, and that nothing is copied to any more.
    pub fn remove_unfinished(&self, name: &str) -> Result<()> {
        self.remove_with(Some("force"), name)
    }
}

/// `ceph fs subvolume snapshot info`
#[derive(Default, Deserialize)]
struct Queue {
    #[serde(default)]
    has_pending_clones: String,
    /// Not shown by managers before 16.2.11.
    #[serde(default)]
    pending_clones: Option<Vec<Queued>>,
    #[serde(default)]
    orphan_clones_count: u64,
}

#[derive(Deserialize)]
struct Queued {
    name: String,
}

impl Queue {
    fn has(&self, name: &str) -> Option<bool> {
        match &self.pending_clones {
            Some(clones) => Some(clones.iter().any(|clone| clone.name == name)),
            None => (self.has_pending_clones != "yes").then_some(false),
        }
    }
}

/// `ceph fs clone status`
#[derive(Deserialize)]
struct CloneStatus {
    status: Progress,
}

#[derive(Deserialize)]
struct Progress {
    state: String,
    #[serde(default)]
    failure: Option<Value>,
    #[serde(default)]
    progress_report: Option<Value>,
}

impl From<Progress> for CloneState {
    fn from(Progress { state, failure, progress_report }: Progress) -> Self {
        let detail = failure.or(progress_report).map(|detail| format!(" {detail}")).unwrap_or_default();
        match state.as_str() {
            "complete" => Self::Complete,
            "failed" | "canceled" => Self::Failed(format!("{state}{detail}")),
            "pending" => Self::Pending,
            _ => Self::Unfinished(format!("{state}{detail}")),
        }
    }
}
