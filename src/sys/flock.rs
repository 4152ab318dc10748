//! Locks on whole files: flock(2). They belong to the open file description and go when its last descriptor
//! is closed, also by the end of the process; the descriptor here is close-on-exec as long as it was opened
//! by std or rustix.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// A locked file. Dropping it frees the lock.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Waits until nobody else holds any lock on the file.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn exclusive(file: File) -> io::Result<Self> {
        locked(&file, FlockOperation::LockExclusive)?;
        Ok(Self(file))
    }

    /// Waits until nobody else holds an exclusive lock on the file.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn shared(file: File) -> io::Result<Self> {
        locked(&file, FlockOperation::LockShared)?;
        Ok(Self(file))
    }

    /// Like [`exclusive`](Self::exclusive), but gives none at once where it would have to wait.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        Ok(locked(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(Self(file)))
    }

    /// Like [`shared`](Self::shared), but gives none at once where it would have to wait.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_shared(file: File) -> io::Result<Option<Self>> {
        Ok(locked(&file, FlockOperation::NonBlockingLockShared)?.then_some(Self(file)))
    }

    /// The locked file.
    pub fn file(&self) -> &File {
        &self.0
    }
}

fn locked(file: &File, operation: FlockOperation) -> io::Result<bool> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_keeps_everybody_out_until_it_is_dropped() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let lock = FileLock::exclusive(open()).unwrap();
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        assert!(FileLock::try_shared(open()).unwrap().is_none());
        drop(lock);
        // Waits until it is free: children of other tests hold what was open when they were forked until
        // their exec.
        assert!(FileLock::exclusive(open()).unwrap().file().metadata().unwrap().is_file());
    }

    #[test]
    fn shared_locks_get_on_with_each_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::open(file.path()).unwrap();
        let _one = FileLock::shared(open()).unwrap();
        let two = FileLock::try_shared(open()).unwrap().unwrap();
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        assert!(two.file().metadata().unwrap().is_file());
    }
}
