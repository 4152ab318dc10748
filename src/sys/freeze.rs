//! Freezes a file system so that the content of its device is consistent: FIFREEZE and FITHAW, ioctl_fs
//! (linux/fs.h).
//!
//! Writers wait while it is frozen. A freeze outlives its process: if the process is killed before the thaw,
//! the file system hangs until another process calls [`thaw`].

#![expect(unsafe_code, reason = "rustix has no safe call for it")]

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{IntegerSetter, Opcode, ioctl, opcode};
use serde::{Deserialize, Serialize};

use super::changing;

const FIFREEZE: Opcode = opcode::read_write::<i32>(b'X', 119);
const FITHAW: Opcode = opcode::read_write::<i32>(b'X', 120);

/// A frozen file system, thawed when dropped.
#[derive(Debug)]
pub struct Frozen(Option<File>);

impl Frozen {
    /// Flushes and freezes the file system that is mounted at `mount_point`.
    ///
    /// # Errors
    /// Those of ioctl(2): EBUSY when it is frozen already, EOPNOTSUPP when its type cannot freeze, EPERM
    /// without CAP_SYS_ADMIN.
    pub fn freeze(mount_point: &Path) -> io::Result<Self> {
        let file = open(mount_point)?;
        // SAFETY: FIFREEZE ignores its argument.
        changing("freeze", || unsafe { ioctl(&file, IntegerSetter::<FIFREEZE>::new_usize(0)) })?;
        Ok(Self(Some(file)))
    }

    /// Thaws it and returns the error, if any.
    ///
    /// # Errors
    /// Those of ioctl(2), but none if another process has thawed it.
    pub fn thaw(mut self) -> io::Result<()> {
        self.0.take().map_or(Ok(()), |file| thaw_file(&file).map(drop))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Some(file) = self.0.take() {
            // Only after another failure, which is the one to report.
            let _ = thaw_file(&file);
        }
    }
}

/// How a thaw ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Thawed {
    /// It was frozen, and is thawed now.
    Done,
    /// It was not frozen.
    NotFrozen,
}

/// Thaws the file system at `mount_point`.
///
/// # Errors
/// Those of ioctl(2).
pub fn thaw(mount_point: &Path) -> io::Result<Thawed> {
    thaw_file(&open(mount_point)?)
}

fn thaw_file(file: &File) -> io::Result<Thawed> {
    // SAFETY: FITHAW ignores its argument.
    match changing("thaw", || unsafe { ioctl(file, IntegerSetter::<FITHAW>::new_usize(0)) }) {
        Ok(()) => Ok(Thawed::Done),
        Err(rustix::io::Errno::INVAL) => Ok(Thawed::NotFrozen),
        Err(error) => Err(error.into()),
    }
}

fn open(mount_point: &Path) -> io::Result<File> {
    Ok(rustix::fs::open(mount_point, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?.into())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};

    #[test]
    fn a_freeze_excludes_another_and_ends_with_its_guard() {
        in_private_mounts(|dir| {
            let image = LoopImage::new(16 << 20);
            mkfs("ext4", image.device());
            let mount = image.mount("ext4", dir);
            let frozen = Frozen::freeze(mount.path()).unwrap();
            assert_eq!(Frozen::freeze(mount.path()).unwrap_err().raw_os_error(), Some(libc::EBUSY));
            drop(frozen);
            assert_eq!(thaw(mount.path()).unwrap(), Thawed::NotFrozen, "dropping the guard thawed it");
            Frozen::freeze(mount.path()).unwrap().thaw().unwrap();
            std::fs::write(mount.path().join("f"), "writes go through").unwrap();
        });
    }

    #[test]
    fn a_leftover_freeze_can_be_thawed_once() {
        in_private_mounts(|dir| {
            let image = LoopImage::new(16 << 20);
            mkfs("ext4", image.device());
            let mount = image.mount("ext4", dir);
            std::mem::forget(Frozen::freeze(mount.path()).unwrap());
            assert_eq!(thaw(mount.path()).unwrap(), Thawed::Done);
            assert_eq!(thaw(mount.path()).unwrap(), Thawed::NotFrozen);
        });
    }

    #[test]
    fn what_cannot_freeze_says_so() {
        assert_eq!(Frozen::freeze(Path::new("/proc")).unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
