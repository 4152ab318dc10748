//! The door to a cluster's monitors and its manager: commands go in by the names of Ceph's own table of
//! commands, JSON comes out. Above it are typed questions: pools, their space, the blocklist.

pub(crate) mod blocklist;
mod command;
#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod pools;
pub(crate) mod space;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use serde_json::Value;

use super::{ClusterAccess, Failure};
use crate::dispatch::Call;
use crate::exec::{Class, Output};

/// A command: its `prefix`, then its arguments by name, in the order of Ceph's table (`MonCommands.h`), and
/// the `format` of its answer. Together they are the JSON that a monitor takes.
pub type Command = Vec<(&'static str, Value)>;

/// A command that prints JSON.
pub(crate) fn question(prefix: &'static str, detail: Option<&'static str>) -> Command {
    let detail = detail.map(|word| ("detail", word.into()));
    [("prefix", prefix.into())].into_iter().chain(detail).chain([("format", "json".into())]).collect()
}

/// Within which call a cluster is asked, and by whom.
pub type Asker<'a> = (&'a Call, &'a ClusterAccess);

/// The monitors and the manager of every cluster.
pub trait Monitors: Send + Sync {
    /// Has a cluster carry out commands, one after the other, and gives what they printed.
    ///
    /// # Errors
    /// The cluster was not reached. A single command was refused; of several each is tried, and what was
    /// refused shows in what was said alone: read back what they were to change.
    fn ask(&self, asker: Asker<'_>, class: Class, commands: &[Command]) -> Result<Output, Failure>;
}

impl dyn Monitors + '_ {
    /// Those of one cluster, within a call.
    pub(crate) fn of<'a>(&'a self, call: &'a Call, access: &'a ClusterAccess) -> Door<'a> {
        Door { monitors: self, call, access }
    }
}

/// The monitors and the manager of one cluster, within a call. Its other methods are typed questions.
#[derive(Clone, Copy)]
pub(crate) struct Door<'a> {
    monitors: &'a dyn Monitors,
    call: &'a Call,
    /// Which cluster, and who asks.
    pub access: &'a ClusterAccess,
}

impl Door<'_> {
    /// [`Monitors::ask`]
    pub fn ask(&self, class: Class, commands: &[Command]) -> Result<Output, Failure> {
        self.monitors.ask((self.call, self.access), class, commands)
    }
}
