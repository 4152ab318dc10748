//! Loop devices.

use std::path::Path;

use super::{Backing, HelperRequest, Kernel};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::loopdev::{Detached, LoopDevice};

impl Kernel {
    /// Attaches `image` to a loop device, or finds the one it is attached to.
    ///
    /// # Errors
    /// [`Kind::Busy`] while the image is locked exclusively; [`Kind::Unavailable`] while it is being
    /// detached; [`Kind::Precondition`] when it is attached read-only and is to be written, and when there
    /// are no loop devices; [`Kind::NotFound`] when there is no such image.
    pub fn attach_loop(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice> {
        let step = format!("attach {} to a loop device", image.display());
        let request = HelperRequest::AttachLoop { image: image.into(), read_only };
        self.ask(call, &step, Class::Change, &request).map_err(explain_attach)
    }

    /// Detaches a loop device from the image it was attached to; a device that is attached to another file by
    /// now is left alone.
    ///
    /// # Errors
    /// Failures of the system; a device in use is no error, the result shows it.
    pub fn detach_loop(&self, call: &Call, device: &LoopDevice) -> Result<Detached> {
        let step = format!("detach {}", device.path.display());
        self.ask(call, &step, Class::Change, &HelperRequest::DetachLoop { device: device.clone() })
    }

    /// Turns discard off on a loop device until it is detached, so that its image keeps all blocks.
    ///
    /// # Errors
    /// [`Kind::Precondition`] where sysfs cannot be written to.
    pub fn refuse_discard(&self, call: &Call, device: &LoopDevice) -> Result<()> {
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

    /// Makes a loop device as large as its image has become, and returns that size in bytes.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn grow_loop(&self, call: &Call, device: &Path) -> Result<u64> {
        let step = format!("grow {}", device.display());
        self.ask(call, &step, Class::Change, &HelperRequest::GrowLoop { device: device.into() })
    }
}

fn explain_attach(error: Error) -> Error {
    match error.errno() {
        Some(libc::EWOULDBLOCK) => {
            error.with_kind(Kind::Busy).hint("the image is locked: it is being deleted or copied")
        }
        Some(libc::EBUSY) => error.with_kind(Kind::Unavailable).hint(
            "it is attached to a loop device that is detached as soon as nobody has it open (`losetup -j IMAGE` \
             shows it, `fuser -v DEVICE` who does), or others take every free device: try again",
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
