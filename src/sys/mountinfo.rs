//! The kernel's table of mounts: /proc/self/mountinfo, proc_pid_mountinfo(5).
//!
//! Paths are bytes, as the kernel gave them. This module touches no mounted file system, so it cannot hang on
//! a dead one.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::block::{Device, DeviceNumber};

/// The table of the calling thread's own mount namespace. (Since 5.8 a reader misses no mount while others
/// unmount.)
const TABLE: &str = "/proc/thread-self/mountinfo";

/// One mount. The field numbers are those of the man page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// (1) Its number, reused after an unmount.
    pub id: u64,
    /// (2) The mount it is mounted on.
    pub parent: u64,
    /// (3) `st_dev` of its files; for btrfs and network file systems not a device's number.
    pub device: DeviceNumber,
    /// (4) The mounted part of the file system: `/`, or for a bind the directory or file.
    pub root: PathBuf,
    /// (5) The mount point.
    pub mount_point: PathBuf,
    /// (6) Options of this mount alone: `ro,nosuid,relatime`.
    pub options: String,
    /// (7) Whether other mount namespaces get what is mounted below it: mount_namespaces(7), "MS_SHARED".
    pub is_shared: bool,
    /// (9) `ext4`, `ceph`, `fuse.ceph-fuse`.
    pub fs_type: String,
    /// (10) The device, or another source that the file system defines.
    pub source: OsString,
    /// (11) Options of the file system, common to all its mounts.
    pub super_options: String,
}

impl Mount {
    /// Whether nothing can be written through this mount.
    pub fn is_read_only(&self) -> bool {
        has_word(&self.options, "ro") || self.is_file_system_read_only()
    }

    /// Whether nothing can be written to the file system through any mount.
    pub fn is_file_system_read_only(&self) -> bool {
        self.has_super_option("ro")
    }

    /// Whether it is one of CephFS, by the kernel's client or by ceph-fuse.
    pub fn is_ceph(&self) -> bool {
        ["ceph", "fuse.ceph-fuse"].contains(&self.fs_type.as_str())
    }

    /// The path in a CephFS file system that is mounted: the source is `MONITORS:PATH`, and for ceph-fuse
    /// `ceph-fuse:PATH` where cephlet has started it.
    pub fn ceph_path(&self) -> Option<&str> {
        let source = self.source.to_str().filter(|_| self.is_ceph())?;
        Some(&source[source.find(":/")? + 1..])
    }

    /// Whether the file system has this option, a whole word with its value.
    pub fn has_super_option(&self, option: &str) -> bool {
        has_word(&self.super_options, option)
    }
}

fn has_word(options: &str, wanted: &str) -> bool {
    options.split(',').any(|word| word == wanted)
}

