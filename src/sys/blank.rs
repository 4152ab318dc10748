//! Makes a device blank, so that [`identify`](super::superblock::identify) finds it blank.

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]
#![expect(unsafe_code, reason = "rustix has no safe call for it")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use super::copy::next_data;
use super::superblock::{BLANK_HEAD, TAIL};

/// `_IO(0x12, 119)` of linux/fs.h: takes the offset and the length, in bytes.
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// How many bytes of zeros are written at once.
const CHUNK: usize = 1 << 20;

/// Overwrites all data of a device of `size` bytes, which must be open for writing. `sparse` is the file
/// below the device, if there is one: only its data is overwritten, so the file grows no larger and loses no
/// preallocated room. Any other device gets a discard, which need not leave zeros, and is overwritten where
/// `identify` looks.
///
/// # Errors
/// Those of writing.
pub fn blank(device: &File, size: u64, sparse: Option<&File>) -> io::Result<()> {
    // Data must have reached the sparse file before its holes are read.
    rustix::fs::fsync(device)?;
    match sparse {
        Some(file) => overwrite_data(device, size, file)?,
        None => {
            discard(device, size)?;
            overwrite(device, 0..size.min(BLANK_HEAD))?;
            overwrite(device, size.saturating_sub(TAIL as u64)..size)?;
        }
    }
    Ok(rustix::fs::fsync(device)?)
}

fn overwrite_data(device: &File, size: u64, file: &File) -> io::Result<()> {
    let mut offset = 0;
    while let Some(extent) = next_data(file, offset, size)? {
        offset = extent.end;
        overwrite(device, extent)?;
    }
    Ok(())
}

/// Discards all data. A device that cannot discard keeps the data where `identify` does not look.
fn discard(device: &File, size: u64) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two u64, which is what the setter provides, and writes nothing of ours.
    match unsafe { ioctl(device, Setter::<BLKDISCARD, [u64; 2]>::new([0, size])) } {
        Err(Errno::OPNOTSUPP | Errno::NOTTY) => Ok(()),
        done => Ok(done?),
    }
}

fn overwrite(device: &File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; CHUNK];
    let mut at = range.start;
    while at < range.end {
        let length = usize::try_from(range.end - at).map_or(CHUNK, |left| left.min(CHUNK));
        device.write_all_at(&zeros[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::block;
    use crate::sys::scratch::{LoopImage, mkfs};
    use crate::sys::superblock::{Content, identify};
    use std::os::unix::fs::MetadataExt;

    const SIZE: u64 = 32 << 20;

    fn is_blank_afterwards(image: &LoopImage, sparse: Option<&File>) {
        let device = block::open_to_write(image.device()).unwrap();
        blank(&device, SIZE, sparse).unwrap();
        assert_eq!(identify(&device, SIZE, sparse).unwrap(), Content::Blank);
    }

    #[test]
    fn a_file_system_is_gone_from_any_device() {
        let image = LoopImage::new(SIZE);
        mkfs("ext4", image.device());
        is_blank_afterwards(&image, None);
    }

    #[test]
    fn a_sparse_file_grows_no_larger() {
        let image = LoopImage::new(SIZE);
        mkfs("ext4", image.device());
        let file = File::open(image.file()).unwrap();
        rustix::fs::fsync(block::open(image.device()).unwrap()).unwrap();
        let before = file.metadata().unwrap().blocks();
        is_blank_afterwards(&image, Some(&file));
        assert!(file.metadata().unwrap().blocks() <= before);
    }
}
