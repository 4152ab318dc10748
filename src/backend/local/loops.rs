//! The local backend's requests to the kernel: loop devices and the file systems on them.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::kernel::{Backing, Kernel};
use crate::sys::block::Device;
use crate::sys::copy::Reflink;
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
    /// exists; if another process holds an exclusive one, the error is [`Kind::Unavailable`].
    fn attach(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice>;

    /// Turns discard off on the device until it is detached, so that its image keeps all blocks.
    fn refuse_discard(&self, call: &Call, device: &LoopDevice) -> Result<()>;

    /// Replays the journal of the file system on the device, if there is a file system.
    fn replay_journal(&self, call: &Call, device: &LoopDevice) -> Result<()>;

    /// Detaches the device, and restores its settings for its next user.
    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<Detached>;

    /// Lets the device follow the length of its image.
    fn grow(&self, call: &Call, device: &Path) -> Result<()>;

    /// Freezes the file systems at these mount points, makes `target`, which must not exist, a reflink of
    /// `source`, and thaws.
    fn clone_frozen(&self, call: &Call, mount_points: &[PathBuf], source: &Path, target: &Path)
    -> Result<()>;

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
        self.attach_loop(call, image, read_only).map_err(|error| match error.kind() {
            Kind::Busy => error.with_kind(Kind::Unavailable).hint("try again"),
            _ => error,
        })
    }

    fn refuse_discard(&self, call: &Call, device: &LoopDevice) -> Result<()> {
        Kernel::refuse_discard(self, call, device)
    }

    fn replay_journal(&self, call: &Call, device: &LoopDevice) -> Result<()> {
        Kernel::replay_journal(self, call, &Backing::Loop(device.clone()))
    }

    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<Detached> {
        self.detach_loop(call, device)
    }

    fn grow(&self, call: &Call, device: &Path) -> Result<()> {
        self.grow_loop(call, device).map(drop)
    }

    fn clone_frozen(
        &self,
        call: &Call,
        mount_points: &[PathBuf],
        source: &Path,
        target: &Path,
    ) -> Result<()> {
        match Kernel::clone_frozen(self, call, mount_points, source, target)? {
            Reflink::Cloned => Ok(()),
            Reflink::Unsupported => Err(Error::internal(format!(
                "{} cannot be cloned, though other files of its file system can",
                source.display()
            ))),
        }
    }

    fn thaw(&self, call: &Call, mount_point: &Path) -> Result<()> {
        Kernel::thaw(self, call, mount_point).map(drop)
    }
}

/// Whether two paths have the same last two components.
fn may_be(file: &Path, image: &Path) -> bool {
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
