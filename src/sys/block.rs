//! Block devices: number, size, who uses them. ioctl_blk (linux/fs.h), Documentation/ABI/stable/sysfs-block.

#![expect(unsafe_code, reason = "rustix has no safe call for it")]

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Getter, Opcode, ioctl, opcode};
use serde::{Deserialize, Serialize};

/// `_IOR(0x12, 114, size_t)`: the size in bytes, a u64 although the macro names another type.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);

/// Major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The number of the driver.
    pub major: u32,
    /// The number of the device within it.
    pub minor: u32,
}

impl DeviceNumber {
    /// Splits `st_dev` or `st_rdev`.
    pub fn from_raw(raw: u64) -> Self {
        Self { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }

    /// Reads `8:0`, as sysfs writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The number of an open device.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn of(device: &File) -> io::Result<Self> {
        device.metadata().map(|found| Self::from_raw(found.rdev()))
    }

    /// Whether no block device has this number, because the device was removed under a mount. File systems
    /// without a device have major number 0 (kernel, admin-guide/devices.txt).
    pub fn is_of_gone_device(self) -> bool {
        let absent = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        self.major != 0 && fs::symlink_metadata(format!("/sys/dev/block/{self}")).is_err_and(absent)
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A block device and its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The node, without symbolic links.
    pub path: PathBuf,
    /// The device.
    pub number: DeviceNumber,
    /// `st_dev` of the node itself: the devtmpfs it is on.
    pub node_on: DeviceNumber,
}

impl Device {
    /// Looks at the node `path`; the device itself is not opened.
    ///
    /// # Errors
    /// Those of stat(2); ENOTBLK when it is no block device.
    pub fn at(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let node = fs::metadata(&path)?;
        if !node.file_type().is_block_device() {
            return Err(io::Error::from_raw_os_error(libc::ENOTBLK));
        }
        Ok(Self {
            path,
            number: DeviceNumber::from_raw(node.rdev()),
            node_on: DeviceNumber::from_raw(node.dev()),
        })
    }
}

/// The size of an open device in bytes.
///
/// # Errors
/// Those of ioctl(2): ENOTTY when it is no block device.
pub fn size(device: &File) -> io::Result<u64> {
    // SAFETY: BLKGETSIZE64 writes one u64, which is what the getter provides.
    Ok(unsafe { ioctl(device, Getter::<BLKGETSIZE64, u64>::new()) }?)
}

/// Opens a device for reading, without waiting for a carrier or a disc.
///
/// # Errors
/// Those of open(2): ENXIO when nothing is behind the node.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY)
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?.into())
}

/// Opens a device for reading and claims it, unless a mount, a holder or another exclusive opener (mkfs,
/// fsck) has claimed it.
///
/// # Errors
/// Those of open(2): EBUSY when it is claimed.
pub fn open_exclusive(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDONLY | OFlags::EXCL)
}

/// As [`open_exclusive`], for reading and writing.
///
/// # Errors
/// Those of open(2): EBUSY when it is claimed, EROFS or EACCES when it takes no writes.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::RDWR | OFlags::EXCL)
}

/// Whether a mount (in any mount namespace), a holder or an exclusive opener claims a device.
///
/// # Errors
/// Those of open(2), except EBUSY.
pub fn is_claimed(path: &Path) -> io::Result<bool> {
    match open_exclusive(path) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(true),
        open => open.map(|_| false),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};

    #[test]
    fn a_device_has_a_size_and_a_number() {
        let image = LoopImage::new(8 << 20);
        let device = Device::at(image.device()).unwrap();
        assert_eq!(device.number.major, 7, "the loop driver's major");
        assert_eq!(size(&open(image.device()).unwrap()).unwrap(), 8 << 20);
    }

    #[test]
    fn a_number_is_gone_with_its_device() {
        let image = LoopImage::new(8 << 20);
        assert!(!Device::at(image.device()).unwrap().number.is_of_gone_device());
        assert!(DeviceNumber { major: 7, minor: (1 << 20) - 1 }.is_of_gone_device());
        assert!(!DeviceNumber { major: 0, minor: 999 }.is_of_gone_device(), "a file system without a device");
    }

    #[test]
    fn a_file_is_no_device() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Device::at(file.path()).unwrap_err().raw_os_error(), Some(libc::ENOTBLK));
        assert_eq!(size(file.as_file()).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn a_mounted_device_is_claimed() {
        in_private_mounts(|dir| {
            let image = LoopImage::new(16 << 20);
            mkfs("ext4", image.device());
            assert!(!is_claimed(image.device()).unwrap());
            let mount = image.mount("ext4", dir);
            assert!(is_claimed(image.device()).unwrap());
            // Also if it is mounted in another namespace only: the new one drops the mounts of loop devices.
            in_private_mounts(|_| {
                assert!(crate::sys::mount::unmount(mount.path()).is_err());
                assert!(is_claimed(image.device()).unwrap(), "UNSAFE: a mount is missed");
            });
        });
    }
}
