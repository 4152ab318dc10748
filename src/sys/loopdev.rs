//! Loop devices: loop(4), linux/loop.h.
//!
//! An attached image carries a shared flock(2), which shows other processes that it is attached. The lock
//! belongs to the open file description that LOOP_CONFIGURE passes to the kernel. The kernel keeps that
//! description as long as the device is attached: the lock outlives the process that attached the image and
//! ends with the detach by any process. So an exclusive lock on the image means that it is attached nowhere
//! and will not be.
//!
//! The sector size is always 512: a file system records the sector size it was made with and cannot be
//! mounted from a device with a larger one. Direct I/O is requested; if the disk below needs larger sectors,
//! the kernel uses the page cache instead.

#![expect(unsafe_code, reason = "rustix has no safe call for it")]

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};
use serde::{Deserialize, Serialize};

use super::{block, changing};

/// The control device of the loop driver; it is there when the driver is.
pub const CONTROL: &str = "/dev/loop-control";

const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_SET_CAPACITY: Opcode = 0x4C07;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

const SECTOR: u32 = 512;

/// How often to try. Each failure means that another process took or remade the free device, and got on.
const TRIES: usize = 64;

/// How often to check that a device is gone, and the pause: udev may have it open, Linux 5.16 takes seconds.
const LOOKS: u32 = 500;
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// `struct loop_info64`. The names, of 64 bytes each, and the key are not used.
#[repr(C)]
#[derive(Default)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u64; 8],
    crypt_name: [u64; 8],
    encrypt_key: [u64; 4],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

impl LoopConfig {
    fn new(image: &File, flags: u32) -> io::Result<Self> {
        let info = LoopInfo { flags, ..LoopInfo::default() };
        let fd = u32::try_from(image.as_raw_fd()).map_err(io::Error::other)?;
        Ok(Self { fd, block_size: SECTOR, info, reserved: [0; 8] })
    }
}

/// LOOP_CTL_GET_FREE: its answer is the return value.
struct GetFree;

// SAFETY: the ioctl takes no argument, writes no memory of ours and returns the number of a device.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut libc::c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut libc::c_void) -> rustix::io::Result<i32> {
        Ok(number)
    }
}

/// An attached device. It records which file it is attached to: device numbers are reused, inodes in use are
/// not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDevice {
    /// `/dev/loopN`.
    pub path: PathBuf,
    /// Whether it refuses writes.
    pub read_only: bool,
    /// Whether the kernel detaches it at its last close. Another file may get its number then.
    pub is_leaving: bool,
    backing: Inode,
}

#[cfg(test)]
impl LoopDevice {
    /// A device that need not exist.
    pub(crate) fn pretended(path: PathBuf, read_only: bool) -> Self {
        Self { path, read_only, is_leaving: false, backing: Inode { device: 0, number: 0 } }
    }
}

impl LoopDevice {
    /// Whether `open` is this device, still attached to its file. It stays attached while `open` is open.
    ///
    /// # Errors
    /// Those of loop(4).
    pub fn is(&self, open: &File) -> io::Result<bool> {
        match status(open) {
            Err(error) if is_gone(&error) => Ok(false),
            info => info.map(|info| Inode { device: info.device, number: info.inode } == self.backing),
        }
    }
}

/// A file, under any name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inode {
    device: u64,
    number: u64,
}

impl Inode {
    fn of(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|file| Self { device: file.dev(), number: file.ino() })
    }
}

/// How a detach ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detached {
    /// The device is no longer attached to the image.
    Gone,
    /// The device is in use (a mount, a holder, an open descriptor): the kernel detaches it when its last
    /// user is gone.
    WhenUnused,
}

