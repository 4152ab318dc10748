//! Loop devices.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::{Answer, Ask, Backing, During};
use crate::error::{Error, Kind};
use crate::exec::Class;
use crate::sys::loopdev::{Detached, LoopDevice};
use crate::sys::{discard, loopdev};

/// Attaches an image to a loop device, or finds the one it is attached to.
///
/// Errors: [`Kind::Busy`] while another process holds an exclusive lock on the image; [`Kind::Unavailable`]
/// while it is being detached; [`Kind::Precondition`] when it is attached read-only and is to be written, and
/// when there are no loop devices; [`Kind::NotFound`] when there is no such image.
#[derive(Debug, Serialize, Deserialize)]
pub struct AttachLoop {
    /// The image.
    pub image: OsString,
    /// Whether nothing may be written.
    pub read_only: bool,
}

impl Ask for AttachLoop {
    type Reply = LoopDevice;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("attach {} to a loop device", self.image.display())
    }

    /// A device that its former user has left without discard is mended first, if it can be.
    fn answer(&self) -> Answer<LoopDevice> {
        let _ = discard::restore_unused(discard::ONCE);
        loopdev::attach(self.image.as_ref(), self.read_only).during(|| self.step())
    }

    fn explain(&self, error: Error) -> Error {
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
}

/// Detaches a loop device from the image it was attached to; a device that stands on another file by now is
/// left alone. A device in use is not an error, the reply says so.
#[derive(Debug, Serialize, Deserialize)]
pub struct DetachLoop {
    /// The device.
    pub device: LoopDevice,
}

impl Ask for DetachLoop {
    type Reply = Detached;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("detach {}", self.device.path.display())
    }

    /// The next user of the device finds it as it was.
    fn answer(&self) -> Answer<Detached> {
        let detached = loopdev::detach(&self.device).during(|| self.step())?;
        // Without discard the next image takes more room than it needs: the detach has not failed for that.
        let _ = discard::restore_unused(discard::PATIENTLY);
        Ok(detached)
    }
}

/// Turns discard off on a loop device until it is detached, so that its image keeps all blocks. The error is
/// [`Kind::Precondition`] where sysfs cannot be written to.
#[derive(Debug, Serialize, Deserialize)]
pub struct RefuseDiscard {
    /// The device.
    pub device: LoopDevice,
}

impl Ask for RefuseDiscard {
    type Reply = ();
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("turn discard off for {}", self.device.path.display())
    }

    fn answer(&self) -> Answer<()> {
        let _held = Backing::Loop(self.device.clone()).hold()?;
        discard::refuse(&self.device.path).during(|| self.step())
    }

    fn explain(&self, error: Error) -> Error {
        match error.errno() {
            Some(libc::EROFS | libc::EACCES | libc::EPERM) => error.with_kind(Kind::Precondition).hint(
                "without that a preallocated volume loses its blocks: give the container a /sys that it can \
                 write to",
            ),
            _ => error,
        }
    }
}

/// Makes a loop device as large as its image has become; replies that size in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct GrowLoop {
    /// The device.
    pub device: OsString,
}

impl Ask for GrowLoop {
    type Reply = u64;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("grow {}", self.device.display())
    }

    fn answer(&self) -> Answer<u64> {
        loopdev::set_capacity(self.device.as_ref()).during(|| self.step())
    }
}
