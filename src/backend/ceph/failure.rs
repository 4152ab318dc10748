//! The meaning of those failures of Ceph's tools that do not depend on the command. Tried with Ceph 16.2.
//!
//! `rbd` exits with an errno, but with 1 for EPERM and for much else; `rados` always with 1; `ceph` with an
//! errno if the cluster has refused, and with 1 or 13 if it could not connect. So the texts decide, and the
//! status only where it is unambiguous.
//!
//! | | `rbd` | `rados` | `ceph` |
//! |---|---|---|---|
//! | no monitor answers | 110, "couldn't connect" | 1, "failed to fetch mon config" | 1, "timed out" |
//! | wrong key, no such user, no mon caps | 13 | 1, as above | 13, "[errno 13] RADOS permission denied" |
//! | no OSD or mgr caps | 1, "(1) Operation not permitted" | the same | 13, "Error EACCES" |
//! | full pool, or OSDs that are down | 110, or 2 and "quota" | 1, "(110)" | it does not ask OSDs |

use std::fmt;

use super::ClusterAccess;
use crate::error::{Cause, Error, Kind};
use crate::exec::{CommandError, Why};

/// A command that failed, and the access that it used.
#[derive(Debug)]
pub struct Failure(Box<Inner>);

#[derive(Debug)]
struct Inner {
    access: ClusterAccess,
    error: CommandError,
}

/// Why a tool has failed, for reasons that do not depend on the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No monitor answers.
    Unreachable,
    /// The user is unknown, or has another key.
    Refused,
    /// The user may not do this.
    Forbidden,
    /// The cluster, the pool or its quota is full.
    Full,
    /// The OSDs did not answer in time: too few are up, or the pool is full.
    Stalled,
    /// The tool hung until it was killed.
    Hung,
    /// The cluster no longer speaks with this host.
    Blocklisted,
}

/// The user is unknown or has another key. `rbd` prints only that it could not connect, and exits with 13 or
/// with 1.
const REFUSED: [&str; 9] = [
    "handle_auth_bad_method",
    "failed to decode key",
    "monclient: keyring not found",
    "no keyring found",
    "unable to find a keyring",
    "RADOS permission denied (error connecting",
    "RADOS permission error (error connecting",
    "couldn't connect to cluster: (13)",
    "couldn't connect to cluster: (1)",
];

/// No monitor answers, or none is found. `rados` prints "failed to fetch mon config" for all reasons.
const UNREACHABLE: [&str; 9] = [
    "couldn't connect to the cluster",
    "couldn't connect to cluster",
    "error connecting to the cluster",
    "authenticate timed out",
    "failed to fetch mon config",
    "unable to parse addrs",
    "cannot identify monitors to contact",
    "no monitors specified to connect to",
    "Cluster connection interrupted or timed out",
];

/// All that `ceph` prints if no monitor answers. It is a whole line: other messages end with these words.
const CEPH_UNREACHABLE: &str = "timed out";

const TIMED_OUT: &str = "(110) Connection timed out";

const BLOCKLISTED: &str = "(108) Cannot send after transport endpoint shutdown";

const FORBIDDEN: [&str; 2] = ["Operation not permitted", "(13) Permission denied"];

const FULL: [&str; 5] =
    ["No space left on device", "Disk quota exceeded", "Error ENOSPC", "Error EDQUOT", "error 28:"];

impl Failure {
    pub(crate) fn new(access: &ClusterAccess, error: CommandError) -> Self {
        Self(Box::new(Inner { access: access.clone(), error }))
    }

    /// What the tool wrote to stdout before it failed.
    pub fn stdout(&self) -> &[u8] {
        match &self.0.error.why {
            Why::Failed { stdout, .. } => stdout,
            _ => &[],
        }
    }

    /// The exit status, if the tool ended by itself with one.
    pub fn status(&self) -> Option<i32> {
        self.0.error.status()
    }

    /// Whether the last 4 KiB of the tool's stderr contain this text.
    pub fn says(&self, text: &str) -> bool {
        self.stderr().contains(text)
    }

    /// The text between these two in the tool's stderr.
    pub fn between(&self, before: &str, after: &str) -> Option<&str> {
        let (_, rest) = self.stderr().split_once(before)?;
        rest.split_once(after).map(|(between, _)| between)
    }

    /// Why the tool could not work at all, if that is the cause. Then the usual meaning of its status (2 for
    /// "no such image", 22 for a wrong argument) does not apply.
    pub fn reason(&self) -> Option<Reason> {
        match self.0.error.why {
            Why::TimedOut { .. } | Why::NoAnswer(_) => Some(Reason::Hung),
            Why::Failed { status, .. } => self.reason_of(status),
            _ => None,
        }
    }

    /// The error for the caller. `context` says what was being done, and to which volume.
    pub fn into_error(self, context: impl fmt::Display) -> Error {
        self.into_bare_error().context(context)
    }

    /// The same for what concerns a file system: its users need other rights.
    pub fn into_fs_error(self, context: impl fmt::Display) -> Error {
        let is_forbidden = matches!(self.reason(), Some(Reason::Forbidden));
        let error = self.into_error(context);
        if !is_forbidden {
            return error;
        }
        error.hint(
            "for CephFS a controller's user needs `mon 'allow r' mgr 'allow rw' osd 'allow rwx pool=METADATA \
             namespace=cephlet'`, and so does that of a node where no controller publishes the volume, see \
             cephlet-cephfs(7)",
        )
    }

