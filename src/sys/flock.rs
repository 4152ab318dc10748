//! Locks on whole files: flock(2). They belong to the open file description, so they end with the process.

use std::fs::{File, TryLockError};
use std::io;

/// A file that is locked until this is dropped.
///
/// A drop unlocks the file explicitly, besides closing it: a child process that was forked meanwhile has the
/// file open, too, and would keep the lock until its exec.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Takes an exclusive lock; None if the file is locked already.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        Self::of(file.try_lock(), file)
    }

    /// Takes a shared lock; None if the file is locked exclusively.
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
        // An unlock of an open file cannot fail.
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
