//! Failures in the helper, with their step.

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A system call that failed in the helper, and at which step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SyscallFailure {
    /// None if the request has this step only.
    pub(super) action: Option<String>,
    pub(super) errno: Option<i32>,
    pub(super) text: String,
}

impl SyscallFailure {
    /// The failure of a request with this step.
    pub(super) fn at(self, step: &str) -> Error {
        let action = self.action.as_deref().unwrap_or(step);
        match self.errno {
            Some(errno) => Error::io(action, &io::Error::from_raw_os_error(errno)),
            None => Error::internal(format!("{action}: {}", self.text)),
        }
    }
}

impl From<io::Error> for SyscallFailure {
    fn from(error: io::Error) -> Self {
        Self { action: None, errno: error.raw_os_error(), text: error.to_string() }
    }
}

/// The result of a request in the helper.
pub(super) type Answer<T> = Result<T, SyscallFailure>;

/// The bytes of an answer. It contains nothing that JSON cannot express; the daemon takes an empty reply as
/// broken.
pub(super) fn reply<T: Serialize, E: Into<SyscallFailure>>(answer: Result<T, E>) -> Vec<u8> {
    serde_json::to_vec(&answer.map_err(Into::into)).unwrap_or_default()
}

/// Names the step that failed.
pub(super) trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Answer<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Answer<T> {
        self.map_err(|error| SyscallFailure { action: Some(action()), ..error.into() })
    }
}
