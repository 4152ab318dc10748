//! What must be behind the node of a device. Device numbers are reused: code that opens a node checks that
//! the device is still the intended one, and keeps it open for as long as that matters.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::failure::{Answer, During, SyscallFailure};
use super::rbd::is_still;
use crate::sys::blank;
use crate::sys::block::{self, DeviceNumber};
use crate::sys::loopdev::LoopDevice;
use crate::sys::nbd::{ConnectedDevice, Table};
use crate::sys::rbd::{Bus, MappedImage};
use crate::sys::superblock::{self, Content};

/// What is behind a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Backing {
    /// A file.
    Loop(LoopDevice),
    /// An image that the kernel has mapped.
    Rbd(MappedImage),
    /// An image that rbd-nbd serves.
    Nbd(ConnectedDevice),
}

impl Backing {
    /// The device's node.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Loop(device) => device.path.clone(),
            Self::Rbd(image) => image.path(),
            Self::Nbd(connected) => connected.path(),
        }
    }

    /// Opens the device. While it is open, no other device gets its number.
    ///
    /// # Errors
    /// Those of open(2); ESTALE when something else is behind the node by now.
    pub(super) fn hold(&self) -> Answer<File> {
        let path = self.path();
        let open = block::open(&path).during(|| format!("open {}", path.display()))?;
        match self.is_behind(&open).during(|| format!("look what is behind {}", path.display()))? {
            true => Ok(open),
            false => Err(stale(&path)),
        }
    }

    fn is_behind(&self, open: &File) -> io::Result<bool> {
        let number = match self {
            Self::Loop(device) => return device.is(open),
            Self::Rbd(image) => {
                let bus = Bus::default();
                is_still(&bus, image)?.then(|| bus.device_number(image.number)).transpose()?
            }
            Self::Nbd(connected) => {
                let table = Table::default();
                if table.is_connected(connected)? { table.device_number(connected.number)? } else { None }
            }
        };
        Ok(number == Some(DeviceNumber::of(open)?))
    }
}

fn stale(path: &Path) -> SyscallFailure {
    let action = format!("{} is another volume's device by now, or nobody's: try again", path.display());
    SyscallFailure { action: Some(action), ..io::Error::from_raw_os_error(libc::ESTALE).into() }
}

/// The conditions for a tool to start on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolGuard {
    /// What must be behind it.
    pub device: Backing,
    /// The sparse file below the device, if there is one.
    pub sparse_file: Option<OsString>,
    /// What the tool may overwrite.
    pub overwrites: Overwrites,
}

/// What a tool may overwrite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overwrites {
    /// Nothing: it works on the present content.
    Nothing,
    /// A blank device.
    Blank,
    /// A blank device, or what a formatter has left half made.
    HalfMade,
}

impl ToolGuard {
    /// As [`admit`] takes it.
    pub fn to_bytes(&self) -> Vec<u8> {
        // It contains nothing that JSON cannot express, and an empty guard admits no tool.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Checks the conditions, and opens the device, which is to stay open until the tool ends.
    fn admit(&self) -> Answer<Result<File, String>> {
        let held = self.device.hold()?;
        if self.overwrites == Overwrites::Nothing {
            return Ok(Ok(held));
        }
        let path = self.device.path();
        let holds = |what: &str| Err(format!("{} holds {what} by now: it is not formatted", path.display()));
        Ok(match identify(&path, self.sparse_file.as_deref())?.content {
            Content::Blank => Ok(held),
            Content::Foreign(_) if self.overwrites == Overwrites::HalfMade => Ok(held),
            Content::Foreign(what) => holds(&what),
            Content::FileSystem(found) => holds(found.fs_type.name()),
        })
    }
}

/// Checks, in the process that becomes a tool, whether the tool may start. Returns the open device, which is
/// to stay open until the tool ends.
///
/// # Errors
/// Why the tool may not start, for the operator.
pub fn admit(guard: &[u8]) -> Result<OwnedFd, String> {
    let guard: ToolGuard =
        serde_json::from_slice(guard).map_err(|error| format!("read the guard: {error}"))?;
    let admitted = guard.admit().map_err(|failure| failure.at("look at the device").to_string())?;
    admitted.map(OwnedFd::from)
}

/// What is on a device, and how large the device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identified {
    /// What is on it.
    pub content: Content,
    /// The device's size in bytes, to be compared with that of the file system.
    pub device_bytes: u64,
}

/// What is on a device that is not claimed.
pub(super) fn identify(device: &Path, sparse_file: Option<&OsStr>) -> Answer<Identified> {
    let open = block::open_exclusive(device).during(|| format!("open {}", device.display()))?;
    identify_open(&open, device, open_sparse(sparse_file)?.as_ref())
}

fn identify_open(open: &File, device: &Path, sparse: Option<&File>) -> Answer<Identified> {
    let device_bytes = block::size(open).during(|| format!("ask the size of {}", device.display()))?;
    let content =
        superblock::identify(open, device_bytes, sparse).during(|| format!("read {}", device.display()))?;
    Ok(Identified { content, device_bytes })
}

fn open_sparse(file: Option<&OsStr>) -> Answer<Option<File>> {
    let open = |path: &OsStr| File::open(path).during(|| format!("open {}", path.display()));
    file.map(open).transpose()
}

/// Removes half-made content from a device that is not claimed. The check and the change use one descriptor.
/// A whole file system stays.
pub(super) fn remove_half_made(device: &Backing, sparse_file: Option<&OsStr>) -> Answer<()> {
    let _held = device.hold()?;
    let path = device.path();
    let open = block::open_to_write(&path).during(|| format!("open {}", path.display()))?;
    let sparse = open_sparse(sparse_file)?;
    let Identified { content, device_bytes } = identify_open(&open, &path, sparse.as_ref())?;
    match content {
        Content::Blank | Content::FileSystem(_) => Ok(()),
        Content::Foreign(_) => blank::blank(&open, device_bytes, sparse.as_ref())
            .during(|| format!("make {} blank", path.display())),
    }
}
