//! What the kernel records about a mounted ext4: /sys/fs/ext4 (Documentation/ABI/testing/sysfs-fs-ext4) and
//! /proc/fs/ext4. Reading these files does no I/O.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::block::DeviceNumber;
use super::file::if_there;

/// The function that reports an aborted journal (fs/ext4/ext4_jbd2.c).
const REPORTS_ABORT: &str = "ext4_journal_check_start";

/// The errors that the kernel has recorded in a file system since it was checked last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedErrors {
    /// Their number.
    pub count: u64,
    /// Whether the kernel refuses all writes since one of them. Not every kernel shows this in the table of
    /// mounts (Linux 6.1 does not).
    pub stopped_writes: bool,
}

/// The errors recorded in the ext4 that is mounted from a device; None if the kernel does not show them.
///
/// # Errors
/// Those of reading sysfs, except for a missing file.
pub fn recorded_errors(device: DeviceNumber) -> io::Result<Option<RecordedErrors>> {
    recorded_errors_below(Path::new("/"), device)
}

fn recorded_errors_below(root: &Path, device: DeviceNumber) -> io::Result<Option<RecordedErrors>> {
    let Some(link) = if_there(fs::read_link(root.join(format!("sys/dev/block/{device}"))))? else {
        return Ok(None);
    };
    let name = PathBuf::from(link.file_name().unwrap_or_default());
    let attribute = |file: &str| read(&root.join("sys/fs/ext4").join(&name).join(file));
    let Some(count) = attribute("errors_count")?.and_then(|text| text.trim().parse().ok()) else {
        return Ok(None);
    };
    let aborted = || attribute("last_error_func").map(|it| it.is_some_and(|it| it.trim() == REPORTS_ABORT));
    // Unlike the table of mounts, this file also shows options that the superblock sets by default.
    let options = || read(&root.join("proc/fs/ext4").join(&name).join("options"));
    let stops = || options().map(|it| it.is_some_and(|it| it.lines().any(|it| it == "errors=remount-ro")));
    let stopped_writes = count > 0 && (aborted()? || stops()?);
    Ok(Some(RecordedErrors { count, stopped_writes }))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    if_there(fs::read_to_string(path))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber { major: 251, minor: 0 };

    /// What Linux 6.1 shows of `/dev/rbd0`.
    fn seen(files: &[(&str, &str)]) -> Option<RecordedErrors> {
        let root = tempfile::tempdir().unwrap();
        let path = |file: &str| root.path().join(file);
        fs::create_dir_all(path("sys/dev/block")).unwrap();
        std::os::unix::fs::symlink("../../devices/rbd/0/block/rbd0", path("sys/dev/block/251:0")).unwrap();
        for directory in ["sys/fs/ext4/rbd0", "proc/fs/ext4/rbd0"] {
            fs::create_dir_all(path(directory)).unwrap();
        }
        files.iter().for_each(|(file, text)| fs::write(path(file), text).unwrap());
        recorded_errors_below(root.path(), DEVICE).unwrap()
    }

    #[test]
    fn errors_are_counted_and_stop_writes_by_the_option_or_by_an_aborted_journal() {
        let count = ("sys/fs/ext4/rbd0/errors_count", "2\n");
        let last = |function| ("sys/fs/ext4/rbd0/last_error_func", function);
        let options = |text| ("proc/fs/ext4/rbd0/options", text);
        let errors = |stopped_writes| Some(RecordedErrors { count: 2, stopped_writes });
        let continues = options("rw\nerrors=continue\ncommit=5\n");
        assert_eq!(seen(&[count, last("ext4_lookup\n"), continues]), errors(false));
        assert_eq!(seen(&[count, last("ext4_journal_check_start\n"), continues]), errors(true));
        assert_eq!(seen(&[count, last("ext4_lookup\n"), options("rw\nerrors=remount-ro\n")]), errors(true));
    }

    #[test]
    fn a_checked_file_system_is_sound_whatever_its_last_error_was() {
        let files = [
            ("sys/fs/ext4/rbd0/errors_count", "0\n"),
            ("sys/fs/ext4/rbd0/last_error_func", "ext4_journal_check_start\n"),
            ("proc/fs/ext4/rbd0/options", "rw\nerrors=remount-ro\n"),
        ];
        assert_eq!(seen(&files), Some(RecordedErrors { count: 0, stopped_writes: false }));
        assert_eq!(seen(&[]), None);
    }
}
