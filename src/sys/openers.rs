//! Which processes have a device or a file open: proc_pid_fd(5), proc_pid_fdinfo(5).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};
use serde::{Deserialize, Serialize};

use super::block::DeviceNumber;

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opener {
    /// Its id.
    pub process: u32,
    /// Its name, as in `ps -o comm`.
    pub name: String,
}

/// The processes, of those that this one may look at, that have the block device open. Mounts are none.
///
/// # Errors
/// Those of reading /proc; processes that end meanwhile are passed over.
pub fn of(device: DeviceNumber) -> io::Result<Vec<Opener>> {
    let openers = processes()?
        .into_iter()
        .filter(|process| descriptors(*process).any(|descriptor| is_device(&descriptor, device)));
    let name = |process| fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Ok(openers.map(|process| Opener { process, name: name(process).trim_end().to_owned() }).collect())
}

/// The processes, of those that this one may look at, that have this file open for writing.
///
/// # Errors
/// Those of reading /proc and of fstat(2); processes that end meanwhile are passed over.
pub fn writing(file: &File) -> io::Result<Vec<u32>> {
    let id = id_of(file)?;
    Ok(processes()?.into_iter().filter(|process| writes(*process, id)).collect())
}

/// Whether this process has the file open for writing.
///
/// # Errors
/// Those of fstat(2).
pub fn is_writing(process: u32, file: &File) -> io::Result<bool> {
    Ok(writes(process, id_of(file)?))
}

/// Device and inode.
fn id_of(file: &File) -> io::Result<(u64, u64)> {
    file.metadata().map(|found| (found.dev(), found.ino()))
}

fn writes(process: u32, id: (u64, u64)) -> bool {
    descriptors(process).any(|descriptor| is_file(&descriptor, id) && is_for_writing(process, &descriptor))
}

fn processes() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

fn descriptors(process: u32) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    entries.flatten().map(|entry| entry.path())
}

fn is_file(descriptor: &Path, (device, inode): (u64, u64)) -> bool {
    statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).is_ok_and(|found| {
        makedev(found.stx_dev_major, found.stx_dev_minor) == device && found.stx_ino == inode
    })
}

/// By the flags of open(2), which the kernel shows in octal.
fn is_for_writing(process: u32, descriptor: &Path) -> bool {
    let Some(number) = descriptor.file_name().and_then(|name| name.to_str()) else { return false };
    let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Asks nobody but this kernel: another descriptor of that process may be of a network file system that does
/// not answer.
fn is_device(descriptor: &Path, device: DeviceNumber) -> bool {
    statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).is_ok_and(|found| {
        FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
            && (found.stx_rdev_major, found.stx_rdev_minor) == (device.major, device.minor)
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::block::{Device, open};
    use crate::sys::scratch::LoopImage;

    #[test]
    fn who_has_it_open_is_found() {
        let image = LoopImage::new(4 << 20);
        let number = Device::at(image.device()).unwrap().number;
        assert!(!of(number).unwrap().iter().any(|opener| opener.process == std::process::id()));
        let _device = open(image.device()).unwrap();
        let opener =
            of(number).unwrap().into_iter().find(|opener| opener.process == std::process::id()).unwrap();
        assert!(!opener.name.is_empty());
    }

    #[test]
    fn who_writes_is_told_from_who_reads() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let reading = File::open(file.path()).unwrap();
        let own = std::process::id();
        assert!(is_writing(own, &reading).unwrap() && writing(&reading).unwrap().contains(&own));
        let path = file.into_temp_path();
        assert!(!is_writing(own, &reading).unwrap() && !writing(&reading).unwrap().contains(&own));
        drop(path);
    }
}
