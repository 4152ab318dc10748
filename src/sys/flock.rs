//! Locks on whole files: flock(2). They belong to the open file description, so they go with the process.

use std::fs::{File, TryLockError};
use std::io;

/// A file that is locked until this is dropped.
///
/// The lock is given up by name, not by closing the file: a child process that was forked meanwhile has the
/// file open, too, until its exec, and would keep the lock for as long.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file; None if another holds a lock on it.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock(), file)
    }

    /// Locks the file beside others that do the same; None if another holds an exclusive lock on it.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_shared(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock_shared(), file)
    }

    fn of(locked: Result<(), TryLockError>, file: File) -> io::Result<Option<Self>> {
        match locked {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // It cannot fail on a file that is open.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_keeps_all_others_out_until_it_is_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let held = FileLock::try_exclusive(open()).unwrap();
        assert!(held.is_some());
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        assert!(FileLock::try_shared(open()).unwrap().is_none());
        drop(held);
        let shared = FileLock::try_shared(open()).unwrap();
        assert!(shared.is_some() && FileLock::try_shared(open()).unwrap().is_some());
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
    }
}
