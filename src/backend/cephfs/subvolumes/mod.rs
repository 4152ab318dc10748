//! The manager's commands for subvolumes (`ceph fs subvolume`, 16.2 and later), and the meaning of their
//! answers.
//!
//! - `create` changes a subvolume that exists (its size, also downwards; its mode), and two callers both
//!   succeed. So it is only called for names that were never used.
//! - A manager that died in `create`, and gets the command again from the client, may answer with a subvolume
//!   of the old form, without an id of its own.
//! - `rm` succeeds while clients have the subvolume mounted. Told to retain snapshots, it removes the data
//!   and keeps them; without any it removes the subvolume, and so does the removal of the last snapshot.
//! - Subvolumes of the old forms, which retain no snapshots, are only removed without them.
//! - `resize --no_shrink` refuses sizes below the used one, even the present size, and no others.

mod clones;
mod snapshots;

use std::collections::BTreeSet;
use std::slice;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::backend::ceph::monitor::{Command, MonitorClient};
use crate::backend::ceph::{Failure, read};
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::owner::Owner;

pub(crate) use self::clones::{Begun, CloneState};
pub(crate) use self::snapshots::SnapshotRemoved;

/// How long to wait for the module of a manager that has just started, and the pause between two attempts.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// A file system of a cluster, as `ceph fs ls --format=json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct FileSystem {
    pub name: String,
    pub metadata_pool: String,
    /// The pools for the data of files; the first one is used unless a subvolume names another.
    pub data_pools: Vec<String>,
}

/// A subvolume, as `info` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subvolume {
    /// The path of its root in the file system.
    pub path: String,
    /// Its own id: the last part of the path. None for one of the old form.
    pub uuid: Option<String>,
    /// Its quota in bytes; None if it has none.
    pub size: Option<u64>,
    /// The bytes of its files.
    pub used: u64,
    /// The pool of its data.
    pub data_pool: String,
    /// Whether its snapshots outlive its removal. Those of the old forms do not.
    pub retains_snapshots: bool,
}

/// A subvolume to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewSubvolume {
    pub size: u64,
    /// The pool for its data; None for the first one of the file system.
    pub pool: Option<String>,
    /// The owner of its root; that of the group where it is None.
    pub owner: Owner,
}

/// The file systems of a cluster.
pub(crate) fn file_systems(monitors: &MonitorClient<'_>) -> Result<Vec<FileSystem>> {
    let printed = ask(monitors, Class::Question, "fs ls", Vec::new());
    read("ceph fs ls", &printed.map_err(|failure| failed(failure, "list the file systems"))?)
}

/// What a command prints that begins with `fs`. A manager that has just started is waited for.
pub(crate) fn ask(
    monitors: &MonitorClient<'_>,
    class: Class,
    prefix: &'static str,
    arguments: Vec<(&'static str, Value)>,
) -> Result<Vec<u8>, Failure> {
    let (prefix, format) = ([("prefix", prefix.into())], [("format", "json".into())]);
    let command: Command = prefix.into_iter().chain(arguments).chain(format).collect();
    let ask = || monitors.ask(class, slice::from_ref(&command)).map(|output| output.stdout);
    let answer = ask();
    if !is_starting(&answer) {
        return answer;
    }
    let again = || Ok(Some(ask()).filter(|answer| !is_starting(answer)));
    let later = monitors.call.wait_for("the manager, which has just started", STARTS_WITHIN, PAUSE, again);
    later.ok().flatten().unwrap_or(answer)
}

/// The subvolumes of a group.
#[derive(Clone, Copy)]
pub(crate) struct Subvolumes<'a> {
    pub monitors: MonitorClient<'a>,
    /// The file system.
    pub fs: &'a str,
    /// The group; empty for none.
    pub group: &'a str,
}

