//! The file system on a device: made if the device is blank, checked if it asks for it, grown to the device,
//! never overwritten. What was half made is undone when the volume leaves the node.

use std::path::Path;

use crate::backend::{Attachment, Backend, BlockDevice};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Tool};
use crate::ids::VolumeId;
use crate::journal::{Change, Table};
use crate::sys::superblock::Content;
use crate::volume::Operations;
use crate::volume::request::{Access, Capability};

/// What a device gets when nobody says otherwise.
const DEFAULT: &str = "ext4";

/// A device that is larger than its file system by less than this is not worth growing: file systems round
/// down.
const SLACK: u64 = 1 << 20;

/// The kernel resizes no btrfs to less than this (fs/btrfs/ioctl.c, btrfs_ioctl_resize: EINVAL). It is used
/// as it is.
const SMALLEST_BTRFS: u64 = 256 << 20;

/// What was begun on a file system and must be finished before anything else, should a crash come between. It
/// is written down with the volume's ID: a later volume of the same name may hold data, and nothing was begun
/// on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingFsWork {
    /// The device was blank and is being formatted.
    Formatting,
    /// The file system is smaller than its device and grows once it is mounted.
    Growing,
}

impl PendingFsWork {
    fn text(self, id: &VolumeId) -> String {
        match self {
            Self::Formatting => format!("formatting {id}"),
            Self::Growing => format!("growing {id}"),
        }
    }
}

/// The file system to use: as the request says, else as the volume was made for, else ext4.
pub fn wanted(capability: &Capability, made_for: Option<&str>) -> String {
    let asked = match &capability.access {
        Access::Mount { fs_type, .. } => fs_type.as_str(),
        Access::Block => "",
    };
    [asked, made_for.unwrap_or_default()]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or(DEFAULT)
        .to_string()
}

impl Operations {
    /// Makes sure that `device` holds a sound file system of this type. Not for mounted devices.
    ///
    /// A mark in the journal stands from before the formatting until after it. A device found half formatted
    /// under a mark was blank before, so it is formatted again; without a mark nothing but a blank device
    /// ever is. A whole file system is kept, mark or not: mkfs writes the superblock last, and somebody may
    /// have made it by hand and put data there.
    pub(crate) fn ensure_file_system(
        &self,
        call: &Call,
        id: &VolumeId,
        device: &BlockDevice,
        fs_type: &str,
    ) -> Result<()> {
        let found = self.kernel.identify(call, &device.path, device.sparse_file.as_deref())?;
        match found.content {
            Content::Blank => self.format(call, id, device, fs_type),
            Content::Foreign(_) if self.pending(id) == Some(PendingFsWork::Formatting) => {
                self.format(call, id, device, fs_type)
            }
            Content::FileSystem(present) if present.fs_type.name() != fs_type => {
                Err(Error::precondition(format!(
                    "volume {id} holds a file system of type {}, {fs_type} was asked for: nothing was changed; \
                     ask for {0}, or use a new volume",
                    present.fs_type.name()
                )))
            }
            Content::FileSystem(_) if device.read_only => Ok(()),
            Content::FileSystem(present) => {
                self.clear_format_mark(id)?;
                let growable = fs_type != "btrfs" || found.device_bytes >= SMALLEST_BTRFS;
                let too_small = growable && found.device_bytes.saturating_sub(present.bytes) >= SLACK;
                self.check_and_grow(call, id, device, fs_type, present.needs_check, too_small)
            }
            Content::Foreign(what) => Err(Error::precondition(format!(
                "volume {id} holds {what}, not a file system cephlet knows: it is not formatted over; \
                 publish it as a block volume, \
                 or use a new volume"
            ))),
        }
    }

