//! Files as this backend handles them: names, what a failed system call means, and locks.

use std::fs::File;
use std::path::Path;

use rustix::fs::{self, FlockOperation};
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

/// A file locked by flock(2) until this is dropped.
///
/// The lock is given up by name, not by closing the file: a child process that is being started at that
/// moment has the file open too, until its exec, and would keep the lock for as long.
#[derive(Debug)]
pub(super) struct Locked(File);

impl Locked {
    /// Locks without waiting; None if somebody else's lock is in the way.
    pub fn by(file: File, how: FlockOperation, path: &Path) -> Result<Option<Self>> {
        match fs::flock(&file, how) {
            Ok(()) => Ok(Some(Self(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(failed(format_args!("lock {}", path.display()), errno)),
        }
    }

    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // It cannot fail on a file that is open.
        let _ = fs::flock(&self.0, FlockOperation::Unlock);
    }
}