/// A snapshot of the table.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// Reads the table.
    ///
    /// # Errors
    /// Those of reading /proc; InvalidData for a line that cannot be understood.
    pub fn read() -> io::Result<Self> {
        Self::parse(&fs::read(TABLE)?)
    }

    /// Parses a table.
    ///
    /// # Errors
    /// InvalidData, with the line.
    pub fn parse(table: &[u8]) -> io::Result<Self> {
        let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let parsed = lines.map(|line| {
            parse_line(line).ok_or_else(|| {
                let line = String::from_utf8_lossy(line);
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{TABLE} has a line that cannot be understood: {line}"),
                )
            })
        });
        parsed.collect::<io::Result<Vec<_>>>().map(Self)
    }

    /// The mount that is reached under exactly this path, which must be absolute and without symbolic links.
    pub fn find_at(&self, path: &Path) -> Option<&Mount> {
        self.at(path).find(|mount| self.is_visible(mount))
    }

    /// The mount that an absolute path without symbolic links is on.
    pub fn under(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.find_at(above))
    }

    /// All mounts at exactly this path, also covered ones: their number of unmounts frees it.
    pub fn at<'a>(&'a self, path: &Path) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| mount.mount_point == path)
    }

    /// The mount points directly in a directory.
    pub fn within<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = &'a Path> {
        let points = self.0.iter().map(|mount| mount.mount_point.as_path());
        points.filter(move |point| point.parent() == Some(directory))
    }

    /// Every mount that keeps `device` in use: file systems on it, their binds, and binds of its node (block
    /// volumes).
    pub fn of_device<'a>(&'a self, device: &Device) -> impl Iterator<Item = &'a Mount> {
        self.0.iter().filter(move |mount| {
            let holds_it = mount.device == device.number || mount.source == device.path;
            holds_it || (mount.device == device.node_on && mount.root.file_name() == device.path.file_name())
        })
    }

    /// All mounts of a file system, by the `st_dev` of its files.
    pub fn of_file_system(&self, device: DeviceNumber) -> impl Iterator<Item = &Mount> {
        self.0.iter().filter(move |mount| mount.device == device)
    }

    /// Whether no mount is stacked on this one, and no mount further up covers it or one of its parents.
    fn is_visible(&self, mount: &Mount) -> bool {
        let stacked_over = |other: &Mount| other.parent == mount.id && other.mount_point == mount.mount_point;
        if self.0.iter().any(|other| other.id != mount.id && stacked_over(other)) {
            return false;
        }
        let mut current = mount;
        // A chain of parents is no longer than the table. The bound also copes with an inconsistent table.
        for _ in 0..self.0.len() {
            if self.is_covered(current) {
                return false;
            }
            match self.0.iter().find(|parent| parent.id == current.parent && parent.id != current.id) {
                Some(parent) => current = parent,
                None => break,
            }
        }
        true
    }

    /// Whether a sibling is mounted on a directory above: path lookup enters the sibling first.
    fn is_covered(&self, mount: &Mount) -> bool {
        self.0.iter().any(|other| {
            other.parent == mount.parent
                && other.id != mount.id
                && other.id != other.parent
                && mount.mount_point != other.mount_point
                && mount.mount_point.starts_with(&other.mount_point)
        })
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    Some(Mount {
        id: number(fields.next()?)?,
        parent: number(fields.next()?)?,
        device: DeviceNumber::parse(std::str::from_utf8(fields.next()?).ok()?)?,
        root: path(fields.next()?),
        mount_point: path(fields.next()?),
        options: text(fields.next()?),
        // Optional fields, none or many, end with a lone hyphen.
        is_shared: {
            let optional = fields.by_ref().take_while(|field| *field != b"-");
            optional.filter(|field| field.starts_with(b"shared:")).count() > 0
        },
        fs_type: text(fields.next()?),
        // The source may be empty. Spaces in the super options are escaped.
        source: OsString::from_vec(unescape(fields.next()?)),
        super_options: text(fields.next()?),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

/// Options and types are ASCII, except for text of the mounting process. They are only compared with ASCII
/// words.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// The kernel writes space, tab, newline, backslash and sometimes `#` as a backslash and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn parse(table: &str) -> Mounts {
        Mounts::parse(table.as_bytes()).unwrap()
    }

    #[test]
    fn every_field_has_its_place() {
        let mounts = parse(
            "36 35 98:5 /mnt1 /mnt2 rw,noatime shared:7 master:1 - fuse.ceph-fuse ceph-fuse ro,allow_other\n",
        );
        let mount = mounts.0.first().unwrap();
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.device, DeviceNumber { major: 98, minor: 5 });
        assert_eq!(
            (mount.root.as_path(), mount.mount_point.as_path()),
            (Path::new("/mnt1"), Path::new("/mnt2"))
        );
        assert_eq!(
            (mount.fs_type.as_str(), mount.source.as_os_str()),
            ("fuse.ceph-fuse", OsStr::new("ceph-fuse"))
        );
        assert!(mount.is_shared);
        assert!(mount.is_read_only(), "the file system is read-only though the mount is not");
    }

    #[test]
    fn a_path_is_on_the_mount_that_is_seen_nearest_above_it() {
        let table =
            "1 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n2 1 8:2 / /srv rw master:1 - ext4 /dev/sda2 rw\n";
        let mounts = parse(table);
        let is_shared = |path: &str| mounts.under(Path::new(path)).unwrap().is_shared;
        assert!(is_shared("/") && is_shared("/srv2/a") && !is_shared("/srv") && !is_shared("/srv/a/b"));
    }

    #[test]
    fn escapes_and_bytes_that_are_no_utf8_survive() {
        let table = b"1 1 8:1 / /a\\040b\\134\\012\\011\xff rw - ext4 /dev/sda\\0401 rw\n";
        let mounts = Mounts::parse(table).unwrap();
        let mount = mounts.0.first().unwrap();
        assert_eq!(mount.mount_point.as_os_str().as_bytes(), b"/a b\\\n\t\xff");
        assert_eq!(mount.source, "/dev/sda 1");
    }

    #[test]
    fn a_lone_backslash_is_itself() {
        assert_eq!(unescape(b"a\\9\\04"), b"a\\9\\04");
    }

    #[test]
    fn an_empty_source_is_a_field() {
        assert_eq!(parse("1 1 0:1 / /a rw - tmpfs  rw\n").0.first().unwrap().source, "");
    }

    #[test]
    fn a_broken_line_is_an_error_with_the_line() {
        let error = Mounts::parse(b"1 1 8:1 / /a rw ext4 /dev/sda rw\n").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("/dev/sda"), "{error}");
    }

    #[test]
    fn the_topmost_of_a_stack_is_found_whatever_the_order() {
        let mounts = parse(
            "9 8 8:9 / /a rw - ext4 top rw\n1 0 8:1 / / rw - ext4 root rw\n8 1 8:8 / /a rw - ext4 below rw\n",
        );
        assert_eq!(mounts.find_at(Path::new("/a")).unwrap().source, "top");
        assert_eq!(mounts.at(Path::new("/a")).count(), 2);
        assert!(mounts.find_at(Path::new("/a/")).is_some(), "a trailing slash is the same path");
        assert!(mounts.find_at(Path::new("/ab")).is_none());
    }

    #[test]
    fn a_mount_hidden_by_a_later_one_further_up_is_not_found() {
        let mounts = parse(
            "1 0 8:1 / / rw - ext4 root rw\n2 1 8:2 / /a/b rw - ext4 hidden rw\n3 1 8:3 / /a rw - ext4 cover \
             rw\n",
        );
        assert!(mounts.find_at(Path::new("/a/b")).is_none());
        assert_eq!(mounts.find_at(Path::new("/a")).unwrap().source, "cover");
    }

    #[test]
    fn a_mount_on_a_stacked_mount_is_hidden_only_below_the_stack() {
        let mounts = parse(
            "1 0 8:1 / / rw - ext4 root rw\n2 1 8:2 / /a rw - ext4 low rw\n3 2 8:3 / /a/b rw - ext4 old rw\n\
             4 2 8:4 / /a rw - ext4 high rw\n5 4 8:5 / /a/b rw - ext4 new rw\n",
        );
        assert_eq!(mounts.find_at(Path::new("/a/b")).unwrap().source, "new");
    }

    #[test]
    fn uses_of_a_device_are_its_file_system_its_binds_and_its_node() {
        let device = Device {
            path: PathBuf::from("/dev/loop3"),
            number: DeviceNumber { major: 7, minor: 3 },
            node_on: DeviceNumber { major: 0, minor: 6 },
        };
        let mounts = parse(
            "1 0 7:3 / /a rw - ext4 /dev/loop3 rw\n2 0 7:3 /sub /b rw - ext4 /dev/loop3 rw\n3 0 0:6 /loop3 \
             /c rw - devtmpfs devtmpfs rw\n\
             4 0 0:6 / /dev rw - devtmpfs devtmpfs rw\n5 0 0:44 / /d rw - btrfs /dev/loop3 rw\n6 0 7:4 / /e \
             rw - ext4 /dev/loop4 rw\n",
        );
        let ids: Vec<u64> = mounts.of_device(&device).map(|mount| mount.id).collect();
        assert_eq!(ids, [1, 2, 3, 5]);
    }

    #[test]
    fn the_machines_own_table_can_be_read() {
        assert!(Mounts::read().unwrap().find_at(Path::new("/proc")).is_some());
    }
}