    /// The error for the caller, without context.
    pub fn into_bare_error(self) -> Error {
        match self.reason() {
            Some(reason) => self.explain(reason),
            None => self.0.rest(),
        }
    }

    fn stderr(&self) -> &str {
        match &self.0.error.why {
            Why::Failed { stderr_tail, .. }
            | Why::Signaled { stderr_tail, .. }
            | Why::TimedOut { stderr_tail, .. } => stderr_tail,
            _ => "",
        }
    }

    /// The order is that of the tool's own steps: if it could not connect, no later step failed. `ceph`'s
    /// answer to a command comes first: it looks for a keyring even if it was given a key.
    fn reason_of(&self, status: i32) -> Option<Reason> {
        let says = |texts: &[&str]| texts.iter().any(|text| self.says(text));
        let unreachable = self.stderr().lines().any(|line| line.trim() == CEPH_UNREACHABLE);
        let connecting = unreachable || says(&UNREACHABLE);
        let reasons = [
            (self.says("Error EACCES"), Reason::Forbidden),
            (says(&REFUSED) || (connecting && status == libc::EACCES), Reason::Refused),
            (connecting, Reason::Unreachable),
            (self.says(BLOCKLISTED), Reason::Blocklisted),
            (says(&FULL) || [libc::ENOSPC, libc::EDQUOT].contains(&status), Reason::Full),
            (says(&FORBIDDEN), Reason::Forbidden),
            (status == libc::ETIMEDOUT || self.says(TIMED_OUT), Reason::Stalled),
        ];
        reasons.into_iter().find_map(|(is_so, reason)| is_so.then_some(reason))
    }

    fn explain(self, reason: Reason) -> Error {
        let cause = self.status().map(Cause::Exit);
        let advice = self.0.advice(reason);
        let error = Error::new(reason.kind(), format!("{advice}: {}", self.0.without_log_lines().error));
        match cause {
            Some(cause) => error.caused_by(cause),
            None => error,
        }
    }
}

impl Reason {
    fn kind(self) -> Kind {
        match self {
            Self::Unreachable | Self::Blocklisted => Kind::Unavailable,
            Self::Refused => Kind::Unauthenticated,
            Self::Forbidden => Kind::Precondition,
            Self::Full => Kind::NoSpace,
            Self::Stalled | Self::Hung => Kind::Timeout,
        }
    }
}

impl Inner {
    /// What has happened, and what the operator should check.
    fn advice(&self, reason: Reason) -> String {
        let (cluster, monitors) = (format!("cluster {:?}", self.access.cluster.name), self.monitors());
        let user = format!("client.{}", self.access.credentials.user);
        match reason {
            Reason::Unreachable => {
                format!(
                    "{cluster} was not reached at its monitors {monitors}: check that they run and that this \
                     host reaches them"
                )
            }
            Reason::Stalled => format!(
                "the OSDs of {cluster} (monitors {monitors}) did not answer in time: look at `ceph -s` and \
                 `ceph health detail`"
            ),
            Reason::Hung => format!(
                "{cluster} (monitors {monitors}) did not answer in time: look at `ceph -s` there; writes to \
                 a full pool, or to one \
                 without enough OSDs, wait"
            ),
            Reason::Blocklisted => format!("{cluster} has shut this host out, see `ceph osd blocklist ls`"),
            Reason::Refused => format!(
                "{cluster} refused {user}: the user does not exist there, has another key or no mon caps: \
                 compare its key here \
                 ({}) with `ceph auth get {user}`",
                self.access.key_from()
            ),
            Reason::Forbidden => format!(
                "{user} may not do this in {cluster}: give it caps, with those that it has, for example `ceph auth \
                 caps {user} mon \
                 'profile rbd' osd \
                 'profile rbd pool=POOL' mgr 'profile rbd pool=POOL'`"
            ),
            Reason::Full => format!(
                "{cluster} has no room: the cluster, the pool or its quota is full, see `ceph df detail`"
            ),
        }
    }

    fn monitors(&self) -> String {
        let monitors = self.access.cluster.monitors_text();
        if monitors.is_empty() { String::from("of its ceph.conf") } else { monitors }
    }

    /// A failure that depends on the command, or on this host.
    fn rest(self) -> Error {
        let whose = format!("cluster {:?} (monitors {})", self.access.cluster.name, self.monitors());
        let waited = matches!(self.error.why, Why::Expired(_) | Why::StillRunning(_));
        let error = Error::from(self.without_log_lines().error);
        if waited { error.context(whose) } else { error }
    }

    /// Drops log lines: libraries log to stderr too, mixed with the tool's own message, which is for people.
    fn without_log_lines(mut self) -> Self {
        let is_log = |line: &str| line.starts_with("20") && line.as_bytes().get(10) == Some(&b'T');
        if let Why::Failed { stderr_tail, .. } = &mut self.error.why {
            let own: Vec<&str> =
                stderr_tail.lines().filter(|line| !line.trim().is_empty() && !is_log(line)).collect();
            if !own.is_empty() {
                *stderr_tail = own.join("\n");
            }
        }
        self
    }
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
