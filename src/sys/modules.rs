//! Modules that the running kernel could load.

use std::fs;
use std::path::PathBuf;

/// The directory of modules of a kernel.
#[derive(Clone, Debug)]
pub struct Modules {
    directory: PathBuf,
}

impl Default for Modules {
    /// The modules of the running kernel.
    fn default() -> Self {
        Self::at(
            PathBuf::from("/lib/modules").join(rustix::system::uname().release().to_string_lossy().as_ref()),
        )
    }
}

impl Modules {
    /// The modules in this directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// Whether modprobe(8) finds a module of this name. A driver that is built into the kernel is no module.
    pub fn has(&self, name: &str) -> bool {
        let list = fs::read_to_string(self.directory.join("modules.dep")).unwrap_or_default();
        let mut files = list.lines().filter_map(|line| line.split(':').next()?.rsplit('/').next());
        // `rbd.ko`, or `rbd.ko.xz`
        let is_it =
            |file: &str| file.strip_prefix(name).is_some_and(|end| end == ".ko" || end.starts_with(".ko."));
        files.any(is_it)
    }
}

/// Whether the kernel knows a file system of this name now (proc_filesystems(5)).
pub fn knows_file_system(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|line| line.split_whitespace().last() == Some(name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_found_by_their_whole_name() {
        let dir = tempfile::tempdir().unwrap();
        let modules = Modules::at(dir.path());
        assert!(!modules.has("rbd"));
        let list = "kernel/drivers/block/drbd/drbd.ko.xz: \
                    kernel/lib/libcrc32c.ko.xz\nkernel/drivers/block/nbd.ko:\n\
                    kernel/drivers/block/rbd.ko.xz: kernel/net/ceph/libceph.ko.xz kernel/lib/ice.ko.xz\n";
        fs::write(dir.path().join("modules.dep"), list).unwrap();
        assert!(modules.has("rbd") && modules.has("nbd") && modules.has("drbd"));
        assert!(!modules.has("bd") && !modules.has("rb") && !modules.has("ice"));
    }
}
