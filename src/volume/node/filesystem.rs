//! The file system on a device: made if the device is blank, checked if it needs a check, grown to the
//! device, never overwritten. A half-made file system is removed when the volume leaves the node.

use std::path::Path;

use crate::backend::{Attachment, BlockDevice};
use crate::csi::{DEFAULT_FILE_SYSTEM, FILE_SYSTEMS, OLD_FILE_SYSTEMS};
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, NOT_BEGUN, Tool};
use crate::ids::VolumeId;
use crate::kernel::{Overwrites, ToolGuard};
use crate::sys::byte_lock::{ByteLock, LockFile, number_of};
use crate::sys::superblock::{Content, FileSystem, Journal};
use crate::volume::Operations;
use crate::volume::node::mounts::{self, OnNode};
use crate::volume::node::record::{BegunWork, FsWork, NodeRecord};
use crate::volume::request::{Access, Capability};

/// If a device is larger than its file system by less than this, the file system is not grown: file systems
/// round down.
const SLACK: u64 = 1 << 20;

/// The kernel resizes no btrfs to less than this (fs/btrfs/ioctl.c, btrfs_ioctl_resize: EINVAL). A smaller
/// one is used as it is.
const SMALLEST_BTRFS: u64 = 256 << 20;

/// A volume's device, and the file system that it should have.
#[derive(Clone, Copy)]
pub(crate) struct FsDevice<'a> {
    pub(crate) volume: &'a OnNode<'a>,
    pub(crate) device: &'a BlockDevice,
    pub(crate) fs_type: &'a str,
}

/// The kernel's driver for a file system. That of ext4 serves ext2 and ext3 as well, and so do its tools.
pub(crate) fn driver_of(fs_type: &str) -> &str {
    if OLD_FILE_SYSTEMS.contains(&fs_type) { DEFAULT_FILE_SYSTEM } else { fs_type }
}

/// The file system to use: that of the request, else the one that the volume was made for, else ext4.
pub fn wanted(capability: &Capability, made_for: Option<&str>) -> String {
    let made_for = made_for.filter(|name| !name.is_empty());
    capability.fs_type().or(made_for).unwrap_or(DEFAULT_FILE_SYSTEM).to_string()
}

impl Operations {
    /// Makes sure that the device holds a sound file system of this type. Not for mounted devices.
    ///
    /// A mark in the journal exists from before the formatting until after it. If a half-formatted device has
    /// a mark that is bound to it, the device was blank before, so it is formatted again; without a mark only
    /// a blank device is formatted. A whole file system is kept, mark or not: mkfs writes the superblock
    /// last, and a user may have made it by hand and put data there.
    pub(crate) fn ensure_file_system(&self, on: FsDevice<'_>, record: &NodeRecord) -> Result<()> {
        let FsDevice { volume: volume @ &OnNode { call, id, .. }, device, fs_type } = on;
        let lock = self.lock_formatting(id)?;
        let found = self.kernel.identify(call, &device.backing, device.sparse_file.as_deref())?;
        let is_half_made = is_half_made(volume, device);
        match found.content {
            Content::Blank => self.format(on, Overwrites::Blank, &lock),
            Content::Foreign(_) if is_half_made => self.format(on, Overwrites::HalfMade, &lock),
            Content::FileSystem(present) if present.fs_type.name() != fs_type => {
                Err(Error::precondition(format!(
                    "volume {id} holds a file system of type {}, {fs_type} was asked for: nothing was changed; \
                     ask for {0}, or use a new volume",
                    present.fs_type.name()
                )))
            }
            Content::FileSystem(present)
                if device.read_only && present.journal == Journal::Dirty && !ignores_journal(record) =>
            {
                Err(must_be_replayed(id, fs_type))
            }
            Content::FileSystem(_) if device.read_only => Ok(()),
            Content::FileSystem(present) => {
                self.clear_format_mark(volume)?;
                self.check_and_grow(on, &present, found.device_bytes)
            }
            Content::Foreign(what) => Err(Error::precondition(format!(
                "volume {id} holds {what}, not a file system cephlet knows: it is not formatted over; \
                 publish it as a block volume, \
                 or use a new volume"
            ))),
        }
    }

