//! Mounts.

use std::ffi::OsString;
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::device::explain_device;
use super::{Answer, Ask, Backing, During, Kernel, backing};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::mount::{self, Options, Unmounted};
use crate::sys::statfs::{self, Usage};
use crate::sys::superblock::{Content, Journal};

/// How often, and with what pause, a mount in use is taken off: what was open in it a moment ago is held by
/// every process that was forked at that moment, until its exec. Not by the helper, whose last attempt could
/// come after another daemon's mount.
pub(super) const UNMOUNTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

impl Kernel {
    /// Why nothing can be mounted here at all, if so.
    pub fn can_mount(&self) -> Result<()> {
        match has_capability(CapabilitySet::SYS_ADMIN)? {
            true => Ok(()),
            false => Err(Error::precondition(
                "CAP_SYS_ADMIN is missing, without which nothing can be mounted: run cephlet as root and \
                 grant it",
            )),
        }
    }

    /// Whether an ext4 can grow while it is mounted (fs/ext4/ioctl.c, EXT4_IOC_RESIZE_FS).
    pub fn can_grow_mounted_ext4(&self) -> bool {
        has_capability(CapabilitySet::SYS_RESOURCE).unwrap_or(false)
    }

    /// Takes the topmost mount off `target`; a dead one is detached, and none at all is fine.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when a process still uses it, and not only for a moment.
    pub fn unmount(&self, call: &Call, target: &Path) -> Result<Unmounted> {
        let unmount = Unmount { target: target.into() };
        for _ in 1..UNMOUNTS {
            match self.ask(call, &unmount) {
                Err(error) if error.errno() == Some(libc::EBUSY) && !call.expired() => thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
        self.ask(call, &unmount)
    }
}

/// Mounts the file system on a device. What is mounted at the target already is covered: look first.
///
/// Errors: [`Kind::Precondition`] when the device is in use in a way that excludes this mount, or the kernel
/// does not know the type; [`Kind::Unavailable`] when another device is behind the node by now.
#[derive(Debug, Serialize, Deserialize)]
pub struct MountDevice {
    /// The device.
    pub source: Backing,
    /// An existing directory.
    pub target: OsString,
    /// `ext4`, `xfs`, `btrfs`.
    pub fs_type: String,
    /// Options as after `mount -o`.
    pub options: Vec<String>,
    /// Whether nothing may be written but what the journal holds: it is replayed where the device allows it.
    pub read_only: bool,
}

impl Ask for MountDevice {
    type Reply = ();
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("mount {} ({}) on {}", self.source.path().display(), self.fs_type, self.target.display())
    }

    /// What is mounted is what was looked at.
    fn answer(&self) -> Answer<()> {
        let _held = self.source.hold()?;
        let options = Options::parse(&self.options);
        let options = if self.read_only { options.read_only() } else { options };
        mount::mount(&self.source.path(), self.target.as_ref(), &self.fs_type, &options)
            .during(|| self.step())
    }

    fn explain(&self, error: Error) -> Error {
        match error.errno() {
            Some(libc::EBUSY) => error
                .with_kind(Kind::Precondition)
                .hint("the device is claimed, or mounted already with the other of read-only and read-write"),
            Some(libc::ENODEV) => error
                .with_kind(Kind::Precondition)
                .hint(format_args!("this kernel has no {0}: `modprobe {0}`", self.fs_type)),
            Some(libc::EINVAL) => error.hint(format_args!(
                // The options themselves may be sensitive (CSI, "MountVolume.mount_flags").
                "no sound {} is there, or it does not know one of its {} options: see `dmesg`",
                self.fs_type,
                self.options.len()
            )),
            Some(libc::ESTALE) => error.with_kind(Kind::Unavailable),
            Some(libc::EUCLEAN | libc::EBADMSG) => {
                error.hint(format_args!("the {} is damaged: repair it unmounted, with its fsck", self.fs_type))
            }
            _ => error,
        }
    }
}

/// Has the file system on a device replay its journal, if there is one. It is mounted nowhere for that.
/// Errors are those of [`MountDevice`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplayJournal {
    /// The device.
    pub device: Backing,
}

impl Ask for ReplayJournal {
    type Reply = ();
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("replay the journal on {}", self.device.path().display())
    }

    fn answer(&self) -> Answer<()> {
        let _held = self.device.hold()?;
        let path = self.device.path();
        match backing::identify(&path, None)?.content {
            Content::FileSystem(found) if found.journal != Journal::Clean => {
                mount::replay_journal(&path, found.fs_type.name()).during(|| self.step())
            }
            _ => Ok(()),
        }
    }

    fn explain(&self, error: Error) -> Error {
        explain_device(error, &self.device.path())
    }
}

/// Binds a directory or file on another of the same sort; read-only or not at all. After a failure nothing is
/// left mounted.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bind {
    /// What is bound.
    pub source: OsString,
    /// Where.
    pub target: OsString,
    /// Whether nothing may be written there.
    pub read_only: bool,
}

impl Ask for Bind {
    type Reply = ();
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        let manner = if self.read_only { " read-only" } else { "" };
        format!("bind {} on {}{manner}", self.source.display(), self.target.display())
    }

    fn answer(&self) -> Answer<()> {
        let bind = if self.read_only { mount::bind_read_only } else { mount::bind };
        bind(self.source.as_ref(), self.target.as_ref()).during(|| self.step())
    }
}

/// See [`Kernel::unmount`], of which this is one attempt.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Unmount {
    pub(super) target: OsString,
}

impl Ask for Unmount {
    type Reply = Unmounted;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("unmount {}", self.target.display())
    }

    fn answer(&self) -> Answer<Unmounted> {
        mount::ensure_unmounted(self.target.as_ref()).during(|| self.step())
    }

    fn explain(&self, error: Error) -> Error {
        match error.errno() {
            Some(libc::EBUSY) => error
                .with_kind(Kind::Precondition)
                .hint(format_args!("a process still uses it: `fuser -vm {}` shows which", self.target.display())),
            _ => error,
        }
    }
}

/// How full the file system at a path is. [`crate::sys::mount::is_dead`] tells from the errno of a failure
/// whether the mount is dead.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statfs {
    /// The path.
    pub path: OsString,
}

impl Ask for Statfs {
    type Reply = Usage;
    const CLASS: Class = Class::Question;

    fn step(&self) -> String {
        format!("ask how full {} is", self.path.display())
    }

    fn answer(&self) -> Answer<Usage> {
        statfs::usage(self.path.as_ref()).during(|| self.step())
    }
}

/// Whether the file system mounted at a path was shut down, as xfs does after an error. Only xfs can be asked.
#[derive(Debug, Serialize, Deserialize)]
pub struct IsShutDown {
    /// The path.
    pub path: OsString,
}

impl Ask for IsShutDown {
    type Reply = bool;
    const CLASS: Class = Class::Question;

    fn step(&self) -> String {
        format!("look whether {} is shut down", self.path.display())
    }

    fn answer(&self) -> Answer<bool> {
        mount::is_shut_down(self.path.as_ref()).during(|| self.step())
    }
}

fn has_capability(capability: CapabilitySet) -> Result<bool> {
    let capabilities = rustix::thread::capabilities(None);
    let capabilities =
        capabilities.map_err(|errno| Error::io("read the capabilities of this process", &errno.into()))?;
    Ok(capabilities.effective.contains(capability))
}
