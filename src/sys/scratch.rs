//! What the root tests share: images, loop devices and mounts that go away with the test, even when it fails.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::loopdev::{self, LoopDevice};
use super::{mount, unseen};

/// Runs `test` on a thread with a mount namespace of its own and a scratch directory: the host never sees its
/// mounts, and those that are left go with the thread.
pub(crate) fn in_private_mounts(test: impl FnOnce(&Path) + Send) {
    let run = || {
        let_go_of_others();
        let dir = TempDir::new().unwrap();
        test(dir.path());
    };
    unseen::in_own_namespace(run).expect("root may unshare");
}

/// The new namespace has copies of other tests' mounts, which would keep their devices in use.
fn let_go_of_others() {
    let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    for line in table.lines().rev().filter(|line| line.contains(" /dev/loop")) {
        // A mount below another one has gone with it.
        let _ = mount::unmount_detached(Path::new(line.split(' ').nth(4).unwrap()));
    }
}

/// A sparse image on a loop device, detached when dropped.
pub(crate) struct LoopImage {
    attached: LoopDevice,
    file: PathBuf,
    _dir: TempDir,
}

impl LoopImage {
    pub(crate) fn new(bytes: u64) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("image");
        File::create_new(&file).unwrap().set_len(bytes).unwrap();
        let attached = loopdev::attach(&file, false).unwrap();
        Self { attached, file, _dir: dir }
    }

    pub(crate) fn attached(&self) -> &LoopDevice {
        &self.attached
    }

    pub(crate) fn device(&self) -> &Path {
        &self.attached.path
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Mounts it on a new directory below `dir`.
    pub(crate) fn mount(&self, fs_type: &str, dir: &Path) -> Mounted {
        let target = TempDir::new_in(dir).unwrap().keep();
        mount::mount(self.device(), &target, fs_type, &mount::Options::parse::<&str>(&[])).unwrap();
        Mounted(target)
    }
}

impl Drop for LoopImage {
    fn drop(&mut self) {
        let _ = loopdev::detach(&self.attached);
    }
}

/// A mount, taken off when dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = mount::unmount_detached(&self.0);
    }
}

/// Makes a file system with its usual settings on a file or device.
pub(crate) fn mkfs(fs_type: &str, on: &Path) {
    let mut command = Command::new(format!("mkfs.{fs_type}"));
    command.args(if fs_type == "ext4" { ["-q", "-F"] } else { ["-q", "-f"] }).arg(on);
    let output = command.output().expect("the tools of the file systems are installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