    /// The lock for formatting the volume. The formatter holds it as long as it runs, even without the
    /// daemon. An exclusive open cannot replace it: mkfs.btrfs only tests for one (6.2), and the guard cannot
    /// hold one for the tool, as mkfs.ext4 and mkfs.xfs take it themselves.
    fn lock_formatting(&self, id: &VolumeId) -> Result<ByteLock> {
        let locks = LockFile::at(self.layout.formatting_locks());
        let lock = locks.try_take(number_of(&self.record_key(id)));
        let lock = lock.map_err(|error| Error::io(format!("lock volume {id} for formatting"), &error))?;
        lock.ok_or_else(|| {
            Error::unavailable(format!(
                "volume {id} is still being formatted by a command of an earlier cephlet, which was killed: \
                 try again when that has ended (`fuser -v {}` shows it)",
                self.layout.formatting_locks().display()
            ))
        })
    }

    fn format(&self, on: FsDevice<'_>, overwrites: Overwrites, lock: &ByteLock) -> Result<()> {
        let FsDevice { volume: volume @ &OnNode { call, id, .. }, device, fs_type } = on;
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
                    "volume {id} is blank, and {other:?} is mounted only where it is already: ask for one of {}",
                    FILE_SYSTEMS.join(", ")
                )));
            }
        };
        self.begin_work(volume, FsWork::Formatting, &device.image)?;
        let mkfs = tool_on(tool, device, overwrites).args(options.iter().copied()).arg(&device.path);
        let made = self.runner.run(call, &mkfs.keeping_open(lock.file()));
        made.map_err(|error| self.explain_format(on, overwrites, Error::from(error)))?;
        // This comes before the first mount: after it there may be data.
        self.end_work(volume)
    }

    /// A formatter that failed before it wrote anything leaves no right to format over later data, perhaps
    /// made by hand; nor does a formatter that did not begin because the device is no longer blank.
    fn explain_format(&self, on: FsDevice<'_>, overwrites: Overwrites, error: Error) -> Error {
        let FsDevice { volume: volume @ &OnNode { call, id, .. }, device, .. } = on;
        let has_begun = error.exit_status() != Some(i32::from(NOT_BEGUN));
        let error = ended_badly(error).context(format!("volume {id} cannot be formatted"));
        let is_blank = || {
            let found = self.kernel.identify(call, &device.backing, device.sparse_file.as_deref());
            found.is_ok_and(|it| it.content == Content::Blank)
        };
        let is_untouched = match has_begun {
            true => error.kind() == Kind::Precondition && is_blank(),
            false => overwrites == Overwrites::Blank,
        };
        if is_untouched && let Err(error) = self.end_work(volume) {
            log::warn!(
                "volume {id}: its mark of a formatting that was never begun stays in the journal: {error}"
            );
        }
        error
    }

    /// Repairs a file system that needs it, and marks it to grow to its device once it is mounted; grows ext4
    /// here if this kernel cannot grow a mounted one.
    fn check_and_grow(&self, on: FsDevice<'_>, present: &FileSystem, device_bytes: u64) -> Result<()> {
        let is_ext = driver_of(on.fs_type) == "ext4";
        let growable = on.fs_type != "btrfs" || device_bytes >= SMALLEST_BTRFS;
        let is_small = growable && device_bytes.saturating_sub(present.bytes) >= SLACK;
        let grows_mounted = !is_ext || self.kernel.can_grow_mounted_ext4();
        // resize2fs insists on a full check before it grows an unmounted file system.
        if is_ext && (present.needs_check || (is_small && !grows_mounted)) {
            self.check_ext4(on)?;
        }
        match (is_small, grows_mounted) {
            (false, _) => Ok(()),
            (true, true) => self.begin_work(on.volume, FsWork::Growing, &on.device.image),
            (true, false) => {
                let resize = tool_on(Tool::Resize2fs, on.device, Overwrites::Nothing).arg(&on.device.path);
                self.runner.run(on.volume.call, &resize).map(drop).map_err(Error::from)
            }
        }
    }

    fn check_ext4(&self, on: FsDevice<'_>) -> Result<()> {
        let FsDevice { volume: &OnNode { call, id, .. }, device, .. } = on;
        let check = tool_on(Tool::E2fsck, device, Overwrites::Nothing).args(["-p", "-f"]).arg(&device.path);
        let Err(error) = self.runner.run(call, &check).map_err(Error::from) else { return Ok(()) };
        // Status 1: errors were corrected (e2fsck(8), EXIT CODE), or systemd-run could not start e2fsck.
        if error.exit_status() == Some(1) {
            let now = self.kernel.identify(call, &device.backing, device.sparse_file.as_deref())?;
            if matches!(now.content, Content::FileSystem(sound) if !sound.needs_check) {
                return Ok(());
            }
        }
        let by_hand = "publish it as a block volume and run e2fsck on it by hand";
        Err(ended_badly(error)
            .context(format!("volume {id} cannot be checked; if e2fsck gave up, {by_hand}")))
    }

    /// Grows a file system that was found too small before it was mounted, even after a crash in between.
    pub(crate) fn finish_growing(&self, on: FsDevice<'_>, mount_point: &Path) -> Result<()> {
        match on.volume.record().and_then(|record| record.begun) {
            Some(BegunWork { work: FsWork::Growing, image, .. }) if image == on.device.image => {}
            _ => return Ok(()),
        }
        self.grow(on, mount_point)?;
        self.end_work(on.volume)
    }

    /// Ends the right to format over existing content when the volume leaves this node: from now on other
    /// nodes may write to it. A half-made file system is made blank, so that the next node can format it.
    ///
    /// A device that is gone or fails, or has another image, keeps its half-made file system: that must not
    /// prevent the volume from leaving.
    ///
    /// # Errors
    /// Errors that a retry can resolve: a formatter may still be running.
    pub(crate) fn undo_formatting(&self, volume: &OnNode<'_>, record: &mut NodeRecord) -> Result<()> {
        let OnNode { call, id, backend, .. } = *volume;
        let Some(begun) = record.formatting() else { return Ok(()) };
        let _lock = self.lock_formatting(id)?;
        let undone = match backend.node().attached(&volume.id_here())? {
            None => Err(Error::internal("its device is gone")),
            Some(Attachment::Block(device))
                if begun.may_format(&device.image, &record.attached.publication) =>
            {
                self.kernel.remove_half_made(call, &device.backing, device.sparse_file.as_deref())
            }
            Some(Attachment::Block(_) | Attachment::Files(_)) => {
                Err(Error::internal("what is on it now is not known to be of that formatting"))
            }
        };
        match undone {
            Err(error) if matches!(error.kind(), Kind::Internal | Kind::NotFound) => {
                log::warn!(
                    "volume {id}: what a formatting that was broken off has left on it stays there: {error}"
                );
            }
            undone => undone.map_err(|error| error.context(format!("volume {id} was being formatted")))?,
        }
        record.begun = None;
        self.end_work(volume)
    }

    /// Grows a mounted file system to its device.
    pub(crate) fn grow(&self, on: FsDevice<'_>, mount_point: &Path) -> Result<()> {
        let FsDevice { volume: &OnNode { call, id, .. }, device, fs_type } = on;
        let tool = |tool| tool_on(tool, device, Overwrites::Nothing);
        let driver = driver_of(fs_type);
        let cmd = match driver {
            "ext4" => tool(Tool::Resize2fs).arg(&device.path),
            "xfs" => tool(Tool::XfsGrowfs).arg(mount_point),
            "btrfs" => tool(Tool::Btrfs).args(["filesystem", "resize", "max"]).arg(mount_point),
            other => {
                return Err(Error::internal(format!(
                    "volume {id} is mounted as {other}, which cephlet cannot grow"
                )));
            }
        };
        let grown = self.runner.run(call, &cmd).map(drop);
        grown.map_err(|error| self.explain_growth(error.into(), on, mount_point))
    }

    /// Explains what the tools only call "Operation not permitted" or "Invalid argument". The kernel grows no
    /// ext4 with recorded errors (fs/ext4/resize.c, ext4_resize_begin), and a mounted ext4 only with a
    /// special capability (fs/ext4/ioctl.c); a btrfs may be too small to be resized.
    fn explain_growth(&self, error: Error, on: FsDevice<'_>, mount_point: &Path) -> Error {
        let error = error.context(format!("the file system of volume {} could not be grown", on.volume.id));
        let says = |text: &str| error.message().contains(text);
        // Another tool may still be growing it, started by hand or by an earlier daemon (resize2fs;
        // xfs_growfs and btrfs): a repeated request finds it done.
        if says("Device or resource busy") || says("in progress") {
            return error.with_kind(Kind::Busy);
        }
        let mount = mounts::read().ok().and_then(|mounts| mounts.find_at(mount_point).cloned());
        if error.exit_status().is_some()
            && let Some(Ok(Some(fault))) = mount.map(|mount| self.find_fault(on.volume.call, &mount, false))
        {
            return Error::precondition(format!("{error}; {}, and then it grows", fault.detail));
        }
        let is_refused = says("Permission denied") || says("Operation not permitted");
        let help = match driver_of(on.fs_type) {
            "ext4" if is_refused && !self.kernel.can_grow_mounted_ext4() => {
                "growing a mounted ext4 needs CAP_SYS_RESOURCE, which this daemon lacks: grant it, or unpublish \
                 the volume \
                 (it grows when it is staged again)"
            }
            "ext4" if is_refused => {
                "the kernel refuses to grow it while it is mounted (`dmesg` says why): unpublish and unstage the \
                 volume (it grows when it is staged again)"
            }
            "btrfs" if says("Invalid argument") => {
                "the kernel resizes no btrfs to less than 256 MiB: expand the volume to that, or go on with the \
                 size it has"
            }
            _ => return error,
        };
        Error::precondition(format!("{error}; {help}"))
    }
}

