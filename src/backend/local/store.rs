//! Directories of objects: how an object is made, found, changed and removed, so that no object under a final
//! name is ever half made.
//!
//! 1. An object is a directory with the files `image` and `record`. It is made as a [`Draft`] in `pending/`,
//!    under a random name.
//! 2. Image, record and the draft's directory are synced. Then the draft is renamed to its final name, which
//!    must be free, and the directory of final names is synced. A crash may come between the two, so that
//!    directory is synced at start, before the first request is answered from it.
//! 3. A file in an object is replaced by a new one: written as `NAME.new`, synced, renamed, the object's
//!    directory synced.
//! 4. To remove an object, it is renamed into `pending/`, the directory of final names is synced, and then
//!    the object is deleted.
//! 5. Everything in `pending/` is unused after a start, and is removed.
//!
//! [`mod@file`] does each of these steps between two crash points.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::RenameFlags;
use serde::de::DeserializeOwned;

use super::files::{failed, is_name, present};
use crate::backend::creation_record::from_bytes;
use crate::error::{Error, Result};
use crate::ids;
use crate::node_name::LOCAL;
use crate::sys::flock::FileLock;
use crate::sys::{file, random};

/// The file with a volume's or snapshot's content.
pub(super) const IMAGE: &str = "image";
/// The file with the request that made the object.
pub(super) const RECORD: &str = "record";
/// The file that exists while the volume is published.
pub(super) const PUBLISHED: &str = "published";

/// 16 random hexadecimal digits.
pub(super) fn random_digits() -> Result<String> {
    random::hex(8).map_err(|error| Error::io("get random bytes", &error))
}

/// Removes a file, or a directory of files, from `pending/`. If that fails, it stays until the next start.
pub(super) fn discard(path: &Path) {
    if let Err(error) = remove(path) {
        log::warn!("{} stays, with what it takes up, until the next start: {error}", path.display());
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match file::remove(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
        removed => return removed.map(drop),
    }
    for entry in path.read_dir()? {
        file::remove(&entry?.path())?;
    }
    file::remove_dir(path).map(drop)
}

/// Opens a file, but follows no symbolic link.
fn open(path: &Path, write: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(write).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// An object in the making. When dropped, it is removed if it still has its first name.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
}

impl Draft {
    /// Begins a new object.
    pub fn begin(pending: &Shelf) -> Result<Self> {
        let path = pending.at(&random_digits()?)?;
        file::ensure_dir(&path).map_err(failed("make", &path))?;
        Ok(Self { path })
    }

    pub fn image_path(&self) -> PathBuf {
        self.path.join(IMAGE)
    }

    /// Makes the empty image, open for reading and writing.
    pub fn make_image(&self) -> Result<File> {
        let path = self.image_path();
        file::create_new(&path).map_err(failed("make", &path))
    }

    /// Opens the image that a helper has made.
    pub fn open_image(&self) -> Result<File> {
        let path = self.image_path();
        open(&path, true).map_err(failed("open", &path))
    }

    /// Writes the record and makes the whole draft durable. The record goes first: a journalling file system
    /// writes the inodes of image and directory with it, so that their syncs find nothing left to do.
    pub fn seal(&self, image: &File, record: &[u8]) -> Result<()> {
        let path = self.path.join(RECORD);
        file::write_new(&path, record).map_err(failed("write", &path))?;
        file::sync_file(image).map_err(failed("write", &self.image_path()))?;
        file::sync_dir(&self.path).map_err(failed("sync", &self.path))
    }

    /// Gives the object its final name, durably; false if another object has the name.
    pub fn finish(self, shelf: &Shelf, object: &str) -> Result<bool> {
        let path = shelf.at(object)?;
        match file::rename(&self.path, &path, RenameFlags::NOREPLACE) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EEXIST | libc::ENOTEMPTY)) => Ok(false),
            renamed => {
                renamed.map_err(failed("rename a new object to", &path))?;
                shelf.sync()?;
                Ok(true)
            }
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        discard(&self.path);
    }
}

/// A directory of objects: `volumes/`, `snapshots/` or `pending/`.
#[derive(Debug)]
pub(super) struct Shelf {
    pub path: PathBuf,
    /// Keeps the disk from being unmounted, and identifies the directory.
    pub open: File,
    /// A sync has failed: what the directory shows may not be on the disk, and another sync would not tell
    /// (fsync(2), ERRORS). A repeated request must not be answered from it.
    is_unsure: AtomicBool,
}

/// The key of an object in lists.
pub(super) fn list_key(object: &str) -> String {
    format!("{LOCAL}:{}", ids::encode(object))
}

/// The object of a key in lists; empty for the beginning of the list.
fn name_of_key(key: &str) -> Result<String> {
    let object = key.strip_prefix(LOCAL).unwrap_or(key).trim_start_matches(':');
    ids::decode(object).ok_or_else(|| Error::bad_token(key))
}

impl Shelf {
    /// Opens the directory, or makes it with mode 0700. All its parents are made too.
    pub fn ensure(path: PathBuf) -> Result<Self> {
        file::ensure_dir(&path).map_err(failed("make the directory of local volumes", &path))?;
        let open = File::open(&path).map_err(failed("open", &path))?;
        Ok(Self { path, open, is_unsure: AtomicBool::new(false) })
    }

    /// The path of `name` in the directory. Refused once another directory is found in its place: its content
    /// says nothing about the objects, and new objects there would be hidden later. Refused after a sync has
    /// failed, too.
    pub fn at(&self, name: &str) -> Result<PathBuf> {
        if self.is_unsure.load(Ordering::Relaxed) {
            return Err(Error::unavailable(format!(
                "{} could not be synced, so what it shows may be lost: see the kernel's log (dmesg), mend its disk, \
                 and restart cephlet",
                self.path.display()
            )));
        }
        let inode = |found: Metadata| (found.dev(), found.ino());
        match (self.path.metadata().map(inode), self.open.metadata().map(inode)) {
            (Ok(there), Ok(own)) if there == own => Ok(self.path.join(name)),
            _ => Err(Error::unavailable(format!(
                "{} is not the directory that it was when cephlet started: put that back, or restart cephlet",
                self.path.display()
            ))),
        }
    }

