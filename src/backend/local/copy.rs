//! Copies of images: for snapshots, and for volumes made from snapshots or from volumes.
//!
//! On a file system that shares blocks between files (xfs, btrfs: reflink), a copy is one atomic step of any
//! size. A volume in use can be copied: the file system on it is frozen for that moment, and a volume in use
//! as a block device is copied as a power cut would leave it. On other file systems the data is copied, but
//! not the holes, and the source must not change meanwhile, so it must not be attached.
//!
//! Locks are flock(2) on the source's image, so that other processes respect them:
//! - an attached volume: shared, held by its loop device; attaching an exclusively locked volume fails with
//!   UNAVAILABLE;
//! - the source of a reflink, or a snapshot (which is never attached): shared, against deletion;
//! - a volume whose data is copied: exclusive, so that it is not attached meanwhile;
//! - deletion: exclusive.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::ioctl_ficlone;

use super::Local;
use super::files::failed;
use super::image::{FreeSpace, allocated};
use super::store::{Draft, Shelf, random_digits};
use crate::backend::parameters::other_file_system;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::sys::copy::copy_sparse;
use crate::sys::flock::FileLock;
use crate::sys::superblock::{Content, identify};
use crate::sys::{changing, file};

/// The prefix of the file that records a freeze for the next start; random digits follow.
const FREEZE: &str = "freeze-";

/// An image that is about to be copied. It cannot be deleted until this value is dropped.
#[derive(Debug)]
pub(super) struct SourceImage {
    file: FileLock,
    path: PathBuf,
    /// Its length in bytes.
    pub size: u64,
    /// How many of its bytes have blocks.
    allocated: u64,
    /// Its name in messages.
    what: String,
    is_volume: bool,
    /// The file system that it was made for, if known.
    pub fs_type: Option<String>,
}

