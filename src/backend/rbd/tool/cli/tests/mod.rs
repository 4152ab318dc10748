//! Exact command lines, recorded answers, and what each exit status and text means.
#![allow(clippy::unwrap_used)]

mod images;
mod locks;
mod mirror;
mod pools;
mod snapshots;
mod trash;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::{CommandTool, PoolCommands};
use crate::backend::ceph::ClusterAccess;
use crate::backend::ceph::{PoolRef, Programs};
use crate::clusters::{Cluster, Credentials};
use crate::dispatch::Call;
use crate::error::{Error, Kind};
use crate::exec::fake::FakeRunner;
use crate::exec::{Class, Cmd, Tool};

/// What `rbd` prints if the pool, the namespace or the image is absent.
const NO_POOL: &str = "rbd: error opening pool 'vms': (2) No such file or directory\n";
const NO_NAMESPACE: &str = "rbd: namespace 'team' does not exist.\n";
const NO_IMAGE: &str = "rbd: error opening image web: (2) No such file or directory\n";

/// The command line tools, on a runner that expects given commands.
struct Fixture {
    runner: Arc<FakeRunner>,
    cli: CommandTool,
    call: Call,
    /// Pool `vms`.
    at: PoolRef,
    /// Namespace `team` of pool `vms`.
    team: PoolRef,
    /// Keeps the directory of locks.
    _scratch: tempfile::TempDir,
}

impl Deref for Fixture {
    type Target = CommandTool;

    fn deref(&self) -> &CommandTool {
        &self.cli
    }
}

impl Fixture {
    fn new() -> Self {
        let (runner, scratch) = (Arc::new(FakeRunner::default()), tempfile::tempdir().unwrap());
        let at =
            |namespace: &str| PoolRef { access: access(), pool: "vms".into(), namespace: namespace.into() };
        let promotions = scratch.path().join("promotions");
        let cli = CommandTool::new(
            Programs::new(Arc::clone(&runner) as _, None),
            Duration::from_secs(120),
            promotions,
        );
        Self { runner, cli, call: Call::internal("test"), at: at(""), team: at("team"), _scratch: scratch }
    }

    /// The tool in pool `vms`.
    fn at(&self) -> PoolCommands<'_> {
        self.cli.at(&self.call, &self.at)
    }

    /// The tool in its namespace `team`.
    fn team(&self) -> PoolCommands<'_> {
        self.cli.at(&self.call, &self.team)
    }

    /// The next command must be this one, its arguments separated by blanks; it prints `stdout`.
    fn prints(&self, line: &str, stdout: &str) {
        let argv = argv(line);
        self.runner.expect(&argv.iter().map(String::as_str).collect::<Vec<_>>(), stdout);
    }

    /// The next command must be this one; it fails.
    fn fails(&self, line: &str, status: i32, stderr: &str) {
        let argv = argv(line);
        self.runner.expect_failure(&argv.iter().map(String::as_str).collect::<Vec<_>>(), status, stderr);
    }

    /// The last command that was run.
    fn last(&self) -> Cmd {
        self.runner.ran().pop().expect("a command was run")
    }

    /// Whether the last command was of this class.
    fn was(&self, class: Class) -> bool {
        format!("{:?}", self.last()).starts_with(&format!("{class:?} "))
    }
}

fn access() -> ClusterAccess {
    let credentials = Credentials { user: "cephlet".into(), key: None };
    let cluster = Cluster { conf: Some("/etc/ceph/ceph.conf".into()), ..Cluster::named("main") };
    ClusterAccess { cluster: Arc::new(cluster), credentials, bulkhead: "main".into() }
}

/// The arguments of a command line: `rbd …`, with those that reach the cluster inserted after the tool's
/// name. `~` stands for the time limit of changes.
fn argv(line: &str) -> Vec<String> {
    let line = line.replace('~', "--rados-osd-op-timeout=40");
    let (tool, words) = line.split_once(' ').expect("a tool and its words");
    let tool = [Tool::Rbd, Tool::Rados, Tool::Ceph]
        .into_iter()
        .find(|it| it.file_name() == tool)
        .expect("a Ceph tool");
    let reached = access().command(tool, Class::Question).to_string();
    reached.split(' ').chain(words.split(' ')).map(str::to_string).collect()
}

/// Asserts that the result is an error of this kind, with all these texts in its message.
fn assert_error<T: std::fmt::Debug>(result: Result<T, Error>, kind: Kind, texts: &[&str]) {
    let error = result.expect_err("it must be refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(texts.iter().all(|text| error.message().contains(text)), "{error} should say {texts:?}");
}