/// Whether a formatting of the attached device was interrupted.
fn is_half_made(volume: &OnNode<'_>, device: &BlockDevice) -> bool {
    volume.record().is_some_and(|NodeRecord { attached, begun, .. }| {
        begun.is_some_and(|begun| begun.may_format(&device.image, &attached.publication))
    })
}

/// The mount flag, for each file system, by which an operator has it read without replaying its journal.
const WITHOUT_JOURNAL: [(&str, &str); 3] =
    [("ext4", "noload"), ("xfs", "norecovery"), ("btrfs", "rescue=nologreplay")];

fn ignores_journal(record: &NodeRecord) -> bool {
    let known = |flag: &String| WITHOUT_JOURNAL.iter().any(|(_, known)| flag == known);
    matches!(&record.access, Access::Mount { flags, .. } if flags.iter().any(known))
}

/// Without its journal, the mounted file system would lack the data that was synced last.
pub(super) fn must_be_replayed(id: &VolumeId, fs_type: &str) -> Error {
    let flag = WITHOUT_JOURNAL.iter().find(|(name, _)| *name == fs_type).map_or("noload", |(_, flag)| flag);
    Error::precondition(format!(
        "volume {id} is a copy of a volume in use, or its node failed: the journal of its {fs_type} has to be \
         replayed, and it is attached read-only; publish it for writing once (cephlet volume publish {id} PATH), \
         unpublish it, then publish it for reading. A copy at another site, which cannot be written, is \
         read with the mount flag {flag}, without what was synced last"
    ))
}

/// A tool that makes, checks or grows a file system. It is never interrupted, and outlives the daemon even if
/// the daemon's whole cgroup is ended. It begins only if the device still is the volume's.
fn tool_on(tool: Tool, device: &BlockDevice, overwrites: Overwrites) -> Cmd {
    let sparse_file = device.sparse_file.clone().map(Into::into);
    let guard = ToolGuard { device: device.backing.clone(), sparse_file, overwrites };
    Cmd::new(tool, Class::Unbounded).outliving().guarded(guard.to_bytes())
}

/// If a tool ran to its end and failed, the volume is the cause. If it did not, the error keeps its kind: the
/// tool may still be running, and callers that joined the call have to ask again.
fn ended_badly(error: Error) -> Error {
    if error.kind() == Kind::Internal { error.with_kind(Kind::Precondition) } else { error }
}
