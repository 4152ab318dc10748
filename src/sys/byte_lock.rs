//! Locks on single bytes of a file: fcntl(2), "Open file description locks".
//!
//! One file has a lock for every number, so no lock has to be created or cleaned up. A lock belongs to the
//! open file description: a child that keeps the descriptor holds the lock, too. The lock ends when its last
//! holder ends, or when one holder gives it back.

#![expect(unsafe_code, reason = "rustix has no locks of byte ranges")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::file;

/// A file with locks. It need not exist before the first lock is taken.
#[derive(Clone, Debug)]
pub struct LockFile(PathBuf);

impl LockFile {
    /// The locks in this file.
    pub fn at(file: PathBuf) -> Self {
        Self(file)
    }

    /// Takes a lock; None if it is held already.
    ///
    /// # Errors
    /// Those of making the file and its directory, and of fcntl(2).
    pub fn try_take(&self, key: u64) -> io::Result<Option<ByteLock>> {
        if let Some(directory) = self.0.parent() {
            file::ensure_dir(directory)?;
        }
        ByteLock::try_take(file::open_lock(&self.0)?, key)
    }

    /// Whether any process, including this one, holds a lock.
    ///
    /// # Errors
    /// Those of opening the file, and of fcntl(2).
    pub fn is_taken(&self, key: u64) -> io::Result<bool> {
        let file = file::if_there(File::options().append(true).open(&self.0))?;
        file.map_or(Ok(false), |file| is_taken(&file, key))
    }
}

/// The number of the lock for a text. Two texts practically never have the same number; if they do, their
/// holders only wait for each other.
pub fn number_of(text: &str) -> u64 {
    Sha256::digest(text).iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// A lock that is held.
#[derive(Debug)]
pub struct ByteLock {
    file: Arc<File>,
    key: u64,
}

impl ByteLock {
    /// Takes the lock with the number `key`; None if it is held already. The file must be open for writing.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn try_take(file: File, key: u64) -> io::Result<Option<Self>> {
        match fcntl(&file, libc::F_OFD_SETLK, libc::F_WRLCK, key) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
            done => done.map(|_| Some(Self { file: Arc::new(file), key })),
        }
    }

    /// The locked file. Every process that keeps it open holds the lock.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Gives the lock back for all its holders, including children that have inherited it.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn give_back(self) -> io::Result<()> {
        fcntl(&self.file, libc::F_OFD_SETLK, libc::F_UNLCK, self.key).map(drop)
    }
}

/// Whether any process, including this one, holds the lock with the number `key`. Does not wait.
///
/// # Errors
/// Those of fcntl(2).
pub fn is_taken(file: &File, key: u64) -> io::Result<bool> {
    Ok(fcntl(file, libc::F_OFD_GETLK, libc::F_WRLCK, key)?.l_type != libc::F_UNLCK as libc::c_short)
}

fn fcntl(file: &File, command: libc::c_int, kind: libc::c_int, key: u64) -> io::Result<libc::flock> {
    // SAFETY: struct flock is integers only, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = (key >> 2).cast_signed();
    lock.l_len = 1;
    // SAFETY: the descriptor is open and the structure outlives the call, which reads and writes nothing
    // else.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(lock) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::process::Command;

    fn open(path: &std::path::Path) -> File {
        File::options().write(true).open(path).unwrap()
    }

    /// Children that other tests fork hold the lock until their exec.
    fn await_free(path: &std::path::Path, key: u64) {
        while is_taken(&open(path), key).unwrap() {
            std::thread::yield_now();
        }
    }

    fn take(path: &std::path::Path, key: u64) -> ByteLock {
        ByteLock::try_take(open(path), key).unwrap().expect("it is free")
    }

    #[test]
    fn each_key_is_a_lock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = take(file.path(), 1 << 60);
        assert!(ByteLock::try_take(open(file.path()), 1 << 60).unwrap().is_none());
        assert!(is_taken(&open(file.path()), 1 << 60).unwrap());
        assert!(!is_taken(&open(file.path()), 1 << 61).unwrap());
        let _another = take(file.path(), u64::MAX);
        drop(lock);
        await_free(file.path(), 1 << 60);
    }

    /// A child that has the locked file as its standard input, and lives until it is killed.
    fn child_with(lock: &ByteLock) -> std::process::Child {
        Command::new("sleep").arg("1000").stdin(lock.file().try_clone().unwrap()).spawn().unwrap()
    }

    #[test]
    fn a_child_holds_what_it_inherits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = take(file.path(), 8);
        let mut child = child_with(&lock);
        drop(lock);
        assert!(is_taken(&open(file.path()), 8).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        await_free(file.path(), 8);
    }

    #[test]
    fn what_is_given_back_is_so_for_a_child_too() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lock = take(file.path(), 8);
        let mut child = child_with(&lock);
        lock.give_back().unwrap();
        assert!(!is_taken(&open(file.path()), 8).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
