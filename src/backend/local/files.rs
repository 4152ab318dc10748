//! Files in this backend: their names, and the meaning of failed system calls.

use std::fmt::Display;
use std::io;
use std::path::Path;

use crate::error::{Error, Kind};

/// Makes the error of a failed system call: what was done to which path. Its errno gets the meaning that it
/// has for files as large as volumes.
pub(super) fn failed<E: Into<io::Error>>(doing: impl Display, path: &Path) -> impl Fn(E) -> Error {
    move |error| {
        let cause = error.into();
        let error = Error::io(format_args!("{doing} {}", path.display()), &cause);
        match cause.raw_os_error() {
            Some(libc::EFBIG) => error.with_kind(Kind::OutOfRange),
            Some(libc::ENOSPC | libc::EDQUOT) => {
                error.context("the file system of local volumes is full: free space or delete volumes")
            }
            _ => error,
        }
    }
}

/// None if the name does not exist.
pub(super) fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result.as_ref().map_err(io::Error::raw_os_error) {
        Err(Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG)) => Ok(None),
        _ => result.map(Some),
    }
}

/// Whether a name can be an object's: other names from an ID must not become part of a path.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0'])
}
