//! Which processes have a device open: proc_pid_fd(5).

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};
use rustix::io::Errno;
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

/// The processes that have a block device open. Mounts do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Openers {
    /// The processes that were seen.
    pub seen: Vec<Opener>,
    /// How many processes this one may not look at, because it lacks CAP_SYS_PTRACE.
    pub hidden: usize,
}

/// What a look at a process shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// It has the device open.
    Opener,
    /// It does not have the device open.
    Stranger,
    /// The calling process may not look.
    Hidden,
}

/// The processes that have the block device open.
///
/// # Errors
/// Those of reading /proc; processes that end meanwhile are passed over.
pub fn of(device: DeviceNumber) -> io::Result<Openers> {
    let mut found = Openers::default();
    for process in processes()? {
        match look(process, device) {
            Look::Stranger => {}
            Look::Hidden => found.hidden += 1,
            Look::Opener => {
                let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
                found.seen.push(Opener { process, name: name.trim_end().to_owned() });
            }
        }
    }
    Ok(found)
}

fn look(process: u32, device: DeviceNumber) -> Look {
    let entries = match fs::read_dir(format!("/proc/{process}/fd")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Look::Hidden,
        entries => entries.into_iter().flatten().flatten(),
    };
    let looks: Vec<Look> = entries.map(|entry| look_at(&entry.path(), device)).collect();
    [Look::Opener, Look::Hidden].into_iter().find(|look| looks.contains(look)).unwrap_or(Look::Stranger)
}

fn processes() -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(found)
}

/// Asks only the local kernel: another descriptor of that process may be on a network file system that does
/// not answer. Some file systems show files to their owner alone (FUSE), but the link can be read.
fn look_at(descriptor: &Path, device: DeviceNumber) -> Look {
    match statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE) {
        Ok(found)
            if FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice
                && (found.stx_rdev_major, found.stx_rdev_minor) == (device.major, device.minor) =>
        {
            Look::Opener
        }
        Err(Errno::ACCESS | Errno::PERM) => match fs::read_link(descriptor) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Look::Hidden,
            _ => Look::Stranger,
        },
        _ => Look::Stranger,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::Command;

    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

    use super::*;
    use crate::sys::block::{Device, open};
    use crate::sys::scratch::LoopImage;

    #[test]
    fn who_has_it_open_is_found() {
        let image = LoopImage::new(4 << 20);
        let number = Device::at(image.device()).unwrap().number;
        let ours = || of(number).unwrap().seen.into_iter().find(|it| it.process == std::process::id());
        assert_eq!(ours(), None);
        let _device = open(image.device()).unwrap();
        assert!(!ours().unwrap().name.is_empty());
    }

    /// Without CAP_SYS_PTRACE, root cannot see the files of its other processes that have more capabilities.
    #[test]
    fn who_may_not_be_looked_at_is_counted() {
        let image = LoopImage::new(4 << 20);
        let number = Device::at(image.device()).unwrap().number;
        let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
        let blind = std::thread::scope(|scope| {
            let look = || {
                let effective = capabilities(None).unwrap().permitted & CapabilitySet::DAC_OVERRIDE;
                let few = CapabilitySets { effective, permitted: effective, inheritable: effective };
                set_capabilities(None, few).unwrap();
                (of(number).unwrap().hidden, look(other.id(), number))
            };
            // Each thread has its own capabilities.
            scope.spawn(look).join().unwrap()
        });
        let sees = look(other.id(), number);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(blind.0 > 0 && blind.1 == Look::Hidden, "UNSAFE: {blind:?}: nobody seems to have it open");
        assert_eq!(sees, Look::Stranger);
    }
}
