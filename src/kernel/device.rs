//! Block devices: what is on them, how large they are, which processes have them open.

use std::path::Path;

use super::{Backing, HelperRequest, Identified, Kernel};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::block::DeviceNumber;
use crate::sys::openers::Openers;

impl Kernel {
    /// The size of a device in bytes.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn device_size(&self, call: &Call, device: &Path) -> Result<u64> {
        let step = format!("ask the size of {}", device.display());
        self.ask(call, &step, Class::Question, &HelperRequest::DeviceSize { device: device.into() })
    }

    /// What is on a device that is not claimed. With the sparse file below the device, "blank" is certain.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when another process has claimed the device, or another is behind the node.
    pub fn identify(&self, call: &Call, device: &Backing, sparse_file: Option<&Path>) -> Result<Identified> {
        let (device, sparse_file) = (device.clone(), sparse_file.map(Into::into));
        let (path, step) = (device.path(), format!("look what is on {}", device.path().display()));
        let request = HelperRequest::Identify { device, sparse_file };
        // The whole of a full image may have to be read.
        self.ask(call, &step, Class::Change, &request).map_err(|error| explain_device(error, &path))
    }

    /// Removes half-made content from a device that is not claimed, so that [`identify`](Self::identify)
    /// finds it blank. A whole file system stays.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when another process has claimed the device, or another is behind the node.
    pub fn remove_half_made(&self, call: &Call, device: &Backing, sparse_file: Option<&Path>) -> Result<()> {
        let (device, sparse_file) = (device.clone(), sparse_file.map(Into::into));
        let (path, step) = (device.path(), format!("make {} blank", device.path().display()));
        let request = HelperRequest::RemoveHalfMade { device, sparse_file };
        // A large image has many objects to be removed.
        self.ask(call, &step, Class::Unbounded, &request).map_err(|error| explain_device(error, &path))
    }

    /// Whether a device is mounted, in any mount namespace, or otherwise claimed. An opener alone has not
    /// claimed it.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn is_claimed(&self, call: &Call, device: &Path) -> Result<bool> {
        let step = format!("look whether {} is in use", device.display());
        self.ask(call, &step, Class::Question, &HelperRequest::IsClaimed { device: device.into() })
    }

    /// The processes that have a block device open. (Looking through all descriptors may take a while.)
    ///
    /// # Errors
    /// Failures of the system.
    pub fn openers(&self, call: &Call, device: DeviceNumber) -> Result<Openers> {
        let step = format!("look who has block device {device} open");
        self.ask(call, &step, Class::Question, &HelperRequest::Openers { device })
    }
}

pub(super) fn explain_device(error: Error, device: &Path) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => {
            let device = device.display();
            error.with_kind(Kind::Unavailable).hint(format_args!(
                "another process still works on {device}, or it is mounted: `fuser -vm {device}` shows it"
            ))
        }
        Some(libc::ESTALE) => error.with_kind(Kind::Unavailable),
        _ => error,
    }
}
