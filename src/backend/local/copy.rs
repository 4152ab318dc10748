//! Copies of images: for snapshots, for volumes made from snapshots and for volumes made from volumes.
//!
//! Where the file system shares blocks between files (xfs, btrfs: reflink), a copy is one atomic step,
//! whatever the size, and can be taken of a volume in use: the file system on it is frozen for that moment. A
//! volume in use as a block device is copied as a power cut would leave it. Elsewhere the data is copied,
//! holes left out, and the source must not change meanwhile, so it must not be attached.
//!
//! Locks are flock(2) on the source's image, so that other processes keep to them:
//! - an attached volume: shared, held by its loop device; who attaches one that is locked exclusively gets
//!   UNAVAILABLE;
//! - the source of a reflink, or a snapshot (which nobody attaches): shared, against deletion;
//! - a volume whose data is copied: exclusive, against being attached in the middle of it;
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

/// The name of the file that records a freeze for a later start begins with this; random digits follow.
const FREEZE: &str = "freeze-";

/// An image that is about to be copied. It cannot be deleted until this is dropped.
#[derive(Debug)]
pub(super) struct SourceImage {
    file: FileLock,
    path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Bytes that have blocks.
    allocated: u64,
    /// How messages call it.
    what: String,
    is_volume: bool,
    /// The file system it was for, as far as that is known.
    pub fs_type: Option<String>,
}

impl SourceImage {
    /// Refuses a copy that is to have another file system than the one it was for and holds. A blank image
    /// gets the one that is asked for, and what is on a block volume is its user's.
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

/// Whether the file system of `pending` can share blocks between files. A full one is taken for one that
/// cannot: a controller that did not start there could delete nothing.
pub(super) fn has_reflink(pending: &Shelf) -> Result<bool> {
    match try_reflink(pending) {
        Err(error) if error.kind() == Kind::NoSpace => {
            log::warn!("volumes in use cannot be copied until the next start: {error}");
            Ok(false)
        }
        tried => tried,
    }
}

/// Shares a block between two files, if that is possible.
fn try_reflink(pending: &Shelf) -> Result<bool> {
    let (from, to) = (Draft::begin(pending)?, Draft::begin(pending)?);
    let (source, target) = (from.make_image()?, to.make_image()?);
    rustix::io::pwrite(&source, &[1; 4096], 0).map_err(failed("write", &from.image_path()))?;
    Ok(ioctl_ficlone(&target, &source).is_ok())
}

impl Local {
    /// Opens the image of a volume or snapshot to copy it. `what` names it in messages.
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
        // Deleted between being opened and being locked.
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

    /// Makes the draft's image a copy of the source, as long as that.
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

    /// Where file systems on the source are mounted.
    fn file_systems_of(&self, source: &SourceImage) -> Result<Vec<PathBuf>> {
        match self.loops.find(&source.path)? {
            Some(device) if source.is_volume => self.loops.file_systems(&device),
            _ => Ok(Vec::new()),
        }
    }

    /// Freezes, clones and thaws in a helper, which thaws whatever happens to us. A file tells the next start
    /// where to thaw in case the helper is killed too; it need not be synced, since a machine that restarts
    /// has nothing frozen.
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
        // After a failure the helper may still be at it: the marker stays for the next start.
        file::remove(&marker).map_err(failed("remove", &marker))?;
        draft.open_image()
    }

    /// Thaws what a copy before a crash may have left frozen.
    pub(super) fn thaw_left_over(&self, call: &Call, names: &[String]) {
        for marker in names.iter().filter(|name| name.starts_with(FREEZE)) {
            let Ok(text) = std::fs::read(self.pending.path_of(marker)) else { continue };
            for place in text.split(|byte| *byte == b'\n').filter(|place| !place.is_empty()) {
                self.thaw(call, Path::new(OsStr::from_bytes(place)));
            }
        }
    }

    fn thaw(&self, call: &Call, mount_point: &Path) {
        let shown = mount_point.display();
        log::warn!("a copy was interrupted while {shown} was frozen: thawing it");
        match self.loops.thaw(call, mount_point) {
            // Unmounted, so not frozen.
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            Err(error) => {
                log::error!("{shown} may still be frozen, run `fsfreeze --unfreeze {shown}`: {error}")
            }
            Ok(()) => {}
        }
    }

    /// Copies what is data; holes stay holes.
    fn copy_data(&self, call: &Call, source: &SourceImage, image: &File) -> Result<()> {
        FreeSpace::of(&self.pending)?.check(source.allocated, 0)?;
        let show = |copied: u64| {
            call.enter_step(format!(
                "copying {}: {} of {} MiB",
                source.what,
                copied >> 20,
                source.allocated >> 20
            ));
            Ok(())
        };
        copy_sparse(source.file.file(), image, show)
            .map(drop)
            .map_err(failed(format_args!("copy {} from", source.what), &source.path))
    }
}
