//! Locks on whole files: flock(2). They belong to the open file description and go when its last descriptor
//! is closed, also by the end of the process; the descriptor here is close-on-exec as long as it was opened
//! by std or rustix.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};

/// A locked file. Dropping it frees the lock.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Waits until nobody else holds any lock on the file.
    ///
    /// # Errors
    /// Those of flock(2).
    #[cfg(test)]
    pub fn exclusive(file: File) -> io::Result<Self> {
        locked(&file, FlockOperation::LockExclusive)?;
        Ok(Self { _file: file })
    }

    /// Locks the file, unless somebody holds any lock on it.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        Ok(locked(&file, FlockOperation::NonBlockingLockExclusive)?.then_some(Self { _file: file }))
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
        drop(lock);
        // Waits until it is free: children of other tests hold what was open when they were forked until
        // their exec.
        assert!(FileLock::exclusive(open()).is_ok());
    }
}