/// Attaches `image` to a loop device. An image that is attached already keeps its device.
///
/// # Errors
/// Those of open(2) and loop(4); EWOULDBLOCK when the image is locked exclusively; EROFS when it is attached
/// read-only and is to be written; EBUSY while the kernel is detaching it; ENODEV without loop devices.
pub fn attach(image: &Path, read_only: bool) -> io::Result<LoopDevice> {
    if let Some(device) = find(image)? {
        let refused = |errno| Err(io::Error::from_raw_os_error(errno));
        return match device {
            // A second device beside it would be a second cache of the same file.
            LoopDevice { is_leaving: true, .. } => refused(libc::EBUSY),
            LoopDevice { read_only: true, .. } if !read_only => refused(libc::EROFS),
            device => Ok(device),
        };
    }
    let access = OFlags::CLOEXEC | if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    let file = File::from(rustix::fs::open(image, access, Mode::empty())?);
    // Before LOOP_CONFIGURE: an image is never attached without its lock.
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    let is_lost = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENODEV));
    for _ in 1..TRIES {
        match configure_free(&file, read_only) {
            Err(error) if is_lost(&error) => {}
            result => return result,
        }
    }
    configure_free(&file, read_only)
}

fn configure_free(image: &File, read_only: bool) -> io::Result<LoopDevice> {
    let control = open_node(Path::new(CONTROL), OFlags::RDWR)?;
    // SAFETY: see the implementation of the trait.
    let number = changing("get a free loop device", || unsafe { ioctl(&control, GetFree) })?;
    let path = PathBuf::from(format!("/dev/loop{number}"));
    let device = open_node(&path, if read_only { OFlags::RDONLY } else { OFlags::RDWR })?;
    let flags = if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    match configure(&device, image, flags | LO_FLAGS_DIRECT_IO) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => configure(&device, image, flags)?,
        result => result?,
    }
    as_attached(path, &device)
}

/// Opens a node in /dev. A missing node must not look like a missing image: ENODEV instead of ENOENT.
fn open_node(path: &Path, access: OFlags) -> io::Result<File> {
    match rustix::fs::open(path, access | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT) => Err(Errno::NODEV.into()),
        result => Ok(File::from(result?)),
    }
}

fn configure(device: &File, image: &File, flags: u32) -> io::Result<()> {
    let config = LoopConfig::new(image, flags)?;
    // SAFETY: LOOP_CONFIGURE reads one struct loop_config, which LoopConfig is; the descriptor in it is open.
    changing("attach loop device", || unsafe {
        ioctl(device, Setter::<LOOP_CONFIGURE, LoopConfig>::new(config))
    })?;
    Ok(())
}

