//! Who owns the files of a volume: chown(2), chmod(2). They can wait for storage: only for helpers.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Uid, chmod, chownat, fchmod, fchown,
    fstat, open, openat, openat2,
};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use super::{changing, file};

/// The permissions that every formatter gives the root of its file system. Its owner is root.
const MADE_WITH: u32 = 0o755;

/// Bits that a shared directory has: new files in it belong to its group, and the group may write.
const SHARED_DIRECTORY: u32 = 0o2070;

/// Bits that any other shared file has.
const SHARED_FILE: u32 = 0o060;

/// The owner and the permissions for the root of a new file system; None leaves what the formatter made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// The permissions, with the bits for set-user-id, set-group-id and sticky.
    pub mode: Option<u32>,
}

/// A group that is to write to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The group.
    pub gid: u32,
    /// Whether it gets everything below the root, too.
    pub recursive: bool,
}

impl Owner {
    /// Whether nothing is asked for.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a root with these attributes is as its formatter made it. The permissions are set before the
    /// owner is, so a crash in between leaves a root that counts as untouched.
    fn is_untouched(&self, root: &Stat) -> bool {
        let mode = root.st_mode & 0o7777;
        (root.st_uid, root.st_gid) == (0, 0) && (mode == MADE_WITH || Some(mode) == self.mode)
    }
}

/// The number of a user or group, if it is one. The largest number means "no change" to chown(2).
pub fn parse_id(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number != u32::MAX)
}

/// Permissions as chmod(1) takes them in octal, with three or four digits.
pub fn parse_mode(text: &str) -> Option<u32> {
    let is_octal = (3..=4).contains(&text.len()) && text.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    u32::from_str_radix(text, 8).ok().filter(|_| is_octal)
}

/// Gives the root of a file system to its owner, as long as the root is as its formatter made it: empty, of
/// root, 0755. The root itself shows whether it was given away, so a crash at any moment, on any node, leaves
/// nothing half done. Durable when Ok.
///
/// # Errors
/// Those of open(2), getdents(2), fchmod(2), fchown(2) and fsync(2).
pub fn give(root: &Path, owner: &Owner) -> io::Result<()> {
    let directory = open_root(root)?;
    if !owner.is_untouched(&fstat(&directory)?) || !is_empty(&directory)? {
        return Ok(());
    }
    if let Some(mode) = owner.mode {
        changing("set mode", || fchmod(&directory, Mode::from_raw_mode(mode)))?;
    }
    if owner.uid.is_some() || owner.gid.is_some() {
        let (uid, gid) = (owner.uid.map(Uid::from_raw), owner.gid.map(Gid::from_raw));
        changing("set owner", || fchown(&directory, uid, gid))?;
    }
    file::sync_dir(root)
}

/// Lets a group write to a file system: its root belongs to the group and has set-group-id. What has the
/// group already is left alone, so a walk that was broken off can be repeated. A walk follows no symbolic
/// links and enters no other mounts.
///
/// # Errors
/// Those of open(2), getdents(2), openat2(2), chown(2) and chmod(2).
pub fn share(root: &Path, sharing: Sharing) -> io::Result<()> {
    let directory = open_root(root)?;
    if sharing.recursive {
        allow_descriptors()?;
        share_below(&directory, sharing.gid)?;
    }
    Ok(share_one(&directory, &fstat(&directory)?, sharing.gid)?)
}

