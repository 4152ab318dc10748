//! Commands to a cluster's monitors and its manager, by the names of Ceph's own table of commands, with
//! answers in JSON. On top of them are typed questions: pools, their space, the blocklist.

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
/// the `format` of its answer. Together they are the JSON that a monitor takes. A `target` in front is the
/// daemon that gets the command in place of a monitor, as `mds.FILE_SYSTEM:RANK`.
pub type Command = Vec<(&'static str, Value)>;

/// A command that prints JSON.
pub(crate) fn question(prefix: &'static str, detail: Option<&'static str>) -> Command {
    let detail = detail.map(|word| ("detail", word.into()));
    [("prefix", prefix.into())].into_iter().chain(detail).chain([("format", "json".into())]).collect()
}

/// The call within which a cluster is asked, and the cluster with the credentials.
pub type Asker<'a> = (&'a Call, &'a ClusterAccess);

/// The monitors and the manager of every cluster.
pub trait Monitors: Send + Sync {
    /// Makes a cluster carry out commands, one after the other, and returns what they printed.
    ///
    /// # Errors
    /// The cluster was not reached, or a single command was refused. Of several commands each is tried, and
    /// only the messages show a refusal: read back what the commands were to change.
    fn ask(&self, asker: Asker<'_>, class: Class, commands: &[Command]) -> Result<Output, Failure>;
}

impl dyn Monitors + '_ {
    /// The monitors and the manager of one cluster, within a call.
    pub(crate) fn of<'a>(&'a self, call: &'a Call, access: &'a ClusterAccess) -> MonitorClient<'a> {
        MonitorClient { monitors: self, call, access }
    }
}

/// The monitors and the manager of one cluster, within a call. Its other methods are typed questions.
#[derive(Clone, Copy)]
pub(crate) struct MonitorClient<'a> {
    monitors: &'a dyn Monitors,
    pub call: &'a Call,
    /// The cluster and the credentials.
    pub access: &'a ClusterAccess,
}

impl MonitorClient<'_> {
    /// [`Monitors::ask`]
    pub fn ask(&self, class: Class, commands: &[Command]) -> Result<Output, Failure> {
        self.monitors.ask((self.call, self.access), class, commands)
    }
}
