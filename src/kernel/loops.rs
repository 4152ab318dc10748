//! Loop devices, and the file systems on them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::device::explain_device;
use super::{Backing, HelperRequest, Kernel, read_reply, to_bytes};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::block::Device;
use crate::sys::copy::Reflink;
use crate::sys::freeze::Thawed;
use crate::sys::holders::{self, Holder};
use crate::sys::loopdev::{self, Detached, LoopDevice};
use crate::sys::mountinfo::{Mount, Mounts};
use crate::sys::statfs::Usage;

/// Loop devices, as a trait that tests replace. A helper does all work that changes something or can wait for
/// storage; this process only looks.
pub trait Loops: Send + Sync {
    /// An error if no volume can be attached and mounted here.
    fn usable(&self) -> Result<()>;

    /// How full the file system at `path` is. Waits as long as that file system does.
    fn space(&self, call: &Call, path: &Path) -> Result<Usage>;

    /// The device that is backed by exactly this image.
    fn find(&self, image: &Path) -> Result<Option<LoopDevice>>;

    /// Where the device is mounted: file systems on it, and bind mounts of its node.
    fn mounts(&self, device: &LoopDevice) -> Result<Vec<PathBuf>>;

    /// Devices on top of the device.
    fn holders(&self, device: &LoopDevice) -> Result<Vec<Holder>>;

    /// Where file systems on the device are mounted.
    fn file_systems(&self, device: &LoopDevice) -> Result<Vec<PathBuf>>;

    /// Attaches the image, or finds its device. The device holds a shared flock(2) of the image while it
    /// exists.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] while the image is locked exclusively or is being detached;
    /// [`Kind::Precondition`] when it is attached read-only and is to be written, and when there are no loop
    /// devices; [`Kind::NotFound`] when there is no such image.
    fn attach(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice>;

    /// Turns discard off on the device until it is detached, so that its image keeps all blocks.
    ///
    /// # Errors
    /// [`Kind::Precondition`] where sysfs cannot be written to.
    fn refuse_discard(&self, call: &Call, device: &LoopDevice) -> Result<()>;

    /// Makes the file system on the device, if there is one, replay its journal without mounting it.
    ///
    /// # Errors
    /// As those of [`Kernel::mount`].
    fn replay_journal(&self, call: &Call, device: &LoopDevice) -> Result<()>;

    /// Detaches the device from the image it was attached to, and restores its settings for its next user. A
    /// device that is attached to another file by now is left alone. A device in use is no error, the result
    /// shows it.
    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<Detached>;

    /// Lets the device follow the length of its image.
    fn grow(&self, call: &Call, device: &Path) -> Result<()>;

    /// Makes `to`, which must not exist, a copy of `from` that shares its blocks, while the file systems at
    /// `mount_points` are frozen (each once, even if several of its mounts are named). If blocks cannot be
    /// shared, `to` is removed.
    ///
    /// The helper is never killed: a file system that stays frozen hangs all its writers. If another process
    /// kills the helper, all file systems are thawed here.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when another process has frozen one of them; [`Kind::AlreadyExists`] when `to`
    /// exists.
    fn clone_frozen(&self, call: &Call, mount_points: &[PathBuf], from: &Path, to: &Path) -> Result<()>;

    /// Thaws the file system mounted at a place; a file system that is not frozen is no error.
    fn thaw(&self, call: &Call, mount_point: &Path) -> Result<()>;
}

impl Loops for Kernel {
    fn usable(&self) -> Result<()> {
        self.can_mount()?;
        match File::options().read(true).write(true).open(loopdev::CONTROL) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::precondition(format!(
                "{} is missing: load the loop driver (modprobe loop)",
                loopdev::CONTROL
            ))),
            Err(error) => Err(Error::precondition(format!(
                "{} cannot be opened ({error}): a unit needs DeviceAllow for it and for block devices, a container \
                 --privileged",
                loopdev::CONTROL
            ))),
            Ok(_) => Ok(()),
        }
    }

    fn space(&self, call: &Call, path: &Path) -> Result<Usage> {
        self.statfs(call, path)
    }

    /// Reads sysfs, which opens no device, and compares inodes only if a file called `OBJECT/image` is
    /// attached. If mounts differ (containers, and after their restart), the same path in sysfs may be
    /// another file, and another path the same file.
    fn find(&self, image: &Path) -> Result<Option<LoopDevice>> {
        let failed =
            |error| Error::io(format_args!("look for the loop device of {}", image.display()), &error);
        if !loopdev::attached().map_err(failed)?.iter().any(|(_, file)| may_be(file, image)) {
            return Ok(None);
        }
        loopdev::find(image).map_err(failed)
    }

    fn mounts(&self, device: &LoopDevice) -> Result<Vec<PathBuf>> {
        mounts_where(device, |_, _| true)
    }

    fn holders(&self, device: &LoopDevice) -> Result<Vec<Holder>> {
        let found = Device::at(&device.path).and_then(|device| holders::of(device.number));
        found.map_err(|error| Error::io(format_args!("look what holds {}", device.path.display()), &error))
    }

    fn file_systems(&self, device: &LoopDevice) -> Result<Vec<PathBuf>> {
        // A bind mount of the node is on the file system of /dev, which must not be frozen.
        mounts_where(device, |mount, device| mount.device == device.number || mount.source == device.path)
    }

    fn attach(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice> {
        let step = format!("attach {} to a loop device", image.display());
        let request = HelperRequest::AttachLoop { image: image.into(), read_only };
        self.ask(call, &step, Class::Change, &request).map_err(explain_attach)
    }

    fn refuse_discard(&self, call: &Call, device: &LoopDevice) -> Result<()> {
        let step = format!("turn discard off for {}", device.path.display());
        let device = Backing::Loop(device.clone());
        let asked = self.ask(call, &step, Class::Change, &HelperRequest::RefuseDiscard { device });
        asked.map_err(|error| match error.errno() {
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => error.with_kind(Kind::Precondition).hint(
                "without that a preallocated volume loses its blocks: give the container a /sys that it can \
                 write to",
            ),
            _ => error,
        })
    }

    fn replay_journal(&self, call: &Call, device: &LoopDevice) -> Result<()> {
        let step = format!("replay the journal on {}", device.path.display());
        let request = HelperRequest::ReplayJournal { device: Backing::Loop(device.clone()) };
        let replayed = self.ask(call, &step, Class::Change, &request);
        replayed.map_err(|error| explain_device(error, &device.path))
    }

    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<Detached> {
        let step = format!("detach {}", device.path.display());
        self.ask(call, &step, Class::Change, &HelperRequest::DetachLoop { device: device.clone() })
    }

    fn grow(&self, call: &Call, device: &Path) -> Result<()> {
        let step = format!("grow {}", device.display());
        self.ask(call, &step, Class::Change, &HelperRequest::GrowLoop { device: device.into() })
    }

    fn clone_frozen(&self, call: &Call, mount_points: &[PathBuf], from: &Path, to: &Path) -> Result<()> {
        let step = format!("clone {} to {}", from.display(), to.display());
        let places = mount_points.iter().map(Into::into).collect();
        let request = HelperRequest::CloneFrozen { mount_points: places, from: from.into(), to: to.into() };
        let asked = self.helper.ask(call, &step, Class::Unbounded, &to_bytes(&request), None);
        let reply = asked.or_else(|error| {
            // A helper that goes on thaws what it has frozen.
            let thawed = if error.has_ended() { thaw_all(self, call, mount_points) } else { Ok(()) };
            thawed.and(Err(error.into()))
        })?;
        match read_reply(&step, &reply).map_err(explain_clone)? {
            Reflink::Cloned => Ok(()),
            Reflink::Unsupported => Err(Error::internal(format!(
                "{} cannot be cloned, though other files of its file system can",
                from.display()
            ))),
        }
    }

    fn thaw(&self, call: &Call, mount_point: &Path) -> Result<()> {
        let step = format!("thaw {}", mount_point.display());
        let request = HelperRequest::Thaw { mount_point: mount_point.into() };
        self.ask::<Thawed>(call, &step, Class::Change, &request).map(drop)
    }
}

