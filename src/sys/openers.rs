//! Which processes have a device open: proc_pid_fd(5).

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
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
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if has_open(&entry.path().join("fd"), device) {
            let name =
                fs::read_to_string(entry.path().join("comm")).unwrap_or_default().trim_end().to_owned();
            found.push(Opener { process, name });
        }
    }
    Ok(found)
}

fn has_open(descriptors: &Path, device: DeviceNumber) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    entries.flatten().any(|entry| is_device(&entry.path(), device))
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
}
