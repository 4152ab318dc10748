//! The file with a volume's content: its length, its blocks, and the free space for them.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{self, FallocateFlags};
use rustix::io::Errno;

use super::files::failed;
use super::store::Shelf;
use crate::backend::size::{Bounds, LARGEST, round_down};
use crate::error::{Error, Result};
use crate::sys::{changing, file};

/// The smallest volume, in bytes.
const SMALLEST: u64 = 1 << 20;

/// `EXT4_SUPER_MAGIC` of linux/magic.h.
const EXT4: u64 = 0xef53;

/// The space of the file system that has the images, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    /// The free space for files, without the reserve that ext4 keeps for root.
    pub free: u64,
    /// The whole space.
    pub total: u64,
    /// The largest possible file, empty or not.
    largest_file: u64,
}

impl FreeSpace {
    pub fn of(shelf: &Shelf) -> Result<Self> {
        let found = fs::fstatfs(&shelf.open).map_err(failed("ask how full is", &shelf.path))?;
        let block = found.f_frsize as u64;
        Ok(Self {
            free: found.f_bavail.saturating_mul(block),
            total: found.f_blocks.saturating_mul(block),
            largest_file: largest_file(found.f_type as u64, block),
        })
    }

    /// The largest volume that may be made now.
    pub fn largest(&self) -> u64 {
        round_down(self.free).min(self.largest_file)
    }

    /// The possible sizes of a volume that will be formatted like this.
    pub fn bounds<'a>(&self, formatted_with: Option<&'a str>) -> Bounds<'a> {
        Bounds { smallest: SMALLEST, largest: self.largest_file, fs_type: formatted_with }
    }

    /// Refuses a volume of `size` bytes, `allocated` of them with blocks, that would certainly run out of
    /// space.
    pub fn check(&self, size: u64, allocated: u64) -> Result<()> {
        let missing = size.saturating_sub(allocated);
        if missing <= self.free {
            return Ok(());
        }
        Err(Error::no_space(format!(
            "a volume of {size} bytes needs {missing} more, and the file system of local volumes has {} \
             bytes free: \
             ask for less, or free space there",
            self.free
        )))
    }
}

/// The largest file of a file system of this type. ext4 counts a file's blocks in 32 bits (fs/ext4/super.c,
/// `ext4_max_size`); xfs, btrfs and tmpfs take up to [`LARGEST`]. Other types refuse the length themselves.
fn largest_file(fs_type: u64, block: u64) -> u64 {
    match fs_type {
        EXT4 => round_down(u64::from(u32::MAX).saturating_mul(block)),
        _ => LARGEST,
    }
}

/// The bytes of the file that have blocks. stat(2) counts blocks of 512 bytes on every file system.
pub(super) fn allocated(stat: &Metadata) -> u64 {
    stat.blocks().saturating_mul(512)
}

/// Gives a new image its length, and all its blocks if it is to be preallocated. The free space is checked
/// after the length, to tell a size that the file system can never have from one that does not fit now.
///
/// `shares` says that the image is a copy whose blocks belong to its source, too. If it is to be
/// preallocated, it gets blocks of its own: a write to a shared block needs another one.
pub(super) fn finish(
    (image, path): (&File, &Path),
    size: u64,
    (preallocate, shares): (bool, bool),
    shelf: &Shelf,
) -> Result<()> {
    let present = allocated(&image.metadata().map_err(failed("look at", path))?);
    lengthen(image, path, size)?;
    FreeSpace::of(shelf)?.check(size, present)?;
    if preallocate && shares {
        allocate(image, path, size, FallocateFlags::UNSHARE_RANGE | FallocateFlags::KEEP_SIZE)?;
    }
    if preallocate { fill(image, path, size) } else { Ok(()) }
}

/// Lengthens an image, which may be in use. The length is set last and never undone: the loop device and
/// the file system on it may have grown at once. After a failure the image is as it was.
pub(super) fn grow(image: &File, path: &Path, size: u64, preallocate: bool, shelf: &Shelf) -> Result<()> {
    let stat = image.metadata().map_err(failed("look at", path))?;
    FreeSpace::of(shelf)?.check(size, allocated(&stat))?;
    if preallocate && let Err(error) = fill(image, path, size) {
        // Setting the same length again frees the blocks behind the end (ftruncate(2)).
        if let Err(error) = image.set_len(stat.len()) {
            log::warn!("{} keeps blocks behind its end: {error}", path.display());
        }
        return Err(error);
    }
    lengthen(image, path, size)?;
    file::sync_file(image).map_err(failed("sync", path))
}

fn lengthen(image: &File, path: &Path, size: u64) -> Result<()> {
    changing("set length", || fs::ftruncate(image, size)).map_err(|errno| {
        // A size that the file system cannot represent fails with EFBIG, on some kernels with EINVAL.
        let errno = if errno == Errno::INVAL { Errno::FBIG } else { errno };
        let error = failed(format_args!("set the length to {size} bytes of"), path)(errno);
        if errno == Errno::FBIG { error.hint("ask for less") } else { error }
    })
}

/// Allocates all blocks of the image.
fn fill(image: &File, path: &Path, size: u64) -> Result<()> {
    allocate(image, path, size, FallocateFlags::KEEP_SIZE)
}

fn allocate(image: &File, path: &Path, size: u64, how: FallocateFlags) -> Result<()> {
    let allocated = changing("allocate", || fs::fallocate(image, how, 0, size));
    allocated.map_err(|errno| match errno {
        Errno::OPNOTSUPP => Error::invalid(format!(
            "the parameter \"preallocate\" is true, but the file system of {} cannot allocate ahead, or not for a \
             copy (btrfs): leave the parameter out",
            path.display()
        )),
        errno => failed(format_args!("allocate {size} bytes for"), path)(errno),
    })
}
