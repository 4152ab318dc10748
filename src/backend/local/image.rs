//! The file with a volume's content: its length, its blocks, and the room there is for them.

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]

use std::fs::File;
use std::path::Path;

use rustix::fs::{self, FallocateFlags, Stat};
use rustix::io::Errno;

use super::directory::Directory;
use super::files::failed;
use crate::backend::size::{Bounds, LARGEST, round_down};
use crate::error::{Error, Result};
use crate::sys::crash;

/// The smallest volume, in bytes.
const SMALLEST: u64 = 1 << 20;

/// `EXT4_SUPER_MAGIC` of linux/magic.h.
const EXT4: u64 = 0xef53;

/// How full the file system below is, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeSpace {
    /// Free for files. What ext4 keeps for root is not counted.
    pub free: u64,
    /// Everything.
    pub total: u64,
    /// The largest file that it can hold, empty or not.
    largest_file: u64,
}

impl FreeSpace {
    pub fn of(directory: &Directory) -> Result<Self> {
        let found = fs::fstatfs(&directory.fd)
            .map_err(|errno| failed(format_args!("ask how full {} is", directory.path.display()), errno))?;
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

    /// What a volume can be that will be formatted like this.
    pub fn bounds<'a>(&self, formatted_with: Option<&'a str>) -> Bounds<'a> {
        Bounds { smallest: SMALLEST, largest: self.largest_file, fs_type: formatted_with }
    }

    /// Refuses what certainly would run out of space: a volume of `size` bytes that has `allocated` of them.
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
/// `ext4_max_size`); xfs, btrfs and tmpfs hold what can be said. Others refuse the length themselves.
fn largest_file(fs_type: u64, block: u64) -> u64 {
    match fs_type {
        EXT4 => round_down(u64::from(u32::MAX).saturating_mul(block)),
        _ => LARGEST,
    }
}

/// Bytes of the file that have blocks. Blocks are counted in 512 bytes, whatever the file system's are
/// (stat(2)).
pub(super) fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The length of a file.
pub(super) fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Gives a new image its length, with all its blocks if it is to be preallocated. The room for it is checked
/// after the length, so that a size which the file system can never have is told from one it has no space for
/// now.
pub(super) fn finish(
    image: &File,
    path: &Path,
    size: u64,
    preallocate: bool,
    directory: &Directory,
) -> Result<()> {
    let present = allocated(&look(image, path)?);
    lengthen(image, path, size)?;
    FreeSpace::of(directory)?.check(size, present)?;
    if preallocate { fill(image, path, size) } else { Ok(()) }
}

/// Makes an image longer that may be in use. The length comes last and is never undone: the loop device,
/// and the file system on it, may have grown in that moment. On failure the image is as it was.
pub(super) fn grow(
    image: &File,
    path: &Path,
    size: u64,
    preallocate: bool,
    directory: &Directory,
) -> Result<()> {
    let stat = look(image, path)?;
    FreeSpace::of(directory)?.check(size, allocated(&stat))?;
    if preallocate && let Err(error) = fill(image, path, size) {
        // The same length again: frees the blocks behind the end (ftruncate(2)).
        if let Err(errno) = fs::ftruncate(image, length(&stat)) {
            log::warn!("{} keeps blocks behind its end: {errno}", path.display());
        }
        return Err(error);
    }
    lengthen(image, path, size)?;
    crash::point("sync image");
    image.sync_all().map_err(|error| Error::io(format_args!("sync {}", path.display()), &error))
}

/// Length, blocks and identity of an open image.
pub(super) fn look(image: &File, path: &Path) -> Result<Stat> {
    fs::fstat(image).map_err(|errno| failed(format_args!("look at {}", path.display()), errno))
}

fn lengthen(image: &File, path: &Path, size: u64) -> Result<()> {
    crash::point("set length");
    fs::ftruncate(image, size).map_err(|errno| match errno {
        // A size beyond what the file system counts with: EFBIG, on some kernels EINVAL.
        Errno::FBIG | Errno::INVAL => {
            failed(format_args!("a file of {size} bytes at {}: ask for less", path.display()), Errno::FBIG)
        }
        errno => failed(format_args!("make {} {size} bytes long", path.display()), errno),
    })?;
    crash::point("length set");
    Ok(())
}

/// Gives the image all its blocks.
fn fill(image: &File, path: &Path, size: u64) -> Result<()> {
    crash::point("allocate");
    let filled = fs::fallocate(image, FallocateFlags::KEEP_SIZE, 0, size);
    crash::point("allocated");
    filled.map_err(|errno| match errno {
        Errno::OPNOTSUPP => Error::invalid(format!(
            "the parameter \"preallocate\" is true, but the file system of {} cannot allocate ahead: leave \
             the parameter out",
            path.display()
        )),
        errno => failed(format_args!("allocate {size} bytes for {}", path.display()), errno),
    })
}
