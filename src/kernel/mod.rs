//! The kernel's storage interfaces, asked through a helper: [`Kernel`] is the daemon's side, [`handle`] the
//! helper's.
//!
//! Every request is one round trip and all or nothing as far as the kernel allows: a bind that cannot be made
//! read-only is taken back, a file system that was frozen is thawed whatever happened meanwhile. Requests can
//! be repeated after a crash.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use crate::call::Call;
use crate::error::{Cause, Error, Kind, Result};
use crate::exec::{Class, Helper};
use crate::sys::block::DeviceNumber;
use crate::sys::copy::Reflink;
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::mount::Unmounted;
use crate::sys::openers::Opener;
use crate::sys::statfs::Usage;
use crate::sys::superblock::Content;

pub mod rbd;
mod serve;

pub use serve::handle;

/// How often, and with what pause, a mount in use is taken off: what was open in it a moment ago is held by
/// every process that was forked at that moment, until its exec. Not by the helper, whose last attempt could
/// come after another daemon's mount.
const UNMOUNTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// What is asked. Paths are `OsString`s, which serde writes as their bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Request {
    AttachLoop { image: OsString, read_only: bool },
    DetachLoop { device: LoopDevice },
    GrowLoop { device: OsString },
    Identify { device: OsString, sparse_file: Option<OsString> },
    Blank { device: OsString, sparse_file: Option<OsString> },
    DeviceSize { device: OsString },
    Mount { source: OsString, target: OsString, fs_type: String, options: Vec<String>, read_only: bool },
    Bind { source: OsString, target: OsString, read_only: bool },
    Unmount { target: OsString },
    Statfs { path: OsString },
    CloneFrozen { mount_points: Vec<OsString>, from: OsString, to: OsString },
    Thaw { mount_point: OsString },
    Openers { device: DeviceNumber },
    Rbd(rbd::Request),
}

/// What comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Reply {
    Done,
    Attached(LoopDevice),
    Detached(Detached),
    Bytes(u64),
    Identified(Identified),
    Unmounted(Unmounted),
    Usage(Usage),
    Cloned(Reflink),
    Thawed(bool),
    Openers(Vec<Opener>),
    Rbd(rbd::Reply),
    Failed(Failure),
}

/// A system call that failed in the helper, and at which step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    action: String,
    errno: Option<i32>,
    text: String,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure.errno {
            Some(errno) => Error::io(failure.action, &io::Error::from_raw_os_error(errno)),
            None => Error::internal(format!("{}: {}", failure.action, failure.text)),
        }
    }
}

/// What is on a device, and how large the device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identified {
    /// What is on it.
    pub content: Content,
    /// The device's size in bytes, to be compared with that of the file system.
    pub device_bytes: u64,
}

/// A file system to mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountSpec<'a> {
    /// The device, or what else the file system calls its source.
    pub source: &'a Path,
    /// An existing directory.
    pub target: &'a Path,
    /// `ext4`, `xfs`, `btrfs`.
    pub fs_type: &'a str,
    /// Options as after `mount -o`.
    pub options: &'a [String],
    /// Whether nothing may be written, the journal's replay included where the device is read-only.
    pub read_only: bool,
}

/// Asks the kernel in a process that may hang without harm.
#[derive(Clone)]
pub struct Kernel {
    helper: Arc<dyn Helper>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernel")
    }
}

impl Kernel {
    /// Why nothing can be mounted here at all, if so.
    pub fn can_mount(&self) -> Result<()> {
        let capabilities = rustix::thread::capabilities(None);
        let capabilities = capabilities
            .map_err(|errno| Error::io("read the capabilities of this process", &errno.into()))?;
        match capabilities.effective.contains(CapabilitySet::SYS_ADMIN) {
            true => Ok(()),
            false => Err(Error::precondition(
                "CAP_SYS_ADMIN is missing, without which nothing can be mounted: run cephlet as root and \
                 grant it",
            )),
        }
    }

    /// Asks through `helper`.
    pub fn new(helper: Arc<dyn Helper>) -> Self {
        Self { helper }
    }

