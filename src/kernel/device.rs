//! Block devices: what is on them, how large they are, who has them open.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{HelperReply, HelperRequest, Kernel, unexpected};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::block::DeviceNumber;
use crate::sys::openers::Opener;
use crate::sys::superblock::Content;

/// What is on a device, and how large the device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identified {
    /// What is on it.
    pub content: Content,
    /// The device's size in bytes, to be compared with that of the file system.
    pub device_bytes: u64,
}

impl Kernel {
    /// The size of a device in bytes.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn device_size(&self, call: &Call, device: &Path) -> Result<u64> {
        let request = HelperRequest::DeviceSize { device: device.into() };
        self.bytes(call, &format!("ask the size of {}", device.display()), Class::Question, &request)
    }

    /// Says what is on a device that nobody has claimed. With the sparse file the device stands on, "blank"
    /// is certain.
    ///
    /// # Errors
    /// [`Kind::Unavailable`] when another process has claimed the device.
    pub fn identify(&self, call: &Call, device: &Path, sparse_file: Option<&Path>) -> Result<Identified> {
        let step = format!("look what is on {}", device.display());
        let request =
            HelperRequest::Identify { device: device.into(), sparse_file: sparse_file.map(Into::into) };
        // The whole of a full image may have to be read.
        match self
            .ask(call, &step, Class::Change, &request)
            .map_err(|error| explain_claimed(error, device))?
        {
            HelperReply::Identified(identified) => Ok(identified),
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
        let request =
            HelperRequest::Blank { device: device.into(), sparse_file: sparse_file.map(Into::into) };
        // A large image has many objects to be removed.
        match self
            .ask(call, &step, Class::Unbounded, &request)
            .map_err(|error| explain_claimed(error, device))?
        {
            HelperReply::Done => Ok(()),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// The processes that have a block device open. (Looking through all descriptors may take a while.)
    ///
    /// # Errors
    /// Failures of the system.
    pub fn openers(&self, call: &Call, device: DeviceNumber) -> Result<Vec<Opener>> {
        let step = format!("look who has block device {device} open");
        match self.ask(call, &step, Class::Question, &HelperRequest::Openers { device })? {
            HelperReply::Openers(openers) => Ok(openers),
            other => Err(unexpected(&step, &other)),
        }
    }
}

fn explain_claimed(error: Error, device: &Path) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => {
            let device = device.display();
            error.with_kind(Kind::Unavailable).hint(format_args!(
                "another process still works on {device}, or it is mounted: `fuser -vm {device}` shows it"
            ))
        }
        _ => error,
    }
}
