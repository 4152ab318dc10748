//! Mounts.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::thread::CapabilitySet;

use super::{Backing, HelperRequest, Kernel};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::mount::Unmounted;
use crate::sys::owner::{Owner, Sharing};
use crate::sys::statfs::Usage;

/// How often, and with what pause, to try an unmount: a file that was open a moment ago stays open in every
/// process that was forked at that moment, until its exec. The helper does not retry: its last attempt could
/// come after another daemon's mount.
pub(super) const UNMOUNTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// A file system to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec<'a> {
    /// The device.
    pub source: &'a Backing,
    /// An existing directory.
    pub target: &'a Path,
    /// `ext4`, `xfs`, `btrfs`.
    pub fs_type: &'a str,
    /// Options as after `mount -o`.
    pub options: &'a [String],
    /// Whether nothing may be written, except by a replay of the journal where the device allows it.
    pub read_only: bool,
}

impl Kernel {
    /// Whether this process can mount at all; the error says why not.
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

    /// Mounts a file system. A mount that is at the target already gets covered: look first.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when the device is in use in a way that excludes this mount, or the kernel does
    /// not know the type; [`Kind::Unavailable`] when another device is behind the node by now.
    pub fn mount(&self, call: &Call, spec: &MountSpec<'_>) -> Result<()> {
        let step = format!("mount {} on {}", spec.source.path().display(), spec.target.display());
        let request = HelperRequest::Mount {
            source: spec.source.clone(),
            target: spec.target.into(),
            fs_type: spec.fs_type.to_owned(),
            options: spec.options.to_vec(),
            read_only: spec.read_only,
        };
        self.ask(call, &step, Class::Change, &request).map_err(|error| explain_mount(error, spec))
    }

    /// Binds a directory or file on another of the same kind; if `read_only` is set, read-only or not at all.
    ///
    /// # Errors
    /// Failures of the system, after which nothing is left mounted.
    pub fn bind(&self, call: &Call, source: &Path, target: &Path, read_only: bool) -> Result<()> {
        let step = format!("bind {} on {}", source.display(), target.display());
        let request = HelperRequest::Bind { source: source.into(), target: target.into(), read_only };
        self.ask(call, &step, Class::Change, &request)
    }

    /// Unmounts the topmost mount at `target`. A dead mount is detached; a missing mount is no error.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when a process still uses it, and not only for a moment. [`Kind::Unavailable`]
    /// while a tree of CephFS still writes out what it holds.
    pub fn unmount(&self, call: &Call, target: &Path) -> Result<Unmounted> {
        for _ in 1..UNMOUNTS {
            match self.unmount_now(call, target) {
                Err(error) if error.errno() == Some(libc::EBUSY) && !call.expired() => thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
        self.unmount_now(call, target)
    }

    fn unmount_now(&self, call: &Call, target: &Path) -> Result<Unmounted> {
        let step = format!("unmount {}", target.display());
        let request = HelperRequest::Unmount { target: target.into() };
        let how: Result<Unmounted> = self.ask(call, &step, Class::Change, &request);
        let how = how.map_err(|error| explain_unmount(error, target))?;
        if how == Unmounted::Forced {
            log::warn!("{step}: its servers did not answer, so what they had not got yet may be lost");
        }
        Ok(how)
    }

    /// How full the file system at `path` is.
    ///
    /// # Errors
    /// Failures of the system; [`crate::sys::mount::is_dead`] decides by the errno whether the mount is dead.
    pub fn statfs(&self, call: &Call, path: &Path) -> Result<Usage> {
        let step = format!("ask how full {} is", path.display());
        self.ask(call, &step, Class::Question, &HelperRequest::Statfs { path: path.into() })
    }

    /// Gives the root of the file system mounted at `root` to its owner ([`give`](crate::sys::owner::give)),
    /// and lets a group write to it ([`share`](crate::sys::owner::share)). A walk through all of its files
    /// has no deadline: a client that asks again waits for the same one.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn own(&self, call: &Call, root: &Path, owner: &Owner, sharing: Option<Sharing>) -> Result<()> {
        let step = format!("set the owner of {}", root.display());
        let request = HelperRequest::Own { root: root.into(), owner: *owner, sharing };
        let class = match sharing {
            Some(Sharing { recursive: true, .. }) => Class::Lasting,
            _ => Class::Change,
        };
        self.ask(call, &step, class, &request)
    }

    /// Whether the file system mounted at `path` was shut down, as xfs does after an error. Only for xfs.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn is_shut_down(&self, call: &Call, path: &Path) -> Result<bool> {
        let step = format!("look whether {} is shut down", path.display());
        self.ask(call, &step, Class::Question, &HelperRequest::IsShutDown { path: path.into() })
    }
}

fn has_capability(capability: CapabilitySet) -> Result<bool> {
    let capabilities = rustix::thread::capabilities(None);
    let capabilities =
        capabilities.map_err(|errno| Error::io("read the capabilities of this process", &errno.into()))?;
    Ok(capabilities.effective.contains(capability))
}

fn explain_mount(error: Error, spec: &MountSpec<'_>) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => error
            .with_kind(Kind::Precondition)
            .hint("the device is claimed, or mounted already with the other of read-only and read-write"),
        Some(libc::ENODEV) => error
            .with_kind(Kind::Precondition)
            .hint(format_args!("this kernel has no {0}: `modprobe {0}`", spec.fs_type)),
        Some(libc::EINVAL) => error.hint(format_args!(
            // The options themselves may be sensitive (CSI, "MountVolume.mount_flags").
            "no sound {} is there, or it does not know one of its {} options: see `dmesg`",
            spec.fs_type,
            spec.options.len()
        )),
        Some(libc::ESTALE) => error.with_kind(Kind::Unavailable),
        Some(libc::EUCLEAN | libc::EBADMSG) => {
            error.hint(format_args!("the {} is damaged: repair it unmounted, with its fsck", spec.fs_type))
        }
        _ => error,
    }
}

fn explain_unmount(error: Error, target: &Path) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => error
            .with_kind(Kind::Precondition)
            .hint(format_args!("a process still uses it: `fuser -vm {}` shows which", target.display())),
        Some(libc::EAGAIN) => error.with_kind(Kind::Unavailable).hint(format_args!(
            "it still writes out what it holds: try again; where its OSDs are gone for good, `umount -f {}` drops \
             that",
            target.display()
        )),
        _ => error,
    }
}
