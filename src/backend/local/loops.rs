//! What the local backend asks of the kernel: loop devices and the file systems on them.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use crate::call::Call;
use crate::error::Result;
pub use crate::sys::loopdev::LoopDevice;

/// Loop devices. Whatever can wait for storage is done by another process; looking is not such a thing and opens no device.
pub trait Loops: Debug + Send + Sync {
    /// The device that has exactly this file behind it.
    fn find(&self, image: &Path) -> Result<Option<LoopDevice>>;

    /// Where file systems of the device are mounted.
    fn mounts(&self, device: &LoopDevice) -> Result<Vec<PathBuf>>;

    /// Attaches the image, or finds the device it is attached as. The device keeps a shared flock(2) of the image as long as it is
    /// there; while somebody holds it exclusively, the error is [`Kind::Unavailable`](crate::error::Kind::Unavailable).
    fn attach(&self, call: &Call, image: &Path, read_only: bool) -> Result<LoopDevice>;

    /// Detaches the device. False if the kernel keeps it because somebody has it open.
    fn detach(&self, call: &Call, device: &LoopDevice) -> Result<bool>;

    /// Lets the device follow the length of its image.
    fn grow(&self, call: &Call, device: &Path) -> Result<()>;

    /// Freezes the file system mounted at `mount_point`, makes `target` a reflink of `source`, and thaws.
    fn clone_frozen(&self, call: &Call, mount_point: &Path, source: &Path, target: &Path) -> Result<()>;

    /// Thaws the file system mounted at a place; one that is not frozen is thawed.
    fn thaw(&self, call: &Call, mount_point: &Path) -> Result<()>;
}
