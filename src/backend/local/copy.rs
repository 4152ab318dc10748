//! Copies of images: for snapshots, for volumes made from snapshots and for volumes made from volumes.
//!
//! Where the file system shares blocks between files (xfs, btrfs: reflink), a copy is one atomic step, whatever the size, and can be
//! taken of a volume in use: the file system on it is frozen for that moment. A volume in use as a block device is copied as a
//! power cut would leave it. Elsewhere the data is copied, holes left out, and the source must not change meanwhile, so it must
//! not be attached.
//!
//! Locks are flock(2) on the source's image, so that other processes keep to them:
//! - an attached volume: shared, held by its loop device; who attaches one that is locked exclusively gets UNAVAILABLE;
//! - the source of a reflink, or a snapshot (which nobody attaches): shared, against deletion;
//! - a volume whose data is copied: exclusive, against being attached in the middle of it;
//! - deletion: exclusive.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FlockOperation, OFlags, SeekFrom};
use rustix::io::Errno;

use super::Local;
use super::image::{Room, allocated, length, look};
use super::store::{Draft, Locked, Pending, Shelf, failed};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::sys::crash;

/// How much is copied between two looks at where we are, in bytes.
const CHUNK: u64 = 64 << 20;
/// How the file is called that tells a later start of a freeze: `freeze-` and random digits.
const FREEZE: &str = "freeze-";

/// An image that is about to be copied. It cannot be deleted until this is dropped.
#[derive(Debug)]
pub(super) struct SourceImage {
    file: Locked,
    path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Bytes that have blocks.
    allocated: u64,
    /// How messages call it.
    what: String,
    is_volume: bool,
}

/// Whether the file system of `pending` can share blocks between files: found by doing it.
pub(super) fn has_reflink(pending: &std::sync::Arc<Pending>) -> Result<bool> {
    let (from, to) = (pending.draft()?, pending.draft()?);
    let (source, target) = (from.make_image()?, to.make_image()?);
    rustix::io::pwrite(&source, &[1; 4096], 0).map_err(|errno| failed("write to the directory of local volumes", errno))?;
    Ok(fs::ioctl_ficlone(&target, &source).is_ok())
}