/// Raises the number of descriptors that this process may have open to what its service manager allows. A
/// walk keeps three open for each directory above the present one.
fn allow_descriptors() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    Ok(open(root, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
}

/// Whether there is nothing but what mkfs.ext4 makes.
fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    let usual: [&CStr; 3] = [c".", c"..", c"lost+found"];
    for entry in Dir::read_from(directory)? {
        if !usual.contains(&entry?.file_name()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Shares everything below a directory. A file that vanishes meanwhile is passed over.
fn share_below(directory: &OwnedFd, gid: u32) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let node = match openat2(directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            Err(Errno::NOENT | Errno::XDEV) => continue,
            node => node?,
        };
        let found = fstat(&node)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            let below = openat(&node, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            share_below(&below, gid)?;
        }
        share_one(&node, &found, gid)?;
    }
    Ok(())
}

/// A change of the group takes set-user-id from a program, so the permissions are set afterwards.
fn share_one(node: &OwnedFd, found: &Stat, gid: u32) -> rustix::io::Result<()> {
    let is_new = found.st_gid != gid;
    if is_new {
        changing("set group", || chownat(node, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH))?;
    }
    let shared = match FileType::from_raw_mode(found.st_mode) {
        FileType::Symlink => return Ok(()),
        FileType::Directory => SHARED_DIRECTORY,
        _ => SHARED_FILE,
    };
    let (mode, wanted) = (found.st_mode & 0o7777, (found.st_mode & 0o7777) | shared);
    if is_new || mode != wanted {
        // A descriptor that was opened for its path alone takes no fchmod(2).
        let path = format!("/proc/self/fd/{}", node.as_fd().as_raw_fd());
        changing("set mode", || chmod(path, Mode::from_raw_mode(wanted)))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;
    use crate::sys::mount::{Options, bind, mount};
    use crate::sys::scratch::{LoopImage, in_private_mounts, mkfs};

    fn at(path: &Path) -> (u32, u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.gid(), found.mode() & 0o7777)
    }

    fn owner(uid: u32, gid: u32, mode: u32) -> Owner {
        Owner { uid: Some(uid), gid: Some(gid), mode: Some(mode) }
    }

    #[test]
    fn numbers_and_permissions_are_plain() {
        assert_eq!(
            (parse_id("0"), parse_id("65534"), parse_id("4294967294")),
            (Some(0), Some(65534), Some(u32::MAX - 1))
        );
        for wrong in ["", "-1", "+5", "4294967295", "4294967296", "nobody", "0x10", " 1"] {
            assert_eq!(parse_id(wrong), None, "{wrong:?}");
        }
        assert_eq!(
            (parse_mode("0770"), parse_mode("755"), parse_mode("2775")),
            (Some(0o770), Some(0o755), Some(0o2775))
        );
        for wrong in ["", "77", "00770", "778", "+77", "rwx", "u=r"] {
            assert_eq!(parse_mode(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_root_of_every_new_file_system_is_given_away_once() {
        in_private_mounts(|dir| {
            for (fs_type, mib) in [("ext4", 16), ("xfs", 320), ("btrfs", 128)] {
                let image = LoopImage::new(mib << 20);
                mkfs(fs_type, image.device());
                let mounted = image.mount(fs_type, dir);
                give(mounted.path(), &owner(65534, 100, 0o2770)).unwrap();
                assert_eq!(at(mounted.path()), (65534, 100, 0o2770), "{fs_type}");
                give(mounted.path(), &owner(7, 7, 0o700)).unwrap();
                assert_eq!(at(mounted.path()), (65534, 100, 0o2770), "{fs_type}: it is given away");
            }
        });
    }

    #[test]
    fn a_root_that_is_in_use_is_not_given_away() {
        in_private_mounts(|dir| {
            let scratch = |name: &str, mode: u32| {
                let root = dir.join(name);
                fs::create_dir(&root).unwrap();
                fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
                root
            };
            let full = scratch("full", 0o755);
            fs::write(full.join("file"), "").unwrap();
            let closed = scratch("closed", 0o700);
            for root in [&full, &closed] {
                let before = at(root);
                give(root, &owner(1, 1, 0o777)).unwrap();
                assert_eq!(at(root), before, "UNSAFE: {}", root.display());
            }
            let broken_off = scratch("broken-off", 0o2770);
            give(&broken_off, &owner(1, 2, 0o2770)).unwrap();
            assert_eq!(at(&broken_off), (1, 2, 0o2770), "a crash came before its owner was set");
        });
    }

    #[test]
    fn a_group_gets_the_root_alone_unless_all_is_asked_for() {
        in_private_mounts(|dir| {
            let (root, outside, other) = (dir.join("root"), dir.join("outside"), dir.join("root/a/other"));
            fs::create_dir_all(&other).unwrap();
            fs::write(&outside, "").unwrap();
            mount(Path::new("scratch"), &other, "tmpfs", &Options::parse(&["mode=0700"])).unwrap();
            let here = dir.join("root/a/here");
            fs::create_dir(&here).unwrap();
            bind(&dir.join("root"), &here).unwrap();
            let (program, link) = (root.join("a/program"), root.join("a/link"));
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o4711)).unwrap();
            symlink(&outside, &link).unwrap();

            share(&root, Sharing { gid: 100, recursive: false }).unwrap();
            assert_eq!(at(&root), (0, 100, 0o2775));
            assert_eq!((at(&root.join("a")).1, at(&program)), (0, (0, 0, 0o4711)));

            share(&root, Sharing { gid: 200, recursive: true }).unwrap();
            assert_eq!((at(&root), at(&root.join("a"))), ((0, 200, 0o2775), (0, 200, 0o2775)));
            assert_eq!(at(&program), (0, 200, 0o4771), "it keeps set-user-id");
            assert_eq!(at(&link).1, 200, "the link itself");
            assert_eq!(at(&outside).1, 0, "UNSAFE: a symbolic link was followed");
            assert_eq!(at(&other), (0, 0, 0o700), "UNSAFE: another mount was entered");
        });
    }
}
