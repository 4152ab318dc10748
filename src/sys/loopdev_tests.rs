//! Tests of loop devices, on the machine's own kernel.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::sys::flock::FileLock;
use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};

fn is_locked(image: &Path) -> bool {
    FileLock::try_exclusive(File::open(image).unwrap()).unwrap().is_none()
}

#[test]
fn the_structs_are_the_kernels() {
    assert_eq!(size_of::<LoopInfo>(), 232);
    assert_eq!(size_of::<LoopConfig>(), 304);
}

#[test]
fn an_image_is_attached_once_and_found() {
    let image = LoopImage::new(4 << 20);
    assert_eq!(attach(image.file(), false).unwrap(), *image.attached());
    assert_eq!(find(image.file()).unwrap().as_ref(), Some(image.attached()));
    assert!(
        attached().unwrap().iter().any(|(device, file)| device == image.device() && file == image.file())
    );
}

#[test]
fn the_lock_stays_with_the_device_and_goes_with_it() {
    let image = LoopImage::new(4 << 20);
    assert!(is_locked(image.file()), "attached, and no descriptor of ours is open");
    assert_eq!(detach(image.attached()).unwrap(), Detached::Gone);
    // Waits until the image is unlocked: children that other tests fork hold the lock until their exec.
    File::open(image.file()).unwrap().lock().unwrap();
    assert_eq!(detach(image.attached()).unwrap(), Detached::Gone, "again");
}

#[test]
fn a_locked_image_is_not_attached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, [0; 4096]).unwrap();
    let _lock = FileLock::try_exclusive(File::open(&path).unwrap()).unwrap().unwrap();
    assert_eq!(attach(&path, false).unwrap_err().raw_os_error(), Some(libc::EWOULDBLOCK));
    assert!(find(&path).unwrap().is_none());
}

#[test]
fn an_image_of_the_same_name_elsewhere_is_another() {
    let image = LoopImage::new(4 << 20);
    let other = LoopImage::new(4 << 20);
    assert_eq!(image.file().file_name(), other.file().file_name());
    assert_ne!(image.device(), other.device());
    assert_eq!(find(other.file()).unwrap().unwrap().path, other.device());
}

#[test]
fn an_image_whose_name_is_gone_or_taken_is_told_apart() {
    let image = LoopImage::new(4 << 20);
    fs::remove_file(image.file()).unwrap();
    assert_eq!(find(image.file()).unwrap().as_ref(), Some(image.attached()), "found under the name it had");
    fs::write(image.file(), [0; 4096]).unwrap();
    assert!(find(image.file()).unwrap().is_none(), "the new file is not the attached one");
}

#[test]
fn a_mounted_device_is_detached_only_when_unused() {
    in_private_mounts(|dir| {
        let image = LoopImage::new(16 << 20);
        mkfs("ext4", image.device());
        let mount = image.mount("ext4", dir);
        assert_eq!(detach(image.attached()).unwrap(), Detached::WhenUnused);
        assert!(is_locked(image.file()));
        drop(mount);
        assert_eq!(detach(image.attached()).unwrap(), Detached::Gone);
    });
}

#[test]
fn a_device_that_stands_on_another_file_is_left_alone() {
    let image = LoopImage::new(4 << 20);
    let stale = LoopDevice { backing: Inode { device: 1, number: 1 }, ..image.attached().clone() };
    assert_eq!(detach(&stale).unwrap(), Detached::Gone);
    assert!(find(image.file()).unwrap().is_some());
}

#[test]
fn read_only_is_kept_and_not_widened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, [0; 4096]).unwrap();
    let device = attach(&path, true).unwrap();
    let wider = attach(&path, false);
    let again = attach(&path, true);
    detach(&device).unwrap();
    assert!(device.read_only);
    assert_eq!(wider.unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert_eq!(again.unwrap(), device);
}

#[test]
fn a_device_follows_its_image() {
    let image = LoopImage::new(4 << 20);
    File::options().write(true).open(image.file()).unwrap().set_len(8 << 20).unwrap();
    set_capacity(image.device()).unwrap();
    assert_eq!(block::size(&block::open(image.device()).unwrap()).unwrap(), 8 << 20);
}

#[test]
fn direct_io_is_on_where_the_file_system_has_it() {
    let image = LoopImage::new(4 << 20);
    let info = status(&block::open(image.device()).unwrap()).unwrap();
    assert_ne!(
        info.flags & LO_FLAGS_DIRECT_IO,
        0,
        "the scratch directory is on a file system with direct I/O"
    );
}

#[test]
fn a_missing_image_is_an_error_and_a_missing_node_another() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("none");
    assert_eq!(attach(&missing, false).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert_eq!(open_node(&missing, OFlags::RDWR).unwrap_err().raw_os_error(), Some(libc::ENODEV));
}
