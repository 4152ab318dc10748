//! Directories of objects: how one is made, found, changed and taken away so that nothing under a final name
//! is ever half made.
//!
//! 1. An object is a directory with the files `image` and `record`. It is made as a [`Draft`] in `pending/`,
//!    under a random name.
//! 2. Image, record and the draft's directory are synced; then it is renamed to its final name, which must be
//!    free, and the directory of final names is synced. A crash may come between the two: so the directory is
//!    synced at start, before anybody is answered from what is seen there.
//! 3. A file in an object is replaced by a new one: written as `NAME.new`, synced, renamed, the object's
//!    directory synced.
//! 4. An object is taken away by a rename into `pending/`, a sync of the directory of final names, and then
//!    its removal.
//! 5. What lies in `pending/` belongs to nobody after a start, and is removed.
//!
//! The directories are kept open: a create looks up no long path, and a directory that is moved away is
//! noticed by nobody else.

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{self, AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::directory::Directory;
use super::files::{failed, failed_io, not_locked, present};
use crate::error::{Error, Result};
use crate::sys::crash;
use crate::sys::flock::FileLock;

/// The file with a volume's or snapshot's content.
pub(super) const IMAGE: &str = "image";
/// The file that says how it was asked for.
pub(super) const RECORD: &str = "record";
/// The file that is there while the volume is published.
pub(super) const PUBLISHED: &str = "published";

const NEW_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// Where half-made and half-removed objects are.
#[derive(Debug)]
pub(super) struct Pending {
    directory: Directory,
}

impl Pending {
    pub fn ensure(path: PathBuf) -> Result<Self> {
        Ok(Self { directory: Directory::ensure(path)? })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// 16 hexadecimal digits that nobody has had.
    pub fn random_digits(&self) -> Result<String> {
        crate::sys::random::hex(8).map_err(|error| Error::io("get random bytes", &error))
    }

    /// Begins a new object.
    pub fn draft(self: &Arc<Self>) -> Result<Draft> {
        let name = self.random_digits()?;
        let path = self.directory.path.join(&name);
        let fail = |errno| failed(format_args!("make {}", path.display()), errno);
        crash::point("make draft");
        fs::mkdirat(&self.directory.fd, &name, Mode::RWXU).map_err(fail)?;
        crash::point("draft made");
        let fd = fs::openat(&self.directory.fd, &name, NEW_DIRECTORY, Mode::empty()).map_err(fail)?;
        Ok(Draft { pending: Arc::clone(self), name, directory: Directory { fd, path }, finished: false })
    }

    /// Removes what is called `name`: a file, or a directory of files.
    pub fn remove(&self, name: &str) -> Result<()> {
        let path = self.directory.path.join(name);
        let fail = |errno| failed(format_args!("remove {}", path.display()), errno);
        crash::point("unlink");
        match fs::unlinkat(&self.directory.fd, name, AtFlags::empty()) {
            Ok(()) => {
                crash::point("unlinked");
                return Ok(());
            }
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(errno) => return Err(fail(errno)),
        }
        let fd = fs::openat(&self.directory.fd, name, NEW_DIRECTORY, Mode::empty()).map_err(fail)?;
        let directory = Directory { fd, path: path.clone() };
        for file in directory.names()? {
            crash::point("unlink");
            fs::unlinkat(&directory.fd, &file, AtFlags::empty()).map_err(fail)?;
        }
        crash::point("remove directory");
        fs::unlinkat(&self.directory.fd, name, AtFlags::REMOVEDIR).map_err(fail)?;
        crash::point("directory removed");
        Ok(())
    }
}

/// Whether an object was given its final name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    /// It has it.
    Done,
    /// Another object has it; the draft is removed.
    NameTaken,
}

/// An object in the making; removed when dropped before it is finished.
#[derive(Debug)]
pub(super) struct Draft {
    pending: Arc<Pending>,
    name: String,
    directory: Directory,
    finished: bool,
}

impl Draft {
    pub fn image_path(&self) -> PathBuf {
        self.directory.path.join(IMAGE)
    }

    /// Makes the empty image, open for reading and writing.
    pub fn make_image(&self) -> Result<File> {
        self.make(IMAGE)
    }

    /// Opens the image that a helper has made.
    pub fn open_image(&self) -> Result<File> {
        fs::openat(
            &self.directory.fd,
            IMAGE,
            OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map(File::from)
        .map_err(|errno| failed(format_args!("open {}", self.image_path().display()), errno))
    }

    /// Writes the record and makes everything in the draft durable. The record goes first: a journalling file
    /// system writes the inodes of image and directory with it, so that their syncs find nothing left to do.
    pub fn seal(&self, image: &File, record: &[u8]) -> Result<()> {
        let mut file = self.make(RECORD)?;
        let fail = |error: std::io::Error| failed_io(&self.directory.path.join(RECORD), &error);
        crash::point("write record");
        file.write_all(record).map_err(fail)?;
        crash::point("sync record");
        file.sync_all().map_err(fail)?;
        crash::point("sync image");
        image.sync_all().map_err(|error| failed_io(&self.image_path(), &error))?;
        self.directory.sync()
    }

    /// Gives the object its final name, durably.
    pub fn finish(mut self, shelf: &Shelf, object: &str) -> Result<Finished> {
        crash::point("rename draft");
        let renamed = fs::renameat_with(
            &self.pending.directory.fd,
            &self.name,
            &shelf.directory.fd,
            object,
            RenameFlags::NOREPLACE,
        );
        crash::point("draft renamed");
        match renamed {
            Ok(()) => self.finished = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Ok(Finished::NameTaken),
            Err(errno) => {
                return Err(failed(
                    format_args!("rename a new object to {}", shelf.path_of(object).display()),
                    errno,
                ));
            }
        }
        shelf.directory.sync()?;
        Ok(Finished::Done)
    }

    fn make(&self, name: &str) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        crash::point("make file");
        let made = fs::openat(&self.directory.fd, name, flags, Mode::RUSR | Mode::WUSR);
        crash::point("file made");
        made.map(File::from)
            .map_err(|errno| failed(format_args!("make {}", self.directory.path.join(name).display()), errno))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let Err(error) = self.pending.remove(&self.name) {
            log::warn!("a half-made object stays behind until the next start: {error}");
        }
    }
}

/// A directory of finished objects: `volumes/` or `snapshots/`.
#[derive(Debug)]
pub(super) struct Shelf {
    directory: Directory,
    pending: Arc<Pending>,
}

impl Shelf {
    /// Keeps everybody else from an image that is about to be removed; hold the lock until it is. None if
    /// there is no image.
    pub fn lock_for_deletion(&self, object: &str, what: &str) -> Result<Option<FileLock>> {
        let Some(image) = self.open_image(object, OFlags::RDONLY)? else { return Ok(None) };
        let not_locked = |error| not_locked(&self.image_path(object), &error);
        let locked = FileLock::try_exclusive(image).map_err(not_locked)?;
        let in_use = || {
            Error::precondition(format!(
                "{what} cannot be deleted: it is being copied or attached right now; try again when that is \
                 done"
            ))
        };
        locked.ok_or_else(in_use).map(Some)
    }

    pub fn ensure(path: PathBuf, pending: &Arc<Pending>) -> Result<Self> {
        Ok(Self { directory: Directory::ensure(path)?, pending: Arc::clone(pending) })
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn path_of(&self, object: &str) -> PathBuf {
        self.directory.path.join(object)
    }

    pub fn image_path(&self, object: &str) -> PathBuf {
        self.path_of(object).join(IMAGE)
    }

    /// Whether there is an object of this name, whatever is in it.
    pub fn has(&self, object: &str) -> Result<bool> {
        let found = fs::statat(&self.directory.fd, object, AtFlags::SYMLINK_NOFOLLOW);
        let found = present(found)
            .map_err(|errno| failed(format_args!("look at {}", self.path_of(object).display()), errno))?;
        Ok(found.is_some())
    }

    /// The content of a file of an object; None if there is no such file.
    pub fn read(&self, object: &str, file: &str) -> Result<Option<Vec<u8>>> {
        let Some(mut opened) = self.open(object, file, OFlags::RDONLY)? else { return Ok(None) };
        let mut content = Vec::with_capacity(1024);
        opened.read_to_end(&mut content).map_err(|error| {
            Error::io(format_args!("read {}", self.path_of(object).join(file).display()), &error)
        })?;
        Ok(Some(content))
    }

    /// Opens an object's image; None if there is none.
    pub fn open_image(&self, object: &str, access: OFlags) -> Result<Option<File>> {
        self.open(object, IMAGE, access)
    }

    fn open(&self, object: &str, file: &str, access: OFlags) -> Result<Option<File>> {
        let name = format!("{object}/{file}");
        let opened =
            fs::openat(&self.directory.fd, &name, access | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
        let opened = present(opened)
            .map_err(|errno| failed(format_args!("open {}", self.path_of(&name).display()), errno))?;
        Ok(opened.map(File::from))
    }

    /// Length, allocation and identity of an object's image; None if there is none.
    pub fn stat_image(&self, object: &str) -> Result<Option<fs::Stat>> {
        let name = format!("{object}/{IMAGE}");
        let found = fs::statat(&self.directory.fd, &name, AtFlags::SYMLINK_NOFOLLOW);
        present(found)
            .map_err(|errno| failed(format_args!("look at {}", self.path_of(&name).display()), errno))
    }

    /// Puts `content` into a file of an object, all or nothing, durably.
    pub fn replace(&self, object: &str, file: &str, content: &[u8]) -> Result<()> {
        let directory = self.open_object(object)?;
        let (path, new) = (directory.path.join(file), format!("{file}.new"));
        let fail = |errno| failed(format_args!("write {}", path.display()), errno);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        crash::point("make new file");
        let opened = fs::openat(&directory.fd, &new, flags, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        let mut opened = File::from(opened);
        crash::point("write new file");
        opened.write_all(content).map_err(|error| failed_io(&path, &error))?;
        crash::point("sync new file");
        opened.sync_all().map_err(|error| failed_io(&path, &error))?;
        crash::point("rename file");
        fs::renameat(&directory.fd, &new, &directory.fd, file).map_err(fail)?;
        directory.sync()
    }

    /// Removes a file of an object, durably; one that is not there is removed.
    pub fn remove_file(&self, object: &str, file: &str) -> Result<()> {
        let directory = self.open_object(object)?;
        crash::point("unlink file");
        match fs::unlinkat(&directory.fd, file, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => directory.sync(),
            Err(errno) => Err(failed(format_args!("remove {}", directory.path.join(file).display()), errno)),
        }
    }

    /// Makes every name inside one object durable.
    pub fn sync_object(&self, object: &str) -> Result<()> {
        self.open_object(object)?.sync()
    }

    fn open_object(&self, object: &str) -> Result<Directory> {
        let path = self.path_of(object);
        let fd = fs::openat(&self.directory.fd, object, NEW_DIRECTORY, Mode::empty())
            .map_err(|errno| failed(format_args!("open {}", path.display()), errno))?;
        Ok(Directory { fd, path })
    }

    /// Takes an object away, durably; what could not be removed any more is left to the next start.
    pub fn retire(&self, object: &str) -> Result<()> {
        let name = self.pending.random_digits()?;
        crash::point("rename away");
        match fs::renameat(&self.directory.fd, object, &self.pending.directory.fd, &name) {
            Ok(()) => {}
            Err(Errno::NOENT) => return self.directory.sync(),
            Err(errno) => {
                return Err(failed(format_args!("move {} away", self.path_of(object).display()), errno));
            }
        }
        crash::point("renamed away");
        self.directory.sync()?;
        if let Err(error) = self.pending.remove(&name) {
            log::warn!(
                "what {} took up is freed at the next start only: {error}",
                self.path_of(object).display()
            );
        }
        Ok(())
    }

    /// Up to `limit` names (0: all) that follow `after` and are `wanted`, in order, and whether more follow.
    /// One pass over the directory, and only the names of the page are sorted.
    pub fn page(
        &self,
        after: &str,
        limit: usize,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(Vec<String>, bool)> {
        let mut names = self.directory.names()?;
        names.retain(|name| name.as_str() > after && wanted(name));
        let more = limit != 0 && names.len() > limit;
        if more {
            names.select_nth_unstable(limit);
            names.truncate(limit);
        }
        names.sort_unstable();
        Ok((names, more))
    }
}
