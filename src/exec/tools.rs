//! Which external tools there are, and where they are on this machine.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{CommandError, Why};

/// Where tools are looked for, unless the operator sets other directories.
pub const DIRECTORIES: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// An external program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// `mkfs.ext4`
    MkfsExt4,
    /// `mkfs.xfs`
    MkfsXfs,
    /// `mkfs.btrfs`
    MkfsBtrfs,
    /// `e2fsck`
    E2fsck,
    /// `resize2fs`
    Resize2fs,
    /// `xfs_growfs`
    XfsGrowfs,
    /// `btrfs`
    Btrfs,
    /// `rbd`
    Rbd,
    /// `rados`
    Rados,
    /// `ceph`
    Ceph,
    /// `rbd-nbd`
    RbdNbd,
    /// `ceph-fuse`
    CephFuse,
    /// `modprobe`
    Modprobe,
    /// `systemd-run`
    SystemdRun,
    /// `systemctl`
    Systemctl,
}

/// Every tool in the order of the enum, with the name of its file and of the package that has it in most
/// distributions.
const TOOLS: [(Tool, &str, &str); 15] = [
    (Tool::MkfsExt4, "mkfs.ext4", "e2fsprogs"),
    (Tool::MkfsXfs, "mkfs.xfs", "xfsprogs"),
    (Tool::MkfsBtrfs, "mkfs.btrfs", "btrfs-progs"),
    (Tool::E2fsck, "e2fsck", "e2fsprogs"),
    (Tool::Resize2fs, "resize2fs", "e2fsprogs"),
    (Tool::XfsGrowfs, "xfs_growfs", "xfsprogs"),
    (Tool::Btrfs, "btrfs", "btrfs-progs"),
    (Tool::Rbd, "rbd", "ceph-common"),
    (Tool::Rados, "rados", "ceph-common"),
    (Tool::Ceph, "ceph", "ceph-common"),
    (Tool::RbdNbd, "rbd-nbd", "rbd-nbd"),
    (Tool::CephFuse, "ceph-fuse", "ceph-fuse"),
    (Tool::Modprobe, "modprobe", "kmod"),
    (Tool::SystemdRun, "systemd-run", "systemd"),
    (Tool::Systemctl, "systemctl", "systemd"),
];

impl Tool {
    /// The name of its file.
    pub fn file_name(self) -> &'static str {
        TOOLS[self as usize].1
    }

    /// The package that has it, by the name it bears in most distributions.
    pub fn package(self) -> &'static str {
        TOOLS[self as usize].2
    }
}

/// Absolute paths of the tools, looked up once so that a change of the machine cannot swap them later.
#[derive(Debug)]
pub struct Tools {
    directories: Vec<PathBuf>,
    paths: [Option<PathBuf>; TOOLS.len()],
}

impl Tools {
    /// Looks every tool up in `directories` (those of CEPHLET_TOOL_PATH), or in [`DIRECTORIES`] if there are
    /// none.
    pub fn find(mut directories: Vec<PathBuf>) -> Self {
        if directories.is_empty() {
            directories = DIRECTORIES.iter().map(PathBuf::from).collect();
        }
        let paths = TOOLS.map(|(_, name, _)| find_executable(&directories, name));
        Self { directories, paths }
    }

    /// The path of `tool`.
    ///
    /// # Errors
    /// [`Why::NotFound`] if it was in none of the directories at start.
    pub fn path(&self, tool: Tool) -> Result<&Path, CommandError> {
        let found = self.paths[tool as usize].as_deref();
        let searched = || self.directories.clone();
        found.ok_or_else(|| Why::NotFound { tool, searched: searched() }.of(tool.file_name()))
    }

    /// The directories as a `PATH`, for tools that start others.
    pub(super) fn search_path(&self) -> OsString {
        let directories: Vec<&OsStr> =
            self.directories.iter().map(|directory| directory.as_os_str()).collect();
        directories.join(OsStr::new(":"))
    }
}

fn find_executable(directories: &[PathBuf], name: &str) -> Option<PathBuf> {
    directories.iter().map(|directory| directory.join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.is_absolute()
        && path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::{Error, Kind};
    use std::fs;

    #[test]
    fn the_first_executable_file_wins() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(first.path().join("e2fsck"), "not executable").unwrap();
        fs::create_dir(first.path().join("btrfs")).unwrap();
        for name in ["e2fsck", "btrfs"] {
            fs::write(second.path().join(name), "").unwrap();
            fs::set_permissions(second.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let tools = Tools::find(vec![first.path().into(), second.path().into()]);
        assert_eq!(tools.path(Tool::E2fsck).unwrap(), second.path().join("e2fsck"));
        assert_eq!(tools.path(Tool::Btrfs).unwrap(), second.path().join("btrfs"));
    }

    #[test]
    fn a_missing_tool_names_its_package_and_the_places() {
        let tools = Tools::find(vec!["/nowhere/sbin".into(), "/nowhere/bin".into()]);
        let error = Error::from(tools.path(Tool::MkfsXfs).unwrap_err());
        assert_eq!(error.kind(), Kind::Precondition);
        assert_eq!(
            error.message(),
            "mkfs.xfs was not found in /nowhere/sbin, /nowhere/bin: install xfsprogs, or set \
             CEPHLET_TOOL_PATH, and restart cephlet"
        );
    }

    #[test]
    fn without_directories_the_fixed_list_is_searched() {
        let tools = Tools::find(Vec::new());
        assert_eq!(tools.search_path(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    }

    #[test]
    fn tools_stand_at_their_own_place() {
        for (place, (tool, ..)) in TOOLS.into_iter().enumerate() {
            assert_eq!(tool as usize, place);
        }
    }
}