impl SourceImage {
    /// Refuses a copy for another file system than the one that the source was made for and has. A blank
    /// image gets the requested file system, and the content of a block volume is its user's affair.
    pub fn refuse_other_file_system(&self, asked: &str) -> Result<()> {
        if self.fs_type.as_deref().is_none_or(|made_for| made_for == asked) {
            return Ok(());
        }
        let file = self.file.file();
        let found = identify(file, self.size, Some(file));
        match found.map_err(failed("read", &self.path))? {
            Content::FileSystem(present) if present.fs_type.name() != asked => {
                Err(other_file_system(present.fs_type.name(), asked))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the file system of `pending` can share blocks between files. A full file system counts as one that
/// cannot: a controller that did not start could not delete anything.
pub(super) fn has_reflink(pending: &Shelf) -> Result<bool> {
    match try_reflink(pending) {
        Err(error) if error.kind() == Kind::NoSpace => {
            log::warn!("volumes in use cannot be copied until the next start: {error}");
            Ok(false)
        }
        tried => tried,
    }
}

/// Shares a block between two files, if possible.
fn try_reflink(pending: &Shelf) -> Result<bool> {
    let (from, to) = (Draft::begin(pending)?, Draft::begin(pending)?);
    let (source, target) = (from.make_image()?, to.make_image()?);
    rustix::io::pwrite(&source, &[1; 4096], 0).map_err(failed("write", &from.image_path()))?;
    Ok(ioctl_ficlone(&target, &source).is_ok())
}

impl Local {
    /// Opens the image of a volume or snapshot to copy it. `what` is its name in messages.
    pub(super) fn open_source(&self, shelf: &Shelf, object: &str, what: String) -> Result<SourceImage> {
        let path = shelf.image_path(object);
        let is_volume = std::ptr::eq(shelf, &self.volumes);
        let gone = || {
            Error::not_found(format!(
                "{what}, the source, does not exist: its image {} is missing",
                path.display()
            ))
        };
        let file = shelf.open_image(object, false)?.ok_or_else(gone)?;
        let exclusive = is_volume && !self.reflink;
        let locked = if exclusive { FileLock::try_exclusive(file) } else { FileLock::try_shared(file) };
        let Some(file) = locked.map_err(failed("lock", &path))? else {
            return Err(self.source_in_use(&path, &what)?);
        };
        let stat = file.file().metadata().map_err(failed("look at", &path))?;
        // The image was deleted after it was opened and before it was locked.
        if stat.nlink() == 0 {
            return Err(gone());
        }
        Ok(SourceImage {
            file,
            path,
            size: stat.len(),
            allocated: allocated(&stat),
            what,
            is_volume,
            fs_type: None,
        })
    }

    fn source_in_use(&self, path: &Path, what: &str) -> Result<Error> {
        Ok(match self.loops.find(path)? {
            Some(device) => Error::precondition(format!(
                "{what} is attached as {}, and the file system of {} cannot share blocks between files (no \
                 reflink), so it could \
                 change while it is copied: unstage and unpublish it first, or put CEPHLET_LOCAL_DIR on xfs \
                 or btrfs",
                device.path.display(),
                self.root.display()
            )),
            None => Error::unavailable(format!(
                "{what} is being copied, attached or deleted by another operation: try again"
            )),
        })
    }

    /// Makes the draft's image a copy of the source, of the same length.
    pub(super) fn copy(&self, call: &Call, source: &SourceImage, draft: &Draft) -> Result<File> {
        call.enter_step(format!("copying {}", source.what));
        let mount_points = self.file_systems_of(source)?;
        if self.reflink && !mount_points.is_empty() {
            return self.clone_frozen(call, source, draft, &mount_points);
        }
        let image = draft.make_image()?;
        changing("copy", || match self.reflink {
            true => ioctl_ficlone(&image, source.file.file())
                .map_err(failed(format_args!("copy {} by a clone of", source.what), &source.path)),
            false => self.copy_data(call, source, &image),
        })?;
        Ok(image)
    }

    /// The mount points of file systems on the source.
    fn file_systems_of(&self, source: &SourceImage) -> Result<Vec<PathBuf>> {
        match self.loops.find(&source.path)? {
            Some(device) if source.is_volume => self.loops.file_systems(&device),
            _ => Ok(Vec::new()),
        }
    }

    /// Freezes, clones and thaws in a helper, which thaws even if this daemon is killed. A file tells the
    /// next start where to thaw in case the helper is killed too. The file need not be synced: nothing is
    /// frozen after a reboot.
    fn clone_frozen(
        &self,
        call: &Call,
        source: &SourceImage,
        draft: &Draft,
        mount_points: &[PathBuf],
    ) -> Result<File> {
        let marker = self.pending.at(&format!("{FREEZE}{}", random_digits()?))?;
        let places: Vec<_> = mount_points.iter().map(|path| path.as_os_str().as_bytes()).collect();
        changing("write freeze marker", || std::fs::write(&marker, places.join(&b'\n')))
            .map_err(failed("write", &marker))?;
        self.loops
            .clone_frozen(call, mount_points, &source.path, &draft.image_path())
            .map_err(|error| error.context(format_args!("copy {} while it is frozen", source.what)))?;
        // After a failure the helper may still be running: the marker stays for the next start.
        file::remove(&marker).map_err(failed("remove", &marker))?;
        draft.open_image()
    }

    /// Thaws the file systems that a copy before a crash may have left frozen.
    pub(super) fn thaw_left_over(&self, call: &Call, names: &[String]) {
        for marker in names.iter().filter(|name| name.starts_with(FREEZE)) {
            let Ok(text) = std::fs::read(self.pending.path.join(marker)) else { continue };
            for place in text.split(|byte| *byte == b'\n').filter(|place| !place.is_empty()) {
                self.thaw(call, Path::new(OsStr::from_bytes(place)));
            }
        }
    }

    fn thaw(&self, call: &Call, mount_point: &Path) {
        let shown = mount_point.display();
        log::warn!("a copy was interrupted while {shown} was frozen: thawing it");
        match self.loops.thaw(call, mount_point) {
            // The place is not mounted, so it is not frozen.
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            Err(error) => {
                log::error!("{shown} may still be frozen, run `fsfreeze --unfreeze {shown}`: {error}")
            }
            Ok(()) => {}
        }
    }

    /// Copies the data; holes stay holes.
    fn copy_data(&self, call: &Call, source: &SourceImage, image: &File) -> Result<()> {
        FreeSpace::of(&self.pending)?.check(source.allocated, 0)?;
        call.enter_step(format!("copying {}, {} MiB", source.what, source.allocated >> 20));
        let show = |copied: u64| {
            call.come_to((copied.min(source.allocated) * 100 / source.allocated.max(1)) as u8);
            Ok(())
        };
        copy_sparse(source.file.file(), image, show)
            .map(drop)
            .map_err(failed(format_args!("copy {} from", source.what), &source.path))
    }
}