    fn format(&self, call: &Call, id: &VolumeId, device: &BlockDevice, fs_type: &str) -> Result<()> {
        if device.read_only {
            return Err(Error::precondition(format!(
                "volume {id} is blank and was attached read-only: stage it for writing once"
            )));
        }
        // Discarding would punch holes into a preallocated image; a blank device has nothing to discard.
        let (tool, options): (Tool, &[&str]) = match fs_type {
            "ext4" => (Tool::MkfsExt4, &["-q", "-F", "-m", "0", "-E", "nodiscard"]),
            "xfs" => (Tool::MkfsXfs, &["-q", "-f", "-K"]),
            "btrfs" => (Tool::MkfsBtrfs, &["-q", "-f", "-K"]),
            other => {
                return Err(Error::invalid(format!(
                    "fs_type {other:?} is not offered: ext4, xfs and btrfs are"
                )));
            }
        };
        self.write_pending(id, PendingFsWork::Formatting)?;
        let made = self
            .runner
            .run(call, &Cmd::new(tool, Class::Unbounded).args(options.iter().copied()).arg(&device.path));
        made.map_err(|error| self.explain_format(call, id, device, Error::from(error)))?;
        // Before the first mount: from then on there may be data.
        self.clear_pending(id)
    }

    /// A formatter that failed before it wrote anything leaves no right to format over what is put there
    /// later, by hand perhaps.
    fn explain_format(&self, call: &Call, id: &VolumeId, device: &BlockDevice, error: Error) -> Error {
        let error = ended_badly(error).context(format!("volume {id} cannot be formatted"));
        if error.kind() == Kind::Precondition
            && self
                .kernel
                .identify(call, &device.path, device.sparse_file.as_deref())
                .is_ok_and(|it| it.content == Content::Blank)
            && let Err(error) = self.clear_pending(id)
        {
            log::warn!(
                "volume {id}: its mark of a formatting that was never begun stays in the journal: {error}"
            );
        }
        error
    }

    /// Repairs a file system that asks for it, and has it grow to its device: ext4 now, the others once they
    /// are mounted.
    fn check_and_grow(
        &self,
        call: &Call,
        id: &VolumeId,
        device: &BlockDevice,
        fs_type: &str,
        needs_check: bool,
        too_small: bool,
    ) -> Result<()> {
        match (fs_type, needs_check || too_small) {
            (_, false) => Ok(()),
            ("ext4", true) => {
                self.check_ext4(call, id, device)?;
                let resize = Cmd::new(Tool::Resize2fs, Class::Unbounded).arg(&device.path);
                if too_small { self.runner.run(call, &resize).map(drop).map_err(Error::from) } else { Ok(()) }
            }
            (_, true) => self.write_pending(id, PendingFsWork::Growing),
        }
    }

    /// A full check, which resize2fs insists on before it grows an unmounted file system.
    fn check_ext4(&self, call: &Call, id: &VolumeId, device: &BlockDevice) -> Result<()> {
        let check = Cmd::new(Tool::E2fsck, Class::Unbounded).args(["-p", "-f"]).arg(&device.path);
        match self.runner.run(call, &check).map_err(Error::from) {
            // 1: errors were corrected (e2fsck(8), EXIT CODE).
            Err(error) if error.exit_status() != Some(1) => {
                let by_hand = "publish it as a block volume and run e2fsck on it by hand";
                Err(ended_badly(error)
                    .context(format!("volume {id} cannot be checked; if e2fsck gave up, {by_hand}")))
            }
            _ => Ok(()),
        }
    }

    /// Grows a file system that was found too small when it was mounted, even if a crash came between.
    pub(crate) fn finish_growing(
        &self,
        call: &Call,
        id: &VolumeId,
        device: &Path,
        mount_point: &Path,
        fs_type: &str,
    ) -> Result<()> {
        if self.pending(id) != Some(PendingFsWork::Growing) {
            return Ok(());
        }
        self.grow(call, id, device, mount_point, fs_type)?;
        self.clear_pending(id)
    }

    /// Ends the right to format over what is found. It must be gone before anybody can write data there.
    pub(crate) fn clear_format_mark(&self, id: &VolumeId) -> Result<()> {
        if self.pending(id) == Some(PendingFsWork::Formatting) { self.clear_pending(id) } else { Ok(()) }
    }

    /// Ends the right to format over what is found, because the volume leaves this node: from now on others
    /// may write to it. What a formatting has half made is made blank, so that whoever has it next can begin
    /// anew.
    ///
    /// A device that is gone or fails keeps what is half made: it must not keep the volume from leaving.
    ///
    /// # Errors
    /// Those after which asking again helps: somebody is still at it.
    pub(crate) fn undo_formatting(&self, call: &Call, id: &VolumeId, backend: &dyn Backend) -> Result<()> {
        if self.pending(id) != Some(PendingFsWork::Formatting) {
            return Ok(());
        }
        let undone = match backend.node().attached(id)? {
            None => Err(Error::internal("its device is gone")),
            Some(Attachment::Block(device)) => self.remove_half_made(call, &device),
        };
        match undone {
            Err(error) if matches!(error.kind(), Kind::Internal | Kind::NotFound) => {
                log::warn!(
                    "volume {id}: what a formatting that was broken off has left on it stays there: {error}"
                );
            }
            undone => undone.map_err(|error| error.context(format!("volume {id} was being formatted")))?,
        }
        self.clear_pending(id)
    }

