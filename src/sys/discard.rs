//! Whether a loop device passes discards on to its file, as holes: queue/discard_max_bytes in sysfs.
//!
//! The setting belongs to the number of the device. Linux 6.1 resets it when the device is detached. Linux
//! 6.18 keeps it for the next user of the number and accepts no value but 0: only removing and adding the
//! device (LOOP_CTL_REMOVE, LOOP_CTL_ADD) resets it. No process may have the device open then.

#![expect(unsafe_code, reason = "rustix has no safe call for it")]

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::io::Errno;
use rustix::ioctl::{IntegerSetter, Opcode, ioctl};

use super::changing;
use super::loopdev::{CONTROL, LOOK_AGAIN, backing_file};

const LOOP_CTL_ADD: Opcode = 0x4C80;
const LOOP_CTL_REMOVE: Opcode = 0x4C81;

/// How many times to try a device that was just detached: udev may have it open.
pub const PATIENTLY: usize = 50;
/// How many times to try any other device.
pub const ONCE: usize = 1;

/// Makes a loop device refuse discards until it is detached.
///
/// # Errors
/// Those of writing to sysfs: EROFS, ENOENT when the device is gone.
pub fn refuse(device: &Path) -> io::Result<()> {
    if is_refused(device) {
        return Ok(());
    }
    changing("turn discard off", || fs::write(setting(device, "discard_max_bytes"), "0"))
}

/// Whether a loop device refuses discards.
pub fn is_refused(device: &Path) -> bool {
    read(device, "discard_max_bytes") == Some(0)
}

/// All loop devices without a file.
fn unattached() -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = Path::new("/dev").join(entry?.file_name());
        if number_of(&device).is_some() && is_unattached(&device)? {
            found.push(device);
        }
    }
    Ok(found)
}

fn is_unattached(device: &Path) -> io::Result<bool> {
    backing_file(device.file_name().unwrap_or_default()).map(|file| file.is_none())
}

fn number_of(device: &Path) -> Option<usize> {
    let name = std::str::from_utf8(device.file_name()?.as_bytes()).ok()?;
    name.strip_prefix("loop")?.parse().ok()
}

/// Makes unattached devices pass discards on again. A device that cannot be reset now is reset next time.
///
/// # Errors
/// Those of reading sysfs.
pub fn restore_unused(tries: usize) -> io::Result<()> {
    for device in unattached()? {
        // A device that was never attached has a driver's limit of 0, and its 0 does not mean refusal.
        if is_refused(&device) && read(&device, "discard_max_hw_bytes").is_some_and(|limit| limit > 0) {
            renew(&device, tries)?;
        }
    }
    Ok(())
}

fn renew(device: &Path, tries: usize) -> io::Result<()> {
    let Some(number) = number_of(device) else { return Ok(()) };
    let control = fs::File::options().read(true).write(true).open(CONTROL)?;
    for attempt in 0..tries {
        if attempt > 0 {
            thread::sleep(LOOK_AGAIN);
        }
        // SAFETY: the ioctl takes a number and writes no memory of ours.
        match changing("remove loop device", || unsafe {
            ioctl(&control, IntegerSetter::<LOOP_CTL_REMOVE>::new_usize(number))
        }) {
            Err(Errno::BUSY) if is_unattached(device)? => {}
            Err(_) => return Ok(()),
            Ok(()) => break,
        }
    }
    // SAFETY: as above. EEXIST means that it was never removed, or that somebody else has added it.
    let added = changing("add loop device", || unsafe {
        ioctl(&control, IntegerSetter::<LOOP_CTL_ADD>::new_usize(number))
    });
    match added {
        Err(Errno::EXIST) => Ok(()),
        added => Ok(added?),
    }
}

fn read(device: &Path, what: &str) -> Option<u64> {
    fs::read_to_string(setting(device, what)).ok()?.trim().parse().ok()
}

fn setting(device: &Path, what: &str) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("queue").join(what)
}