    pub fn image_path(&self, object: &str) -> PathBuf {
        self.path.join(object).join(IMAGE)
    }

    /// Makes every name in the directory durable.
    pub fn sync(&self) -> Result<()> {
        self.sync_dir(&self.path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let synced = file::sync_dir(path).inspect_err(|_| self.is_unsure.store(true, Ordering::Relaxed));
        synced.map_err(failed("sync", path))
    }

    /// Every name in the directory, in no order.
    pub fn names(&self) -> Result<Vec<String>> {
        let list = |path: PathBuf| -> io::Result<Vec<OsString>> {
            path.read_dir()?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let names = list(self.at("")?).map_err(failed("list", &self.path))?;
        Ok(names
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| is_name(name))
            .collect())
    }

    /// Up to `limit` names (0: all) that follow the key `after` and are `wanted`, in order, and whether more
    /// follow. One pass over the directory, and only the names of the page are sorted.
    pub fn page(
        &self,
        after: &str,
        limit: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(Vec<String>, bool)> {
        let mut names = self.names()?;
        let after = name_of_key(after)?;
        names.retain(|name| *name > after && wanted(name));
        let more = limit != 0 && names.len() > limit;
        if more {
            names.select_nth_unstable(limit);
            names.truncate(limit);
        }
        names.sort_unstable();
        Ok((names, more))
    }

    /// The record in a file of an object, or a text that says what is wrong with it; None if there is no such
    /// file.
    pub fn read<T: DeserializeOwned>(&self, object: &str, file: &str) -> Result<Option<Result<T, String>>> {
        let path = self.at(object)?.join(file);
        let mut content = Vec::with_capacity(1024);
        let read = open(&path, false).and_then(|mut file| file.read_to_end(&mut content));
        let read = present(read).map_err(failed("read", &path))?;
        Ok(read.map(|_| from_bytes(&content).map_err(|wrong| format!("{}: {wrong}", path.display()))))
    }

    /// The record of an object, or a text that says what is wrong with it; None if there is no object.
    pub fn record<T: DeserializeOwned>(&self, object: &str) -> Result<Option<Result<T, String>>> {
        let first = self.read(object, RECORD)?;
        let path = self.path.join(object);
        if first.is_some() || present(path.symlink_metadata()).map_err(failed("look at", &path))?.is_none() {
            return Ok(first);
        }
        let path = path.join(RECORD);
        // The object may have been made since the first look.
        Ok(Some(self.read(object, RECORD)?.unwrap_or_else(|| {
            Err(format!("{} is missing: it was put here by hand, or has lost its record", path.display()))
        })))
    }

    /// Opens an object's image; None if there is none.
    pub fn open_image(&self, object: &str, write: bool) -> Result<Option<File>> {
        let path = self.at(object)?.join(IMAGE);
        present(open(&path, write)).map_err(failed("open", &path))
    }

    /// Length, allocation and identity of an object's image; None if there is none.
    pub fn stat_image(&self, object: &str) -> Result<Option<Metadata>> {
        let path = self.at(object)?.join(IMAGE);
        present(path.symlink_metadata()).map_err(failed("look at", &path))
    }

    /// Puts `content` into a file of an object, all or nothing, durably.
    pub fn replace(&self, object: &str, file: &str, content: &[u8]) -> Result<()> {
        let path = self.own(object)?.join(file);
        file::write_whole(&path, content).map_err(failed("write", &path))
    }

    /// Removes a file of an object, durably; a missing file is no error.
    pub fn remove_file(&self, object: &str, file: &str) -> Result<()> {
        let path = self.own(object)?.join(file);
        file::remove(&path).map_err(failed("remove", &path))?;
        self.sync_object(object)
    }

    /// Makes every name inside one object durable.
    pub fn sync_object(&self, object: &str) -> Result<()> {
        self.sync_dir(&self.own(object)?)
    }

    /// The directory of an object, to change its content. A symbolic link in its place is refused.
    fn own(&self, object: &str) -> Result<PathBuf> {
        let path = self.at(object)?;
        if path.is_symlink() {
            return Err(failed("change", &path)(io::Error::from_raw_os_error(libc::ELOOP)));
        }
        Ok(path)
    }

    /// Removes an object, durably. That is refused while its image is copied or attached, and copying and
    /// attaching are refused meanwhile. `what` names the object in messages.
    pub fn retire(&self, object: &str, what: &str, pending: &Self) -> Result<()> {
        let _lock = self.lock_for_deletion(object, what)?;
        let (path, away) = (self.at(object)?, pending.at(&random_digits()?)?);
        let moved = file::rename(&path, &away, RenameFlags::empty());
        present(moved).map_err(failed("move away", &path))?;
        self.sync()?;
        discard(&away);
        Ok(())
    }

    /// Locks an image that is about to be removed against other users. None if there is no image.
    fn lock_for_deletion(&self, object: &str, what: &str) -> Result<Option<FileLock>> {
        let Some(image) = self.open_image(object, false)? else { return Ok(None) };
        let locked = FileLock::try_exclusive(image).map_err(failed("lock", &self.image_path(object)))?;
        let in_use = || {
            Error::precondition(format!(
                "{what} cannot be deleted: it is being copied or attached right now; try again when that is \
                 done"
            ))
        };
        locked.ok_or_else(in_use).map(Some)
    }
}