    /// Attaches `image` to a loop device, or finds the one it is attached to.
    ///
    /// # Errors
    /// [`Kind::Busy`] while somebody holds an exclusive lock on the image; [`Kind::Precondition`] when it is
    /// attached read-only and is to be written, and when there are no loop devices; [`Kind::NotFound`] when
    /// there is no such image.
    pub fn attach_loop(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice> {
        let step = format!("attach {} to a loop device", image.display());
        let request = Request::AttachLoop { image: image.into(), read_only };
        match self.ask(call, &step, Class::Change, &request).map_err(explain_attach)? {
            Reply::Attached(device) => Ok(device),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Detaches a loop device from the image it was attached to; a device that stands on another file by now
    /// is left alone.
    ///
    /// # Errors
    /// Failures of the system; a device in use is none, but the answer says so.
    pub fn detach_loop(&self, call: &Call, device: &LoopDevice) -> Result<Detached> {
        let step = format!("detach {}", device.path.display());
        match self.ask(call, &step, Class::Change, &Request::DetachLoop { device: device.clone() })? {
            Reply::Detached(how) => Ok(how),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Makes a loop device as large as its image has become, and returns that size in bytes.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn grow_loop(&self, call: &Call, device: &Path) -> Result<u64> {
        self.bytes(
            call,
            &format!("grow {}", device.display()),
            Class::Change,
            &Request::GrowLoop { device: device.into() },
        )
    }

    /// The size of a device in bytes.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn device_size(&self, call: &Call, device: &Path) -> Result<u64> {
        let request = Request::DeviceSize { device: device.into() };
        self.bytes(call, &format!("ask the size of {}", device.display()), Class::Question, &request)
    }

    /// Says what is on a device that nobody has claimed. With the sparse file the device stands on, "blank"
    /// is certain.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when another process has claimed the device.
    pub fn identify(&self, call: &Call, device: &Path, sparse_file: Option<&Path>) -> Result<Identified> {
        let step = format!("look what is on {}", device.display());
        let request = Request::Identify { device: device.into(), sparse_file: sparse_file.map(Into::into) };
        // The whole of a full image may have to be read.
        match self
            .ask(call, &step, Class::Change, &request)
            .map_err(|error| explain_claimed(error, device))?
        {
            Reply::Identified(identified) => Ok(identified),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Takes everything off a device that nobody has claimed, so that [`identify`](Self::identify) finds it
    /// blank.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when another process has claimed the device.
    pub fn blank(&self, call: &Call, device: &Path, sparse_file: Option<&Path>) -> Result<()> {
        let step = format!("make {} blank", device.display());
        let request = Request::Blank { device: device.into(), sparse_file: sparse_file.map(Into::into) };
        // A large image has many objects to be removed.
        match self
            .ask(call, &step, Class::Unbounded, &request)
            .map_err(|error| explain_claimed(error, device))?
        {
            Reply::Done => Ok(()),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Mounts a file system. What is mounted at the target already is covered: look first.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when the device is in use in a way that excludes this mount, or the kernel does
    /// not know the type.
    pub fn mount(&self, call: &Call, spec: &MountSpec<'_>) -> Result<()> {
        let step = format!("mount {} on {}", spec.source.display(), spec.target.display());
        let request = Request::Mount {
            source: spec.source.into(),
            target: spec.target.into(),
            fs_type: spec.fs_type.to_owned(),
            options: spec.options.to_vec(),
            read_only: spec.read_only,
        };
        self.done(call, &step, &request).map_err(|error| explain_mount(error, spec))
    }

    /// Binds a directory or file on another of the same sort; read-only or not at all.
    ///
    /// # Errors
    /// Failures of the system, after which nothing is left mounted.
    pub fn bind(&self, call: &Call, source: &Path, target: &Path, read_only: bool) -> Result<()> {
        let step = format!("bind {} on {}", source.display(), target.display());
        self.done(call, &step, &Request::Bind { source: source.into(), target: target.into(), read_only })
    }

    /// Takes the topmost mount off `target`; a dead one is detached, and none at all is fine.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when a process still uses it, and not only for a moment.
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
        let request = Request::Unmount { target: target.into() };
        match self
            .ask(call, &step, Class::Change, &request)
            .map_err(|error| explain_unmount(error, target))?
        {
            Reply::Unmounted(how) => Ok(how),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// How full the file system at `path` is.
    ///
    /// # Errors
    /// Failures of the system; [`crate::sys::mount::is_dead`] tells from its errno whether the mount is dead.
    pub fn statfs(&self, call: &Call, path: &Path) -> Result<Usage> {
        let step = format!("ask how full {} is", path.display());
        match self.ask(call, &step, Class::Question, &Request::Statfs { path: path.into() })? {
            Reply::Usage(usage) => Ok(usage),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Makes `to`, which must not exist, a copy of `from` that shares its blocks, while the file systems at
    /// `mount_points` are frozen (once each, however many of its mounts are named). Where blocks cannot be
    /// shared nothing is left of `to`.
    ///
    /// Never killed: a file system that stays frozen hangs everybody who writes to it.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when one of them is frozen by somebody else; [`Kind::AlreadyExists`] when `to`
    /// exists.
    pub fn clone_frozen(
        &self,
        call: &Call,
        mount_points: &[PathBuf],
        from: &Path,
        to: &Path,
    ) -> Result<Reflink> {
        let step = format!("clone {} to {}", from.display(), to.display());
        let mount_points = mount_points.iter().map(Into::into).collect();
        let request = Request::CloneFrozen { mount_points, from: from.into(), to: to.into() };
        match self.ask(call, &step, Class::Unbounded, &request).map_err(explain_clone)? {
            Reply::Cloned(how) => Ok(how),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Thaws the file system at `mount_point`; false if it was not frozen.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn thaw(&self, call: &Call, mount_point: &Path) -> Result<bool> {
        let step = format!("thaw {}", mount_point.display());
        match self.ask(call, &step, Class::Change, &Request::Thaw { mount_point: mount_point.into() })? {
            Reply::Thawed(was_frozen) => Ok(was_frozen),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// The processes that have a block device open. (Looking through all descriptors may take a while.)
    ///
    /// # Errors
    /// Failures of the system.
    pub fn openers(&self, call: &Call, device: DeviceNumber) -> Result<Vec<Opener>> {
        let step = format!("look who has block device {device} open");
        match self.ask(call, &step, Class::Question, &Request::Openers { device })? {
            Reply::Openers(openers) => Ok(openers),
            other => Err(unexpected(&step, &other)),
        }
    }

    fn done(&self, call: &Call, step: &str, request: &Request) -> Result<()> {
        match self.ask(call, step, Class::Change, request)? {
            Reply::Done => Ok(()),
            other => Err(unexpected(step, &other)),
        }
    }

    fn bytes(&self, call: &Call, step: &str, class: Class, request: &Request) -> Result<u64> {
        match self.ask(call, step, class, request)? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(step, &other)),
        }
    }

    fn ask(&self, call: &Call, step: &str, class: Class, request: &Request) -> Result<Reply> {
        let request =
            serde_json::to_vec(request).map_err(|error| Error::internal(format!("{step}: {error}")))?;
        let reply = self.helper.ask(call, step, class, &request)?;
        match serde_json::from_slice(&reply)
            .map_err(|error| Error::internal(format!("{step}: the helper's reply: {error}")))?
        {
            Reply::Failed(failure) => Err(explain_permission(failure.into())),
            reply => Ok(reply),
        }
    }
}

fn unexpected(step: &str, reply: &Reply) -> Error {
    Error::internal(format!("{step}: the helper answered another question: {reply:?}"))
}

/// The same failure with another kind and a hint for the operator.
fn hint(error: &Error, kind: Kind, text: impl fmt::Display) -> Error {
    let hinted = Error::new(kind, format!("{}; {text}", error.message()));
    error.errno().map_or(hinted.clone(), |errno| hinted.caused_by(Cause::Errno(errno)))
}

fn explain_permission(error: Error) -> Error {
    match error.errno() {
        Some(libc::EPERM | libc::EACCES) => hint(
            &error,
            error.kind(),
            "cephlet must run as root with CAP_SYS_ADMIN, and in a container or unit with DeviceAllow for \
             /dev/loop-control and block devices",
        ),
        _ => error,
    }
}

fn explain_attach(error: Error) -> Error {
    match error.errno() {
        Some(libc::EWOULDBLOCK) => {
            hint(&error, Kind::Busy, "the image is locked: it is being deleted or copied")
        }
        Some(libc::EROFS) => hint(
            &error,
            Kind::Precondition,
            "it is attached read-only or lies on a read-only file system: detach it, or use it read-only",
        ),
        Some(libc::ENOENT) => hint(&error, Kind::NotFound, "there is no such image"),
        Some(libc::ENODEV) => hint(
            &error,
            Kind::Precondition,
            "/dev has no loop-control or not the node of the free loop device: `modprobe loop`, or give the \
             container the host's /dev",
        ),
        _ => error,
    }
}

fn explain_claimed(error: Error, device: &Path) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => {
            let device = device.display();
            hint(
                &error,
                Kind::Unavailable,
                format_args!(
                    "another process still works on {device}, or it is mounted: `fuser -vm {device}` shows it"
                ),
            )
        }
        _ => error,
    }
}

fn explain_mount(error: Error, spec: &MountSpec<'_>) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => hint(
            &error,
            Kind::Precondition,
            "the device is claimed, or mounted already with the other of read-only and read-write",
        ),
        Some(libc::ENODEV) => hint(
            &error,
            Kind::Precondition,
            format_args!("this kernel has no {0}: `modprobe {0}`", spec.fs_type),
        ),
        Some(libc::EINVAL) => hint(
            &error,
            error.kind(),
            format_args!(
                // The options themselves may be sensitive (CSI, "MountVolume.mount_flags").
                "no sound {} is there, or it does not know one of its {} options: see `dmesg`",
                spec.fs_type,
                spec.options.len()
            ),
        ),
        Some(libc::EUCLEAN | libc::EBADMSG) => hint(
            &error,
            error.kind(),
            format_args!("the {} is damaged: repair it unmounted, with its fsck", spec.fs_type),
        ),
        _ => error,
    }
}

fn explain_unmount(error: Error, target: &Path) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => hint(
            &error,
            Kind::Precondition,
            format_args!("a process still uses it: `fuser -vm {}` shows which", target.display()),
        ),
        _ => error,
    }
}

fn explain_clone(error: Error) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => {
            hint(&error, Kind::Precondition, "somebody else has frozen it: `fsfreeze --unfreeze` ends that")
        }
        Some(libc::EEXIST) => error.with_kind(Kind::AlreadyExists),
        _ => error,
    }
}

#[cfg(test)]
mod tests;
