//! Failures in the helper, with their step.

use std::io;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A system call that failed in the helper, and at which step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SyscallFailure {
    pub(super) action: String,
    pub(super) errno: Option<i32>,
    pub(super) text: String,
}

impl From<SyscallFailure> for Error {
    fn from(failure: SyscallFailure) -> Self {
        match failure.errno {
            Some(errno) => Error::io(failure.action, &io::Error::from_raw_os_error(errno)),
            None => Error::internal(format!("{}: {}", failure.action, failure.text)),
        }
    }
}

/// The result of a request in the helper.
pub(super) type Answer<T> = Result<T, SyscallFailure>;

/// Names the step that failed.
pub(super) trait During<T> {
    fn during(self, action: impl FnOnce() -> String) -> Answer<T>;
}

impl<T> During<T> for io::Result<T> {
    fn during(self, action: impl FnOnce() -> String) -> Answer<T> {
        self.map_err(|error| SyscallFailure {
            action: action(),
            errno: error.raw_os_error(),
            text: error.to_string(),
        })
    }
}