/// Whether two paths have the same last two components; the file may have been deleted since.
fn may_be(file: &Path, image: &Path) -> bool {
    let file = loopdev::without_deleted(file).unwrap_or(file);
    file.file_name() == image.file_name()
        && file.parent().map(Path::file_name) == image.parent().map(Path::file_name)
}

fn mounts_where(device: &LoopDevice, wanted: impl Fn(&Mount, &Device) -> bool) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io(format_args!("look where {} is mounted", device.path.display()), &error);
    let device = Device::at(&device.path).map_err(failed)?;
    let mounts = Mounts::read().map_err(failed)?;
    Ok(mounts
        .of_device(&device)
        .filter(|mount| wanted(mount, &device))
        .map(|mount| mount.mount_point.clone())
        .collect())
}

/// Thaws each of them, before the first failure is returned.
fn thaw_all(kernel: &Kernel, call: &Call, mount_points: &[PathBuf]) -> Result<()> {
    let thawed: Vec<_> = mount_points.iter().map(|place| kernel.thaw(call, place)).collect();
    thawed.into_iter().zip(mount_points).try_for_each(|(thawed, place)| {
        thawed.map_err(|error| {
            let hint = "it hangs its writers until `fsfreeze --unfreeze` is run on it";
            error.context(format_args!("{} may be frozen ({hint})", place.display()))
        })
    })
}

fn explain_attach(error: Error) -> Error {
    match error.errno() {
        Some(libc::EWOULDBLOCK) => {
            let why = "the image is locked: it is being deleted or copied; try again";
            error.with_kind(Kind::Unavailable).hint(why)
        }
        Some(libc::EBUSY) => error.with_kind(Kind::Unavailable).hint(
            "it is attached to a loop device that is detached as soon as no process has it open (`losetup -j IMAGE` \
             shows the device, `fuser -v DEVICE` the processes), or others take every free device: try again",
        ),
        Some(libc::EROFS) => error.with_kind(Kind::Precondition).hint(
            "it is attached read-only or lies on a read-only file system: detach it, or use it read-only",
        ),
        Some(libc::ENOENT) => error.with_kind(Kind::NotFound).hint("there is no such image"),
        Some(libc::ENODEV) => error.with_kind(Kind::Precondition).hint(
            "/dev has no loop-control or not the node of the free loop device: `modprobe loop`, or give the \
             container the host's /dev",
        ),
        _ => error,
    }
}

fn explain_clone(error: Error) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => error
            .with_kind(Kind::Precondition)
            .hint("somebody else has frozen it: `fsfreeze --unfreeze` ends that"),
        Some(libc::EEXIST) => error.with_kind(Kind::AlreadyExists),
        _ => error,
    }
}
