//! RBD through the command line tools `rbd`, `rados` and `ceph` (16.2 and later): what to type, and what
//! their exit statuses and texts mean.
//!
//! Common to all commands:
//! - `rbd` exits with an errno, but with 2 also for a missing pool, namespace or data pool. An object counts
//!   as absent only if the text says so, and says what was tried (`answer::absent`).
//! - `rados` always fails with 1, and its text has the errno.
//! - A change in a full pool waits for ever, in every tool. `OSD_TIMEOUT` ends it; then the daemon checks
//!   whether the pool is full.
//! - Names go as `--option=value`, which takes any name, even one that begins with `-`. But `rbd` splits
//!   `--image` at `/` and `@`, so such names are refused here.

mod answer;
mod images;
mod mirror;
pub(crate) mod mirror_output;
mod options;
mod output;
mod pools;
mod snapshots;
mod stream;
mod trash;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{ImageRef, PoolTool, RbdTool};
use crate::backend::ceph::{PoolRef, Programs};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::{Class, Cmd, Tool};
use crate::sys::byte_lock::LockFile;

/// RBD through the command line tools.
pub struct CommandTool {
    programs: Programs,
    timeout: Duration,
    promotions: LockFile,
}

impl CommandTool {
    /// Runs commands by `programs`. A command waits for its turn and then runs, for at most `timeout` each. A
    /// promotion by force may take longer, and holds a lock in the file `promotions`.
    pub fn new(programs: Programs, timeout: Duration, promotions: PathBuf) -> Self {
        Self { programs, timeout, promotions: LockFile::at(promotions) }
    }

    fn at<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> PoolCommands<'a> {
        PoolCommands { tool: self, call, at }
    }
}

/// The tools for a call in a pool and namespace.
#[derive(Clone, Copy)]
pub(super) struct PoolCommands<'a> {
    tool: &'a CommandTool,
    call: &'a Call,
    at: &'a PoolRef,
}

/// How long it takes to end a command that has used up its time.
const KILL: Duration = Duration::from_secs(5);

impl PoolCommands<'_> {
    /// `rbd` with its words, in the pool and namespace.
    fn rbd(&self, class: Class, words: &[&str]) -> Cmd {
        let PoolRef { pool, namespace, .. } = self.at;
        let cmd = self.at.access.osd_command(Tool::Rbd, class).args(words).arg(format!("--pool={pool}"));
        // An empty value is refused.
        if namespace.is_empty() { cmd } else { cmd.arg(format!("--namespace={namespace}")) }
    }

    /// `rbd` with its words, about an image.
    fn rbd_image(&self, class: Class, words: &[&str], image: ImageRef<'_>) -> Result<Cmd> {
        let option = match image {
            ImageRef::Name(name) => format!("--image={}", plain(name)?),
            ImageRef::Id(id) => format!("--image-id={id}"),
        };
        Ok(self.rbd(class, words).arg(option))
    }
}

/// Where an image is made or moved to, as options.
fn destination(at: &PoolRef, name: &str) -> Result<impl Iterator<Item = String>> {
    let namespace = Some(&at.namespace).filter(|namespace| !namespace.is_empty());
    let namespace = namespace.map(|namespace| format!("--dest-namespace={namespace}"));
    let image = format!("--dest={}", plain(name)?);
    Ok([format!("--dest-pool={}", at.pool)].into_iter().chain(namespace).chain([image]))
}

/// Refuses names that rbd would read as something else.
fn plain(name: &str) -> Result<&str> {
    if name.is_empty() || name.contains(['/', '@']) {
        return Err(Error::invalid(format!(
            "{name:?} cannot be the name of an RBD image: rbd allows no / and no @ in it"
        )));
    }
    Ok(name)
}

impl fmt::Display for ImageRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageRef::Name(name) => f.write_str(name),
            ImageRef::Id(id) => write!(f, "(id {id})"),
        }
    }
}

impl RbdTool for CommandTool {
    fn bind<'a>(&'a self, call: &'a Call, at: &'a PoolRef) -> Box<dyn PoolTool + 'a> {
        Box::new(self.at(call, at))
    }

    fn usable(&self) -> Result<()> {
        [Tool::Rbd, Tool::Rados].into_iter().try_for_each(|tool| self.programs.has(tool))
    }

    /// A command waits for its turn, and then runs, each for at most CEPHLET_TOOL_TIMEOUT.
    fn longest_change(&self) -> Duration {
        2 * self.timeout + KILL
    }
}
