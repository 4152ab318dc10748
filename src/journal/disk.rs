//! The interface between the journal and a disk: all work of the journal on files goes through [`Disk`], so
//! that tests can stop it after any operation. [`RealDisk`] is the state directory.

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, Mode, OFlags, fallocate};

use crate::error::{Error, Result};
use crate::sys::crash;

/// A directory of files. Every error keeps its errno.
pub trait Disk: Send + Sync {
    /// The full path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Makes a file, mode 0600, or empties the one that is there, and opens it.
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file so that a read shows what is on the disk: earlier writes are synced first, and pages that
    /// a failed write-back has left in the cache (clean, but not on disk) are dropped.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Renames a file, atomically; durable after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes the names durable.
    fn sync_dir(&self) -> io::Result<()>;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + Sync {
    /// The whole content.
    fn read(&self) -> io::Result<Vec<u8>>;
    /// Writes all of `bytes`. After an error any part of them may have been written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// Reserves room on the disk for `length` bytes from `offset`, so that no write there can find it full.
    /// Content and length of the file stay the same; a cut gives up the room behind it.
    fn keep_room(&self, offset: u64, length: u64) -> io::Result<()>;
    /// Cuts the file to `length` bytes.
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Makes content and length durable. After an error the state of everything written since the last
    /// success is unknown. A second call would return Ok without writing, because the pages are clean by then
    /// (fsync(2)).
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the file system.
#[derive(Debug)]
pub struct RealDisk {
    path: PathBuf,
    directory: OwnedFd,
}

impl RealDisk {
    /// Opens `path`, which must be there.
    pub fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| {
            Error::io(format!("open the state directory {}", path.display()), &error.into())
        })?;
        Ok(Self { path: path.to_owned(), directory })
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }
}

impl Disk for RealDisk {
    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        crash::point("create a journal file");
        let file = self.open_file(name, OFlags::CREATE | OFlags::TRUNC)?;
        crash::point("journal file created");
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.open_file(name, OFlags::empty())?;
        DiskFile::sync(&file)?;
        let to_the_end: Option<NonZeroU64> = None;
        rustix::fs::fadvise(&file, 0, to_the_end, Advice::DontNeed)?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        crash::point("rename a journal file");
        rustix::fs::renameat(&self.directory, from, &self.directory, to)?;
        crash::point("journal file renamed");
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        crash::point("sync the journal directory");
        rustix::fs::fsync(&self.directory)?;
        crash::point("journal directory synced");
        Ok(())
    }
}

impl DiskFile for File {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.metadata()?.len()).map_err(io::Error::other)?];
        self.read_exact_at(&mut content, 0)?;
        Ok(content)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        crash::point("write to the journal");
        self.write_all_at(bytes, offset)?;
        crash::point("journal written");
        Ok(())
    }

    fn keep_room(&self, offset: u64, length: u64) -> io::Result<()> {
        rustix::io::retry_on_intr(|| fallocate(self, FallocateFlags::KEEP_SIZE, offset, length))?;
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        crash::point("cut the journal");
        self.set_len(length)?;
        crash::point("journal cut");
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        crash::point("sync the journal");
        rustix::fs::fdatasync(self)?;
        crash::point("journal synced");
        Ok(())
    }
}