impl Subvolumes<'_> {
    /// Makes a subvolume, whose name must be new.
    pub fn create(&self, name: &str, new: &NewSubvolume) -> Result<()> {
        let NewSubvolume { size, pool, owner: Owner { uid, gid, mode } } = new;
        let create = || {
            let arguments = [
                Some(("size", Value::from(*size))),
                pool.as_ref().map(|pool| ("pool_layout", pool.as_str().into())),
                uid.map(|uid| ("uid", uid.into())),
                gid.map(|gid| ("gid", gid.into())),
                mode.map(|mode| ("mode", format!("{mode:04o}").into())),
            ];
            self.of_one(Class::Change, "fs subvolume create", name, arguments.into_iter().flatten())
        };
        match self.within_group(create)? {
            Ok(_) => Ok(()),
            Err(failure) if lacks_group(&failure) => {
                Err(Error::unavailable("its group was removed during this call: try again"))
            }
            Err(failure) if is_wrong_pool(&failure) => Err(wrong_pool(failure, pool.as_deref())),
            Err(failure) => Err(self.error(failure, "make", name)),
        }
    }

    /// The answer to a command that needs the group; if that is missing, it is made first.
    fn within_group(&self, ask: impl Fn() -> Result<Vec<u8>, Failure>) -> Result<Result<Vec<u8>, Failure>> {
        match ask() {
            Err(failure) if lacks_group(&failure) => self.ensure_group().map(|()| ask()),
            answer => Ok(answer),
        }
    }

    /// Makes the group, if it is missing. For a group that exists, `create` would reset owner and mode.
    fn ensure_group(&self) -> Result<()> {
        let of_fs = || vec![("vol_name", Value::from(self.fs))];
        let doing = || format!("make the subvolume group {:?}", self.group);
        let listed = ask(&self.monitors, Class::Question, "fs subvolumegroup ls", of_fs());
        let listed = listed.map_err(|failure| failed(failure, doing()))?;
        if names_in("ceph fs subvolumegroup ls", &listed)?.contains(self.group) {
            return Ok(());
        }
        let arguments = of_fs().into_iter().chain([("group_name", Value::from(self.group))]).collect();
        let made = ask(&self.monitors, Class::Change, "fs subvolumegroup create", arguments);
        made.map(drop).map_err(|failure| failed(failure, doing()))
    }

    /// Looks a subvolume up; None if it is absent, or only its snapshots are left.
    pub fn info(&self, name: &str) -> Result<Option<Subvolume>> {
        Ok(self.look(name)?.and_then(|info| info.subvolume(name)))
    }

    fn look(&self, name: &str) -> Result<Option<Info>> {
        match self.of_one(Class::Question, "fs subvolume info", name, []) {
            Ok(printed) => read("ceph fs subvolume info", &printed).map(Some),
            Err(failure) if is_absent(&failure) => Ok(None),
            Err(failure) if failure.status() == Some(libc::EAGAIN) => {
                Err(Error::unavailable(format!("subvolume {name:?} is still being copied: try again")))
            }
            Err(failure) => Err(self.error(failure, "look at", name)),
        }
    }

    /// Removes a subvolume, with the data of all its files. Its snapshots stay. An absent one is no error.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.remove_with(Some("retain_snapshots"), name)
    }

    fn remove_with(&self, flag: Option<&'static str>, name: &str) -> Result<()> {
        let flags = flag.map(|flag| (flag, true.into()));
        match self.of_one(Class::Change, "fs subvolume rm", name, flags) {
            Ok(_) => Ok(()),
            Err(failure) if is_absent(&failure) => Ok(()),
            Err(failure) if failure.says("does not support snapshot retention") => {
                self.remove_with(None, name)
            }
            Err(failure) if failure.status() == Some(libc::ENOTEMPTY) => {
                Err(Error::needed_by(&self.snapshots(name)?.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            Err(failure) => Err(self.error(failure, "remove", name)),
        }
    }

    /// The names of the subvolumes of the group, also of those of which only the snapshots are left.
    pub fn names(&self) -> Result<BTreeSet<String>> {
        let arguments =
            [("vol_name", self.fs.into())].into_iter().chain(self.group_as("group_name")).collect();
        match ask(&self.monitors, Class::Question, "fs subvolume ls", arguments) {
            Ok(printed) => names_in("ceph fs subvolume ls", &printed),
            Err(failure) if is_absent(&failure) => Ok(BTreeSet::new()),
            Err(failure) => Err(failed(failure, format!("list the subvolumes of group {:?}", self.group))),
        }
    }

    /// Whether only the snapshots of a subvolume are left.
    pub fn is_retained(&self, name: &str) -> Result<bool> {
        Ok(self.look(name)?.is_some_and(|info| info.state == RETAINED))
    }

    /// Sets the quota; the caller has checked that it does not get smaller. False: the subvolume is absent.
    pub fn resize(&self, name: &str, size: u64) -> Result<bool> {
        match self.of_one(Class::Change, "fs subvolume resize", name, [("new_size", size.into())]) {
            Ok(_) => Ok(true),
            Err(failure) if is_absent(&failure) => Ok(false),
            Err(failure) => Err(self.error(failure, "resize", name)),
        }
    }

    fn of_one(
        &self,
        class: Class,
        prefix: &'static str,
        name: &str,
        arguments: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Vec<u8>, Failure> {
        let named = [("vol_name", self.fs.into()), ("sub_name", name.into())];
        let arguments = named.into_iter().chain(arguments).chain(self.group_as("group_name"));
        ask(&self.monitors, class, prefix, arguments.collect())
    }

    /// The argument of this name for the group; None without a group.
    fn group_as(&self, name: &'static str) -> Option<(&'static str, Value)> {
        (!self.group.is_empty()).then(|| (name, self.group.into()))
    }

    fn error(&self, failure: Failure, doing: &str, name: &str) -> Error {
        if failure.says("FS '") && failure.says("not found") {
            return Error::precondition(format!(
                "cluster {:?} has no file system {:?}: `ceph fs ls` shows those that it has",
                self.monitors.access.cluster.name, self.fs
            ));
        }
        failed(failure, format!("{doing} subvolume {name:?} of group {:?} in {:?}", self.group, self.fs))
    }
}

/// The state of a subvolume of which only the snapshots are left.
const RETAINED: &str = "snapshot-retained";

/// The names in a list that a command printed.
fn names_in(command: &str, printed: &[u8]) -> Result<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Listed {
        name: String,
    }
    Ok(read::<Vec<Listed>>(command, printed)?.into_iter().map(|it| it.name).collect())
}

/// `ceph fs subvolume info`
#[derive(Deserialize)]
struct Info {
    state: String,
    #[serde(default)]
    path: String,
    /// A number, or `infinite`.
    #[serde(default)]
    bytes_quota: Value,
    #[serde(default)]
    bytes_used: u64,
    #[serde(default)]
    data_pool: String,
    #[serde(default)]
    features: BTreeSet<String>,
}

impl Info {
    fn subvolume(self, name: &str) -> Option<Subvolume> {
        if self.state == RETAINED {
            return None;
        }
        let (parent, last) = self.path.rsplit_once('/')?;
        let uuid = (parent.rsplit_once('/').is_some_and(|(_, it)| it == name)).then(|| last.to_string());
        let (size, used, data_pool) = (self.bytes_quota.as_u64(), self.bytes_used, self.data_pool);
        let retains_snapshots = self.features.contains("snapshot-retention");
        Some(Subvolume { path: self.path, uuid, size, used, data_pool, retains_snapshots })
    }
}

/// Whether a manager that has just started has not loaded its module yet. Then it has carried nothing out.
fn is_starting(answer: &Result<Vec<u8>, Failure>) -> bool {
    answer.as_ref().is_err_and(lacks_module)
}

fn lacks_module(failure: &Failure) -> bool {
    failure.status() == Some(libc::EOPNOTSUPP) && failure.says("is not enabled/loaded")
}

fn is_absent(failure: &Failure) -> bool {
    failure.status() == Some(libc::ENOENT) && failure.says("does not exist")
}

fn is_only_retained(failure: &Failure) -> bool {
    failure.status() == Some(libc::ENOENT) && failure.says("has only snapshots retained")
}

fn lacks_group(failure: &Failure) -> bool {
    is_absent(failure) && failure.says("subvolume group ")
}

fn is_wrong_pool(failure: &Failure) -> bool {
    failure.says("invalid pool layout")
}

fn wrong_pool(failure: Failure, pool: Option<&str>) -> Error {
    let what = format!("the parameter \"pool\" is {:?}", pool.unwrap_or_default());
    failed(failure, what).with_kind(Kind::InvalidArgument)
}

/// The error for a failure; with the rights that a user needs for subvolumes, if it lacks them.
fn failed(failure: Failure, doing: impl std::fmt::Display) -> Error {
    match lacks_module(&failure) {
        true => failure.into_error(doing).with_kind(Kind::Unavailable),
        false => failure.into_fs_error(doing),
    }
}