impl Local {
    /// Opens the image of a volume or snapshot to copy it. `what` names it in messages.
    pub(super) fn open_source(&self, shelf: &Shelf, object: &str, what: String) -> Result<SourceImage> {
        let path = shelf.image_path(object);
        let is_volume = std::ptr::eq(shelf, &self.volumes);
        let gone = || Error::not_found(format!("{what}, the source, does not exist: its image {} is missing", path.display()));
        let file = shelf.open_image(object, OFlags::RDONLY)?.ok_or_else(gone)?;
        let exclusive = is_volume && !self.reflink;
        let how = if exclusive { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
        let Some(file) = Locked::by(file, how, &path)? else { return Err(self.source_in_use(&path, &what)?) };
        let stat = look(file.file(), &path)?;
        // Deleted between being opened and being locked.
        if stat.st_nlink == 0 {
            return Err(gone());
        }
        Ok(SourceImage { file, path, size: length(&stat), allocated: allocated(&stat), what, is_volume })
    }

    fn source_in_use(&self, path: &Path, what: &str) -> Result<Error> {
        Ok(match self.loops.find(path)? {
            Some(device) => Error::precondition(format!(
                "{what} is attached as {}, and the file system of {} cannot share blocks between files (no reflink), so it could \
                 change while it is copied: unstage and unpublish it first, or put CEPHLET_LOCAL_DIR on xfs or btrfs",
                device.path.display(),
                self.root.display()
            )),
            None => Error::unavailable(format!("{what} is being copied, attached or deleted by another operation: try again")),
        })
    }

    /// Copies the source into the draft's image, which is as long as the source afterwards.
    pub(super) fn copy(&self, call: &Call, source: &SourceImage, draft: &Draft, image: &File) -> Result<()> {
        call.step(format!("copying {}", source.what));
        crash::point("copy");
        let copied = match self.mount_of(source)? {
            _ if !self.reflink => self.copy_data(call, source, image),
            Some(mount_point) => self.clone_frozen(call, source, draft, &mount_point),
            None => fs::ioctl_ficlone(image, source.file.file())
                .map_err(|errno| failed(format_args!("clone {} for a copy of {}", source.path.display(), source.what), errno)),
        };
        crash::point("copied");
        copied
    }

    /// Where the source is mounted, if it is: a frozen file system is frozen wherever it is mounted.
    fn mount_of(&self, source: &SourceImage) -> Result<Option<PathBuf>> {
        if !source.is_volume {
            return Ok(None);
        }
        match self.loops.find(&source.path)? {
            Some(device) => Ok(self.loops.mounts(&device)?.into_iter().next()),
            None => Ok(None),
        }
    }

    /// Freezes, clones and thaws in a helper, which thaws whatever happens to us. A file tells the next start where to thaw in
    /// case the helper is killed too; it need not be synced, since a machine that restarts has nothing frozen.
    fn clone_frozen(&self, call: &Call, source: &SourceImage, draft: &Draft, mount_point: &Path) -> Result<()> {
        let marker = format!("{FREEZE}{}", self.pending.random_digits()?);
        let path = self.pending.directory().path().join(&marker);
        crash::point("write freeze marker");
        std::fs::write(&path, mount_point.as_os_str().as_encoded_bytes())
            .map_err(|error| Error::io(format_args!("write {}", path.display()), &error))?;
        let cloned = self.loops.clone_frozen(call, mount_point, &source.path, &draft.image_path());
        // After a failure the helper may still be at it: the marker stays for the next start.
        if cloned.is_ok() {
            self.pending.remove(&marker)?;
        }
        cloned.map_err(|error| error.context(format_args!("copy {}, mounted at {}", source.what, mount_point.display())))
    }

    /// Thaws what a copy before a crash may have left frozen.
    pub(super) fn thaw_left_over(&self, call: &Call, names: &[String]) {
        for marker in names.iter().filter(|name| name.starts_with(FREEZE)) {
            let path = self.pending.directory().path().join(marker);
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            log::warn!("a copy was interrupted while {text} was frozen: thawing it");
            if let Err(error) = self.loops.thaw(call, Path::new(&text)) {
                log::error!("{text} may still be frozen, run `fsfreeze -u {text}`: {error}");
            }
        }
    }

    /// Copies what is data, chunk by chunk; holes stay holes.
    fn copy_data(&self, call: &Call, source: &SourceImage, image: &File) -> Result<()> {
        let fail = |errno| failed(format_args!("copy {} ({})", source.path.display(), source.what), errno);
        Room::of(self.pending.directory())?.check(source.allocated, 0)?;
        fs::ftruncate(image, source.size).map_err(fail)?;
        let mut position = 0;
        while let Some((start, end)) = next_data(source.file.file(), position, source.size).map_err(fail)? {
            copy_range(source.file.file(), image, start, end).map_err(fail)?;
            position = end;
            call.step(format!("copying {}: at {} of {} MiB", source.what, position >> 20, source.size >> 20));
        }
        Ok(())
    }
}

/// The next piece of data at or after `position`, at most a chunk; None if only a hole is left (lseek(2), SEEK_DATA).
fn next_data(file: &File, position: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    if position >= size {
        return Ok(None);
    }
    let start = match fs::seek(file, SeekFrom::Data(position)) {
        Ok(start) if start < size => start,
        Ok(_) | Err(Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let hole = fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, hole.min(size).min(start + CHUNK))))
}

fn copy_range(from: &File, to: &File, start: u64, end: u64) -> Result<(), Errno> {
    let (mut read, mut written) = (start, start);
    while read < end {
        let length = usize::try_from(end - read).unwrap_or(usize::MAX);
        // Nothing copied: the source was cut off; what is missing reads as zeros, and its condition says so.
        if fs::copy_file_range(from, Some(&mut read), to, Some(&mut written), length)? == 0 {
            return Ok(());
        }
    }
    Ok(())
}
