//! Files as this backend handles them: names, and what a failed system call means.

use std::path::Path;

use rustix::io::Errno;

use crate::error::{Error, Kind, Result};

/// A failed system call, its errno given the meaning it has for files as large as volumes.
pub(super) fn failed(action: impl std::fmt::Display, errno: Errno) -> Error {
    let error = Error::io(action, &errno.into());
    match errno {
        Errno::FBIG => error.with_kind(Kind::OutOfRange),
        Errno::NOSPC | Errno::DQUOT => {
            error.context("the file system of local volumes is full: free space or delete volumes")
        }
        _ => error,
    }
}

/// None where the name does not exist.
pub(super) fn present<T>(result: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// A write that failed.
pub(super) fn failed_io(path: &Path, error: &std::io::Error) -> Error {
    let errno = error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error);
    failed(format_args!("write {}", path.display()), errno)
}

/// Whether a name could be an object's: anything else from an ID must not reach a path.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0'])
}

/// A lock that failed for another reason than another's lock.
pub(super) fn not_locked(path: &Path, error: &std::io::Error) -> Error {
    Error::io(format_args!("lock {}", path.display()), error)
}
