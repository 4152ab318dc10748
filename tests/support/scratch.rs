//! A directory for one test, with all mounts in it and all devices of its files. Nothing of it outlives the
//! test.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use tempfile::TempDir;

use super::machine::{limited, loops_below, mounts_below, run, text};
use super::{MIB, PATIENCE};

/// A scratch directory that cleans up after a daemon that was killed.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(tempfile::Builder::new().prefix("cl-").tempdir().expect("a scratch directory"))
    }

    /// A directory in memory: a killed process loses nothing that it wrote, and syncing costs nothing.
    pub fn in_memory() -> Self {
        let memory = std::env::var_os("MEMORY_DIR").unwrap_or_else(|| "/dev/shm".into());
        Self(tempfile::Builder::new().prefix("cl-").tempdir_in(memory).expect("a scratch directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a directory.
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).expect("make a directory");
        path
    }

    /// Writes a file as editors do: another one takes its name.
    pub fn replace(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path("new"), text).expect("write a file");
        fs::rename(self.path("new"), self.path(name)).expect("give it its name");
        self.path(name)
    }

    /// An XFS whose files can share blocks, at `name`.
    pub fn reflink_xfs(&self, name: &str) -> PathBuf {
        self.mount_new(name, 512 * MIB, "mkfs.xfs", &["-q", "-m", "reflink=1"])
    }

    /// A file system without shared blocks, `mib` MiB large, at `name`.
    pub fn small_ext4(&self, name: &str, mib: i64) -> PathBuf {
        self.mount_new(name, mib * MIB, "mkfs.ext4", &["-q", "-m", "0"])
    }

    /// A file system of this type, `mib` MiB large, at `name`.
    pub fn small_disk(&self, name: &str, fs_type: &str, mib: i64) -> PathBuf {
        match fs_type {
            "ext4" => self.small_ext4(name, mib),
            "tmpfs" => {
                let at = self.dir(name);
                run("mount", &["-t", "tmpfs", "-o", &format!("size={mib}m"), "tmpfs", text(&at)]);
                at
            }
            other => self.mount_new(name, mib * MIB, &format!("mkfs.{other}"), &["-q"]),
        }
    }

    fn mount_new(&self, name: &str, size: i64, mkfs: &str, options: &[&str]) -> PathBuf {
        let (file, at) = (self.path(&format!("{name}.disk")), self.dir(name));
        make_file(&file, size);
        run(mkfs, &[options, &[text(&file)]].concat());
        run("mount", &["-o", "loop", text(&file), text(&at)]);
        at
    }
}

/// Makes a sparse file.
pub fn make_file(path: &Path, size: i64) {
    let file = fs::File::create(path).expect("make a file");
    file.set_len(size.try_into().expect("a positive size")).expect("set its length");
}

/// Fills the file system at `directory` to the last byte; gives the file that does.
pub fn fill_up(directory: &Path) -> PathBuf {
    let path = directory.join("ballast");
    let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).expect("a file");
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
    // Blocks that a file system has only reserved so far must not become free again.
    let _ = file.sync_all();
    path
}

/// Writes `bytes` into a file at an offset, past all caches of this process.
pub fn poke(path: &Path, offset: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).expect("open the file");
    file.write_all_at(bytes, offset).expect("write into it");
    file.sync_all().expect("sync it");
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A loop device in use is detached by the kernel as soon as its last user is gone.
        let loops = loops_below(self.0.path());
        for (device, _) in &loops {
            let _ = limited(PATIENCE, "losetup").arg("-d").arg(device).output();
        }
        for mount in mounts_below(self.0.path()).iter().rev() {
            let _ = unmount(&mount.point, UnmountFlags::DETACH);
        }
    }
}
