//! Locks on whole files: flock(2). They belong to the open file description and go when its last descriptor
//! is closed, also by the end of the process; the descriptor here is close-on-exec as long as it was opened
//! by std or rustix.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// A locked file. Dropping it frees the lock.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Locks the file; None if somebody else holds a lock on it.
    ///
    /// # Errors
    /// Those of flock(2).
    pub fn try_exclusive(file: File) -> io::Result<Option<Self>> {
        Ok(try_lock(&file)?.then_some(Self { _file: file }))
    }
}

/// Waits until nobody else holds a lock on the file, and locks it until its last descriptor is closed.
///
/// # Errors
/// Those of flock(2).
#[cfg(test)]
pub fn lock(file: &File) -> io::Result<()> {
    rustix::io::retry_on_intr(|| flock(file, FlockOperation::LockExclusive))?;
    Ok(())
}

/// Locks the file until its last descriptor is closed; false if somebody else holds a lock on it.
///
/// # Errors
/// Those of flock(2).
fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Err(Errno::WOULDBLOCK) => Ok(false),
        locked => Ok(locked.map(|()| true)?),
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
        let held = FileLock::try_exclusive(open()).unwrap();
        assert!(held.is_some());
        assert!(FileLock::try_exclusive(open()).unwrap().is_none());
        drop(held);
        // Waits until it is free: children of other tests hold what was open when they were forked until
        // their exec.
        assert!(lock(&open()).is_ok());
    }
}
