//! Loop devices as the kernel has them: looked for in sysfs, changed by helper processes.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::loops::{LoopDevice, Loops};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::kernel::Kernel;
use crate::sys::copy::Reflink;
use crate::sys::loopdev::Detached;
use crate::sys::mountinfo::Mounts;
use crate::sys::{block, file, loopdev};

impl Loops for Kernel {
    fn find(&self, image: &Path) -> Result<Option<LoopDevice>> {
        match loopdev::find(image) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            found => found.map_err(|error| Error::io(format!("look for the loop device of {}", image.display()), &error)),
        }
    }

    fn mounts(&self, device: &LoopDevice) -> Result<Vec<PathBuf>> {
        let Ok(device) = block::Device::at(&device.path) else { return Ok(Vec::new()) };
        let mounts = Mounts::read().map_err(|error| Error::io("read the table of mounts", &error))?;
        // A bind of the device's node is no file system of it.
        let file_systems = mounts.of_device(&device).filter(|mount| mount.device != device.node_on);
        Ok(file_systems.map(|mount| mount.mount_point.clone()).collect())
    }

    fn attach(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice> {
        let busy = |error: Error| if error.kind() == Kind::Busy { error.with_kind(Kind::Unavailable) } else { error };
        self.attach_loop(call, image, read_only).map_err(busy)
    }

    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<bool> {
        Ok(self.detach_loop(call, device)? == Detached::Gone)
    }

    fn grow(&self, call: &Call, device: &Path) -> Result<()> {
        self.grow_loop(call, device).map(drop)
    }

    /// The helper makes a file of its own, so that a failure leaves none; the target then shares its blocks.
    fn clone_frozen(&self, call: &Call, mount_point: &Path, source: &Path, target: &Path) -> Result<()> {
        let frozen = target.with_extension("frozen");
        let unsupported = || Error::precondition(format!("{} cannot share its blocks", source.display()));
        match Kernel::clone_frozen(self, call, &[mount_point.to_path_buf()], source, &frozen)? {
            Reflink::Cloned => {}
            Reflink::Unsupported => return Err(unsupported()),
        }
        let shared = share(&frozen, target).map_err(|error| Error::io(format!("clone {} to {}", frozen.display(), target.display()), &error));
        file::remove(&frozen).map_err(|error| Error::io(format!("remove {}", frozen.display()), &error))?;
        match shared? {
            Reflink::Cloned => Ok(()),
            Reflink::Unsupported => Err(unsupported()),
        }
    }

    fn thaw(&self, call: &Call, mount_point: &Path) -> Result<()> {
        Kernel::thaw(self, call, mount_point).map(drop)
    }
}

fn share(from: &Path, to: &Path) -> std::io::Result<Reflink> {
    crate::sys::copy::reflink(&File::open(from)?, &File::options().write(true).open(to)?)
}
