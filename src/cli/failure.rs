//! How a command fails, and the exit statuses that tell scripts the cause.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;

use crate::daemon::TOPOLOGY_CHANGED;
use crate::error::{Error, Kind};
use crate::grpc::status;

/// The result of a command.
pub type CliResult<T> = Result<T, CliError>;

/// The exit status where the daemon or the storage does not answer.
pub const UNREACHABLE: u8 = 6;

/// The exit status of `doctor` where something is not as it should be.
pub const FOUND: u8 = 12;

/// The exit statuses, for the help. Stable: scripts depend on them.
pub const STATUSES: &[(u8, &str)] = &[
    (0, "done"),
    (1, "failed: an error of the daemon, or of the system below"),
    (2, "the command line is wrong, or the daemon refused a value (INVALID_ARGUMENT)"),
    (3, "there is no such volume or snapshot (NOT_FOUND)"),
    (4, "it exists with other properties (ALREADY_EXISTS)"),
    (5, "it is in use or in the wrong state (FAILED_PRECONDITION)"),
    (
        UNREACHABLE,
        "no answer, or for a list only a part: unreachable, or time was up (UNAVAILABLE, DEADLINE_EXCEEDED)",
    ),
    (7, "no room, or no place that the request allows (RESOURCE_EXHAUSTED)"),
    (8, "another operation is going on: try again (ABORTED)"),
    (9, "this size cannot be had (OUT_OF_RANGE)"),
    (10, "not offered (UNIMPLEMENTED)"),
    (11, "the storage refused the credentials (UNAUTHENTICATED)"),
    (FOUND, "doctor: something is not as it should be"),
    (TOPOLOGY_CHANGED, "serve: the node's topology has changed (CEPHLET_TOPOLOGY_CHANGE=exit)"),
];

/// Why a command failed.
#[derive(Debug)]
pub enum CliError {
    /// The command line is wrong.
    Usage(String),
    /// The daemon, or this machine, refused or failed.
    Refused(Error),
}

impl CliError {
    /// A mistake on the command line.
    pub fn usage(what: impl fmt::Display) -> Self {
        Self::Usage(what.to_string())
    }

    /// The same failure, with the names of volumes and snapshots before their IDs.
    #[must_use]
    pub fn with_names(self, names: &BTreeMap<String, String>) -> Self {
        let Self::Refused(error) = self else { return self };
        let named = names.iter().fold(error.message().to_string(), |message, (id, name)| {
            message.replacen(id, &format!("{name:?} ({id})"), 1)
        });
        Self::Refused(Error::new(error.kind(), named))
    }

    /// Whether the same command may succeed later though its user does nothing.
    pub fn may_pass(&self) -> bool {
        use Kind::{AlreadyExists, InvalidArgument, NotFound, Unimplemented};
        match self {
            Self::Usage(_) => false,
            Self::Refused(error) => {
                ![InvalidArgument, NotFound, AlreadyExists, Unimplemented].contains(&error.kind())
            }
        }
    }

    /// The exit status, one of [`STATUSES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Refused(error) => code(error.kind()),
        }
    }
}

/// No wildcard, so that a new kind does not compile without an exit status.
fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Internal => 1,
        Kind::InvalidArgument => 2,
        Kind::NotFound => 3,
        Kind::AlreadyExists => 4,
        Kind::Precondition | Kind::HasSnapshots => 5,
        Kind::Unavailable | Kind::Timeout => UNREACHABLE,
        Kind::NoSpace => 7,
        Kind::Busy | Kind::BadToken => 8,
        Kind::OutOfRange => 9,
        Kind::Unimplemented => 10,
        Kind::Unauthenticated => 11,
    }
}

impl From<Error> for CliError {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<&CliError> for ExitCode {
    fn from(failure: &CliError) -> Self {
        failure.exit_code().into()
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Refused(error) => write!(f, "{}: {error}", status::name(error.kind())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 14] = [
        Kind::InvalidArgument,
        Kind::NotFound,
        Kind::AlreadyExists,
        Kind::Busy,
        Kind::BadToken,
        Kind::Precondition,
        Kind::HasSnapshots,
        Kind::OutOfRange,
        Kind::NoSpace,
        Kind::Unavailable,
        Kind::Timeout,
        Kind::Unimplemented,
        Kind::Unauthenticated,
        Kind::Internal,
    ];

    #[test]
    fn every_kind_has_a_documented_exit_status() {
        for kind in KINDS {
            let (code, name) = (code(kind), status::name(kind));
            let about = STATUSES.iter().find(|(status, _)| *status == code).map(|(_, about)| *about);
            assert!(about.is_some_and(|about| code == 1 || about.contains(name)), "{name}");
        }
    }

    #[test]
    fn exit_statuses_are_what_scripts_rely_on() {
        let codes = KINDS.map(code);
        assert_eq!(codes, [2, 3, 4, 8, 8, 5, 5, 9, 7, 6, 6, 10, 11, 1]);
        assert_eq!(CliError::usage("x").exit_code(), 2);
    }

    #[test]
    fn a_refusal_is_shown_with_the_name_of_its_code() {
        let failure = CliError::from(Error::not_found("there is no volume \"x\""));
        assert_eq!(failure.to_string(), "NOT_FOUND: there is no volume \"x\"");
    }
}
