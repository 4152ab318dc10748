//! What the failures of Ceph's tools mean, as far as they mean the same whatever was asked. Tried with Ceph 16.2.
//!
//! `rbd` ends with an errno as its status, but with 1 for EPERM and for much else; `rados` always with 1; `ceph` with an errno
//! where the cluster has refused, and with 1 or 13 where it could not connect. So texts are looked at, and the status where it
//! is beyond doubt.

use std::fmt;

use super::Access;
use crate::error::{Cause, Error, Kind};
use crate::exec::CommandError;

/// A command that did not end well, and for whom it ran.
#[derive(Debug)]
pub struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    access: Access,
    error: CommandError,
}

/// Why a tool has failed, where that has nothing to do with what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// No monitor answers.
    Unreachable,
    /// The user is unknown, or has another key.
    Refused,
    /// The user may not do this.
    Forbidden,
    /// The cluster, the pool or its quota is full.
    Full,
    /// The tool hung until it was killed.
    Hung,
}

/// The user is unknown or has another key. `rbd` says no more than that it could not connect, and ends with 13 or with 1.
const REFUSED: [&str; 8] = [
    "handle_auth_bad_method",
    "failed to decode key",
    "monclient: keyring not found",
    "no keyring found",
    "unable to find a keyring",
    "RADOS permission denied (error connecting",
    "couldn't connect to cluster: (13)",
    "couldn't connect to cluster: (1)",
];

/// No monitor answers, or none is found. `rados` says "failed to fetch mon config" for all reasons.
const UNREACHABLE: [&str; 10] = [
    "couldn't connect to the cluster",
    "couldn't connect to cluster",
    "error connecting to the cluster",
    "authenticate timed out",
    "failed to fetch mon config",
    "unable to parse addrs",
    "cannot identify monitors to contact",
    "no monitors specified to connect to",
    "(110) Connection timed out",
    "(108) Cannot send after transport endpoint shutdown",
];

const FORBIDDEN: [&str; 4] = ["(1) Operation not permitted", "Operation not permitted", "Error EACCES", "(13) Permission denied"];

const FULL: [&str; 5] =
    ["(28) No space left on device", "(122) Disk quota exceeded", "Error ENOSPC", "Error EDQUOT", "error 28:"];

impl Failure {
    pub(super) fn new(access: &Access, error: CommandError) -> Self {
        Self(Box::new(Inner { access: access.clone(), error }))
    }

    /// The exit status, if the tool ended by itself with one.
    pub fn status(&self) -> Option<i32> {
        self.0.error.status()
    }

    /// Whether the last 4 KiB of what the tool said to stderr have this text.
    pub fn says(&self, text: &str) -> bool {
        self.stderr().contains(text)
    }

    /// Whether the tool could not do its work at all: the cluster was not reached, or refused the user. What its status would
    /// mean otherwise (2 for "no such image") means nothing then.
    pub fn is_of_access(&self) -> bool {
        self.reason().is_some()
    }

    /// What it means to the caller. `context` is what was being done, and to which volume.
    pub fn into_error(self, context: impl fmt::Display) -> Error {
        let error = match self.reason() {
            Some(reason) => self.explain(reason),
            None => Error::from(self.0.error),
        };
        error.context(context)
    }

    fn stderr(&self) -> &str {
        match &self.0.error {
            CommandError::Failed { stderr_tail, .. }
            | CommandError::Signaled { stderr_tail, .. }
            | CommandError::TimedOut { stderr_tail, .. } => stderr_tail,
            _ => "",
        }
    }

    fn reason(&self) -> Option<Reason> {
        let says = |texts: &[&str]| texts.iter().any(|text| self.says(text));
        match self.0.error {
            CommandError::TimedOut { .. } => Some(Reason::Hung),
            CommandError::Failed { status, .. } => {
                // The order is that of the tool's own steps: who could not connect was not refused anything else.
                let connecting = says(&UNREACHABLE);
                if says(&REFUSED) || (connecting && status == libc::EACCES) {
                    Some(Reason::Refused)
                } else if connecting {
                    Some(Reason::Unreachable)
                } else if says(&FULL) {
                    Some(Reason::Full)
                } else if says(&FORBIDDEN) {
                    Some(Reason::Forbidden)
                } else {
                    None
                }
            }
            _ => None,
        }
    }

    fn explain(self, reason: Reason) -> Error {
        let cause = self.status().map(Cause::Exit);
        let Inner { access, error } = *self.0;
        let cluster = format!("cluster {:?}", access.cluster.name);
        let monitors = match access.cluster.monitors_text() {
            none if none.is_empty() => String::from("those of its ceph.conf"),
            monitors => monitors,
        };
        let user = format!("client.{}", access.credentials.user);
        let (kind, message) = match reason {
            Reason::Unreachable => (
                Kind::Unavailable,
                format!(
                    "{cluster} was not reached at its monitors {monitors}: check that they run and that this host reaches them: {error}"
                ),
            ),
            Reason::Hung => (
                Kind::Timeout,
                format!(
                    "{cluster} (monitors {monitors}) did not answer in time: check `ceph -s` there; a full pool or one without \
                     enough OSDs lets every write wait: {error}"
                ),
            ),
            Reason::Refused => (
                Kind::Unauthenticated,
                format!(
                    "{cluster} refused {user}: the user does not exist there, or has another key: compare with `ceph auth get \
                     {user}` ({key}): {error}",
                    key = access.key_from()
                ),
            ),
            Reason::Forbidden => (
                Kind::Precondition,
                format!(
                    "{user} may not do this in {cluster}: give it the caps it needs with `ceph auth caps {user} mon 'profile rbd' \
                     osd 'profile rbd pool=POOL' mgr 'profile rbd pool=POOL'`: {error}"
                ),
            ),
            Reason::Full => (
                Kind::NoSpace,
                format!("{cluster} has no room: the cluster, the pool or its quota is full, see `ceph df`: {error}"),
            ),
        };
        let error = Error::new(kind, message);
        match cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