fn status(device: &File) -> io::Result<LoopInfo> {
    // SAFETY: LOOP_GET_STATUS64 writes one struct loop_info64, which LoopInfo is.
    Ok(unsafe { ioctl(device, Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }?)
}

fn as_attached(path: PathBuf, device: &File) -> io::Result<LoopDevice> {
    let info = status(device)?;
    let backing = Inode { device: info.device, number: info.inode };
    let has = |flag| info.flags & flag != 0;
    Ok(LoopDevice { path, read_only: has(LO_FLAGS_READ_ONLY), is_leaving: has(LO_FLAGS_AUTOCLEAR), backing })
}

/// The device that `image` is attached to, if any. A device of another visible file is not opened: a process
/// that has a device open keeps others from detaching it.
///
/// A deleted image is still found under its former name.
///
/// # Errors
/// Those of reading sysfs and opening the device.
pub fn find(image: &Path) -> io::Result<Option<LoopDevice>> {
    match Inode::of(image) {
        Ok(inode) => find_existing(image.file_name().unwrap_or_default(), inode),
        Err(error) if error.kind() == io::ErrorKind::NotFound => find_deleted(image),
        Err(error) => Err(error),
    }
}

/// The device of a file that exists. Only devices whose files have the same name are opened.
fn find_existing(name: &OsStr, inode: Inode) -> io::Result<Option<LoopDevice>> {
    for (device, file) in attached()? {
        if file.file_name() != Some(name) && without_deleted(&file).and_then(Path::file_name) != Some(name) {
            continue;
        }
        // A path that leads nowhere here may be one of another mount namespace.
        if Inode::of(&file).is_ok_and(|other| other != inode) {
            continue;
        }
        if let Some(device) = open_attached(&device)?.filter(|it| it.backing == inode) {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

fn find_deleted(image: &Path) -> io::Result<Option<LoopDevice>> {
    let (Some(parent), Some(name)) = (image.parent(), image.file_name()) else { return Ok(None) };
    let image = match fs::canonicalize(parent) {
        Ok(parent) => parent.join(name),
        Err(error) if error.kind() == io::ErrorKind::NotFound => image.to_owned(),
        Err(error) => return Err(error),
    };
    let device = attached()?.into_iter().find(|(_, file)| without_deleted(file) == Some(&image));
    device.map_or(Ok(None), |(device, _)| open_attached(&device))
}

/// Opens a device that was attached a moment ago.
fn open_attached(path: &Path) -> io::Result<Option<LoopDevice>> {
    let device = match block::open(path).and_then(|device| as_attached(path.to_owned(), &device)) {
        Err(error) if is_gone(&error) => return Ok(None),
        result => result?,
    };
    Ok(Some(device))
}

/// All attached devices, each with the path of its file as the kernel shows it: ` (deleted)` follows the path
/// of a deleted file.
///
/// # Errors
/// Those of reading sysfs.
pub fn attached() -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let name = entry?.file_name();
        if name.as_bytes().starts_with(b"loop")
            && let Some(file) = backing_file(&name)?
        {
            found.push((Path::new("/dev").join(&name), file));
        }
    }
    Ok(found)
}

/// The file that the device of this name is attached to, if any.
pub(super) fn backing_file(device: &OsStr) -> io::Result<Option<PathBuf>> {
    match fs::read(Path::new("/sys/block").join(device).join("loop/backing_file")) {
        Ok(mut line) => {
            line.pop_if(|last| *last == b'\n');
            Ok((!line.is_empty()).then(|| PathBuf::from(OsString::from_vec(line))))
        }
        // Attached, to a path that is too long to be shown.
        Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => Ok(Some(PathBuf::new())),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a file that was deleted, as sysfs shows it; None for any other.
pub fn without_deleted(file: &Path) -> Option<&Path> {
    file.as_os_str().as_bytes().strip_suffix(b" (deleted)").map(|path| Path::new(OsStr::from_bytes(path)))
}

/// The device is missing or not attached. sysfs answers ENODEV and EINVAL while the device is removed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV | libc::EINVAL))
}

/// Detaches `device` from its image. A device that is attached to another file by now is left alone.
///
/// LOOP_CLR_FD succeeds on a device in use and only marks it, so the result is checked.
///
/// # Errors
/// Those of open(2) and loop(4).
pub fn detach(device: &LoopDevice) -> io::Result<Detached> {
    if let Err(error) = clear(device)
        && !is_gone(&error)
    {
        return Err(error);
    }
    for look in 0..LOOKS {
        if look > 0 {
            thread::sleep(LOOK_AGAIN);
        }
        if !stands_on_its_image(device)? {
            return Ok(Detached::Gone);
        }
    }
    Ok(Detached::WhenUnused)
}

fn clear(device: &LoopDevice) -> io::Result<()> {
    let open = block::open(&device.path)?;
    if as_attached(device.path.clone(), &open)?.backing != device.backing {
        return Ok(());
    }
    // SAFETY: LOOP_CLR_FD takes no argument.
    changing("detach loop device", || unsafe { ioctl(&open, NoArg::<LOOP_CLR_FD>::new()) })?;
    Ok(())
}

/// Reads sysfs first: an open device cannot be detached.
fn stands_on_its_image(device: &LoopDevice) -> io::Result<bool> {
    if backing_file(device.path.file_name().unwrap_or_default())?.is_none() {
        return Ok(false);
    }
    Ok(open_attached(&device.path)?.is_some_and(|now| now.backing == device.backing))
}

/// Makes `device` as large as its image has become.
///
/// # Errors
/// Those of open(2) and loop(4): ENXIO when it is not attached.
pub fn set_capacity(device: &Path) -> io::Result<()> {
    let device = block::open(device)?;
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    Ok(changing("grow loop device", || unsafe { ioctl(&device, NoArg::<LOOP_SET_CAPACITY>::new()) })?)
}

#[cfg(test)]
#[path = "loopdev_tests.rs"]
mod tests;
