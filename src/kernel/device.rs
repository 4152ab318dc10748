//! Block devices: what is on them, how large they are, which processes have them open.

use std::ffi::OsString;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::backing::{self, Backing, Identified};
use super::{Answer, Ask, During};
use crate::error::{Error, Kind};
use crate::exec::Class;
use crate::sys::block::{self, DeviceNumber};
use crate::sys::openers::{self, Openers};

/// The size of a device in bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeviceSize {
    /// The device.
    pub device: OsString,
}

impl Ask for DeviceSize {
    type Reply = u64;
    const CLASS: Class = Class::Question;

    fn step(&self) -> String {
        format!("ask the size of {}", self.device.display())
    }

    fn answer(&self) -> Answer<u64> {
        block::open(self.device.as_ref()).and_then(|device| block::size(&device)).during(|| self.step())
    }
}

/// What is on a device that no process has claimed. With the sparse file the device stands on, "blank" is
/// certain. The error is [`Kind::Unavailable`] when another process has claimed the device, or another one is
/// behind its node.
#[derive(Debug, Serialize, Deserialize)]
pub struct Identify {
    /// The device.
    pub device: Backing,
    /// The sparse file it stands on.
    pub sparse_file: Option<OsString>,
}

impl Ask for Identify {
    type Reply = Identified;
    /// The whole of a full image may have to be read.
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("look what is on {}", self.device.path().display())
    }

    fn answer(&self) -> Answer<Identified> {
        let _held = self.device.hold()?;
        backing::identify(&self.device.path(), self.sparse_file.as_deref())
    }

    fn explain(&self, error: Error) -> Error {
        explain_device(error, &self.device.path())
    }
}

/// Takes what is half made off a device that no process has claimed, so that [`Identify`] finds it blank. A
/// whole file system stays. Errors are those of [`Identify`].
#[derive(Debug, Serialize, Deserialize)]
pub struct RemoveHalfMade {
    /// The device.
    pub device: Backing,
    /// The sparse file it stands on.
    pub sparse_file: Option<OsString>,
}

impl Ask for RemoveHalfMade {
    type Reply = ();
    /// A large image has many objects to be removed.
    const CLASS: Class = Class::Unbounded;

    fn step(&self) -> String {
        format!("make {} blank", self.device.path().display())
    }

    fn answer(&self) -> Answer<()> {
        backing::remove_half_made(&self.device, self.sparse_file.as_deref())
    }

    fn explain(&self, error: Error) -> Error {
        explain_device(error, &self.device.path())
    }
}

/// Whether a device is mounted, in whichever mount namespace, or otherwise claimed. A process that only has it
/// open has not claimed it.
#[derive(Debug, Serialize, Deserialize)]
pub struct IsClaimed {
    /// The device.
    pub device: OsString,
}

impl Ask for IsClaimed {
    type Reply = bool;
    const CLASS: Class = Class::Question;

    fn step(&self) -> String {
        format!("look whether {} is in use", self.device.display())
    }

    fn answer(&self) -> Answer<bool> {
        block::is_claimed(self.device.as_ref()).during(|| self.step())
    }
}

/// The processes that have a block device open. (Looking through all descriptors may take a while.)
#[derive(Debug, Serialize, Deserialize)]
pub struct FindOpeners {
    /// The device.
    pub device: DeviceNumber,
}

impl Ask for FindOpeners {
    type Reply = Openers;
    const CLASS: Class = Class::Question;

    fn step(&self) -> String {
        format!("look who has block device {} open", self.device)
    }

    fn answer(&self) -> Answer<Openers> {
        openers::of(self.device).during(|| self.step())
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