    fn remove_half_made(&self, call: &Call, device: &BlockDevice) -> Result<()> {
        let sparse_file = device.sparse_file.as_deref();
        match self.kernel.identify(call, &device.path, sparse_file)?.content {
            Content::Foreign(_) => self.kernel.blank(call, &device.path, sparse_file),
            Content::Blank | Content::FileSystem(_) => Ok(()),
        }
    }

    fn pending(&self, id: &VolumeId) -> Option<PendingFsWork> {
        let found = self.journal.get(Table::Formats, &id.key())?;
        [PendingFsWork::Formatting, PendingFsWork::Growing]
            .into_iter()
            .find(|work| work.text(id).as_bytes() == found)
    }

    fn write_pending(&self, id: &VolumeId, work: PendingFsWork) -> Result<()> {
        self.journal.write(&[Change::put(Table::Formats, id.key(), work.text(id).into_bytes())])
    }

    /// Forgets what was begun on a volume that is gone.
    pub(crate) fn forget_pending(&self, id: &VolumeId) -> Result<()> {
        if self.pending(id).is_none() {
            return Ok(());
        }
        self.journal.write_unsynced(&[Change::remove(Table::Formats, id.key())])
    }

    fn clear_pending(&self, id: &VolumeId) -> Result<()> {
        self.journal.write(&[Change::remove(Table::Formats, id.key())])
    }

    /// Grows a mounted file system to its device.
    pub(crate) fn grow(
        &self,
        call: &Call,
        id: &VolumeId,
        device: &Path,
        mount_point: &Path,
        fs_type: &str,
    ) -> Result<()> {
        let cmd = match fs_type {
            "ext4" => Cmd::new(Tool::Resize2fs, Class::Unbounded).arg(device),
            "xfs" => Cmd::new(Tool::XfsGrowfs, Class::Unbounded).arg(mount_point),
            "btrfs" => {
                Cmd::new(Tool::Btrfs, Class::Unbounded).args(["filesystem", "resize", "max"]).arg(mount_point)
            }
            other => {
                return Err(Error::internal(format!(
                    "volume {id} is mounted as {other}, which cephlet cannot grow"
                )));
            }
        };
        self.runner.run(call, &cmd).map(drop).map_err(|error| explain_growth(Error::from(error), id, fs_type))
    }
}

/// A tool that ended and said no is the volume's trouble. One that was not run to its end keeps its own
/// meaning: it may be running still, and who joined the call has to ask again.
fn ended_badly(error: Error) -> Error {
    if error.kind() == Kind::Internal { error.with_kind(Kind::Precondition) } else { error }
}

/// What the tools only call "Permission denied" and "Invalid argument": growing a mounted ext4 needs a
/// capability of its own (fs/ext4/ioctl.c), and a btrfs may be too small to be resized.
fn explain_growth(error: Error, id: &VolumeId, fs_type: &str) -> Error {
    let error = error.context(format!("the file system of volume {id} could not be grown"));
    let says = |text: &str| error.message().contains(text);
    // While one that outlived its daemon or was started by hand is still at it (resize2fs; xfs_growfs and
    // btrfs): asking again finds it done.
    if says("Device or resource busy") || says("in progress") {
        return error.with_kind(Kind::Busy);
    }
    let help = match fs_type {
        "ext4" if says("Permission denied") || says("Operation not permitted") => {
            "growing a mounted ext4 needs CAP_SYS_RESOURCE, which this daemon lacks: grant it, or unpublish \
             the volume \
             (it grows when it is staged again)"
        }
        "btrfs" if says("Invalid argument") => {
            "the kernel resizes no btrfs to less than 256 MiB: expand the volume to that, or go on with the \
             size it has"
        }
        _ => return error,
    };
    Error::precondition(format!("{error}; {help}"))
}
