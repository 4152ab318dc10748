//! Mounts, binds, remounts and unmounts: mount(2), umount2(2). `mountinfo` has the table of mounts.
//!
//! Propagation is left alone. A new mount below a shared one is itself shared, so it appears on the host and
//! in every container that receives the host's mounts; a private mount would not
//! (Documentation/filesystems/sharedsubtree.rst).

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{FsOpenFlags, MountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use super::changing;

/// Options of mount(8) that the kernel takes as flags: name, flag, whether the name sets or clears the flag.
const FLAGS: &[(&str, MountFlags, bool)] = &[
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("suid", MountFlags::NOSUID, false),
    ("nodev", MountFlags::NODEV, true),
    ("dev", MountFlags::NODEV, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("norelatime", MountFlags::RELATIME, false),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nostrictatime", MountFlags::STRICTATIME, false),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("nolazytime", MountFlags::LAZYTIME, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("nosymfollow", MountFlags::NOSYMFOLLOW, true),
    ("symfollow", MountFlags::NOSYMFOLLOW, false),
    ("silent", MountFlags::SILENT, true),
    ("loud", MountFlags::SILENT, false),
];

/// Options of fstab(5) that concern mount(8) or systemd, and not the kernel.
const NOT_FOR_THE_KERNEL: &[&str] = &["defaults", "auto", "noauto", "nofail", "_netdev"];

/// The kernel reads one page of data and would silently cut off the rest.
const DATA_LIMIT: usize = 4095;

/// Per-mount flags of statvfs(3) that a bind remount would drop, and the flags that set them again.
const PER_MOUNT: &[(StatVfsMountFlags, MountFlags)] = &[
    (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
    (StatVfsMountFlags::NODEV, MountFlags::NODEV),
    (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
    (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    // ST_NOSYMFOLLOW (include/linux/statfs.h), not named by rustix.
    (StatVfsMountFlags::from_bits_retain(0x2000), MountFlags::NOSYMFOLLOW),
];

/// Mount options as the kernel takes them: flags, and the options that only the file system understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    flags: MountFlags,
    data: String,
}

impl Options {
    /// Reads options as written after `mount -o`, each item one option. Later options win, as in mount(8).
    pub fn parse<T: AsRef<str>>(items: &[T]) -> Self {
        let mut options = Self { flags: MountFlags::empty(), data: String::new() };
        items.iter().for_each(|item| options.add(item.as_ref()));
        options
    }

    /// The same options, but read-only in any case.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.flags |= MountFlags::RDONLY;
        self
    }

    fn add(&mut self, word: &str) {
        if word.is_empty() || word.starts_with("x-") || NOT_FOR_THE_KERNEL.contains(&word) {
            return;
        }
        match FLAGS.iter().find(|(name, ..)| *name == word) {
            Some(&(_, flag, set)) => self.flags.set(flag, set),
            None => {
                if !self.data.is_empty() {
                    self.data.push(',');
                }
                self.data.push_str(word);
            }
        }
    }
}

/// Mounts `source`, a file system of type `fs_type`, on `target`.
///
/// # Errors
/// Those of mount(2); EINVAL also for options longer than the kernel reads.
pub fn mount(source: &Path, target: &Path, fs_type: &str, options: &Options) -> io::Result<()> {
    let data = CString::new(options.data.as_str()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    if data.as_bytes().len() > DATA_LIMIT {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    changing("mount", || rustix::mount::mount(source, target, fs_type, options.flags, data.as_c_str()))?;
    Ok(())
}

/// Makes a file system replay its journal without mounting it. A mounted one may have the same UUID.
///
/// # Errors
/// Those of fsopen(2) and fsconfig(2), which are those of mount(2).
pub fn replay_journal(source: &Path, fs_type: &str) -> io::Result<()> {
    let file_system = rustix::mount::fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_set_string(&file_system, "source", source)?;
    rustix::mount::fsconfig_set_flag(&file_system, "ro")?;
    if fs_type == "xfs" {
        rustix::mount::fsconfig_set_flag(&file_system, "nouuid")?;
    }
    changing("replay journal", || rustix::mount::fsconfig_create(&file_system))?;
    Ok(())
}

/// Binds `source` on `target`, without the mounts below `source`; the bind has the options of the mount
/// `source` is on.
///
/// # Errors
/// Those of mount(2): ENOTDIR when one is a directory and the other a file.
pub fn bind(source: &Path, target: &Path) -> io::Result<()> {
    changing("bind", || rustix::mount::mount_bind(source, target))?;
    Ok(())
}

/// Binds `source` on `target` read-only: all or nothing. A process that is killed half way leaves a
/// read-write bind.
///
/// # Errors
/// Those of mount(2), after which the bind is undone.
pub fn bind_read_only(source: &Path, target: &Path) -> io::Result<()> {
    bind(source, target)?;
    remount_read_only(target).inspect_err(|_| {
        // The first error is the one to report; mountinfo shows a bind that stays.
        let _ = unmount_detached(target);
    })
}

/// Makes the one mount at `target` read-only, and no other mount of its file system.
///
/// The kernel ignores MS_RDONLY on the bind itself, and a remount replaces all per-mount flags, so the flags
/// in force are passed again.
///
/// # Errors
/// Those of mount(2) and statvfs(3).
pub fn remount_read_only(target: &Path) -> io::Result<()> {
    let flags = MountFlags::BIND | MountFlags::RDONLY | flags_in_force(target)?;
    changing("remount read-only", || rustix::mount::mount_remount(target, flags, c""))?;
    Ok(())
}

fn flags_in_force(target: &Path) -> io::Result<MountFlags> {
    let in_force = rustix::fs::statvfs(target)?.f_flag;
    let mut flags = MountFlags::empty();
    for (shown, flag) in PER_MOUNT {
        if in_force.contains(*shown) {
            flags |= *flag;
        }
    }
    // The absence of noatime and relatime means strictatime; without any of the three flags the kernel would
    // choose relatime.
    if !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME) {
        flags |= MountFlags::STRICTATIME;
    }
    Ok(flags)
}

/// Unmounts the topmost mount at `target`.
///
/// # Errors
/// Those of umount2(2): EINVAL when nothing is mounted there, EBUSY when a process still uses it.
pub fn unmount(target: &Path) -> io::Result<()> {
    changing("unmount", || rustix::mount::unmount(target, UnmountFlags::empty()))?;
    Ok(())
}

/// Unmounts the topmost mount at `target` even if it is in use: it leaves the tree now, and the kernel when
/// its last user is gone.
///
/// # Errors
/// Those of umount2(2) with MNT_DETACH.
pub fn unmount_detached(target: &Path) -> io::Result<()> {
    changing("unmount detached", || rustix::mount::unmount(target, UnmountFlags::DETACH))?;
    Ok(())
}

/// How [`ensure_unmounted`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unmounted {
    /// It was unmounted.
    Done,
    /// It was dead and in use. It has left the tree, and disappears with its last user.
    Detached,
    /// Its servers did not answer: [`unmount_forced`](super::ceph::unmount_forced).
    Forced,
    /// Nothing was mounted there, or the path does not exist.
    NotMounted,
}

/// Unmounts the topmost mount at `target`; a dead mount in use is detached.
///
/// # Errors
/// Those of umount2(2): EBUSY when a live mount is in use.
pub fn ensure_unmounted(target: &Path) -> io::Result<Unmounted> {
    let error = match unmount(target) {
        Ok(()) => return Ok(Unmounted::Done),
        Err(error) => error,
    };
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOENT) => Ok(Unmounted::NotMounted),
        Some(errno) if is_dead(errno) || (errno == libc::EBUSY && answers_dead(target)) => {
            unmount_detached(target)?;
            Ok(Unmounted::Detached)
        }
        _ => Err(error),
    }
}

/// Whether an errno from a mounted path means that its file system cannot recover while mounted: the FUSE
/// process ended, the server forgot us, the device was removed, the client is blocklisted (ESHUTDOWN).
pub fn is_dead(errno: i32) -> bool {
    use libc::{ECONNABORTED, EHOSTDOWN, EIO, ENODEV, ENOTCONN, ENXIO, ESHUTDOWN, ESTALE};
    [ENOTCONN, ESTALE, EIO, EHOSTDOWN, ENODEV, ENXIO, ESHUTDOWN, ECONNABORTED].contains(&errno)
}

/// Whether the xfs mounted at `path` was shut down: stat(2) of its root then fails with EIO, without any I/O,
/// while statfs(2) still succeeds (seen on Linux 6.1 and 6.18).
///
/// # Errors
/// Those of stat(2), except EIO.
pub fn is_shut_down(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(true),
        found => found.map(|_| false),
    }
}

/// Whether the mount itself is dead. statfs may be answered from memory, so the directory is read, too.
fn answers_dead(target: &Path) -> bool {
    let answer =
        rustix::fs::statvfs(target).map_err(io::Error::from).and_then(|_| match fs::read_dir(target) {
            Ok(mut entries) => entries.next().map_or(Ok(()), |entry| entry.map(drop)),
            Err(error) => Err(error),
        });
    answer.err().and_then(|error| error.raw_os_error()).is_some_and(is_dead)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::mountinfo::Mounts;
    use crate::sys::scratch::in_private_mounts;
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    fn options_at(path: &Path) -> String {
        Mounts::read().unwrap().find_at(path).expect("a mount").options.clone()
    }

    /// A tmpfs on a scratch directory, with `words` as options.
    fn tmpfs(at: &Path, name: &str, words: &[&str]) -> PathBuf {
        let dir = at.join(name);
        fs::create_dir(&dir).unwrap();
        mount(Path::new("scratch"), &dir, "tmpfs", &Options::parse(words)).unwrap();
        dir
    }

    #[test]
    fn words_become_flags_and_the_rest_is_data() {
        let words = ["noatime", "nosuid", "discard", "x-systemd.automount", "_netdev", "context=\"a,ro\""];
        let options = Options::parse(&words);
        assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NOSUID);
        assert_eq!(options.data, "discard,context=\"a,ro\"");
    }

    #[test]
    fn the_last_word_wins_but_read_only_stays() {
        assert_eq!(Options::parse(&["ro", "rw"]).flags, MountFlags::empty());
        assert_eq!(Options::parse(&["rw"]).read_only().flags, MountFlags::RDONLY);
    }

    #[test]
    fn options_the_kernel_would_cut_off_are_refused() {
        let long = "a".repeat(5000);
        let error = mount(Path::new("none"), Path::new("/"), "tmpfs", &Options::parse(&[long])).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_read_only_bind_keeps_the_other_flags_and_leaves_its_source_writable() {
        in_private_mounts(|dir| {
            let source =
                tmpfs(dir, "source", &["nosuid", "nodev", "noexec", "noatime", "nosymfollow", "size=1m"]);
            let target = dir.join("target");
            fs::create_dir(&target).unwrap();
            bind_read_only(&source, &target).unwrap();
            let options = options_at(&target);
            for word in ["ro", "nosuid", "nodev", "noexec", "noatime", "nosymfollow"] {
                assert!(options.split(',').any(|have| have == word), "{word} is missing in {options}");
            }
            assert!(options_at(&source).starts_with("rw"));
            assert_eq!(fs::write(target.join("f"), "x").unwrap_err().raw_os_error(), Some(libc::EROFS));
            fs::write(source.join("f"), "x").unwrap();
        });
    }

    #[test]
    fn a_read_only_bind_keeps_strictatime() {
        in_private_mounts(|dir| {
            let source = tmpfs(dir, "source", &["strictatime"]);
            let target = dir.join("target");
            fs::create_dir(&target).unwrap();
            bind_read_only(&source, &target).unwrap();
            assert!(!options_at(&target).contains("relatime"), "{}", options_at(&target));
        });
    }

    #[test]
    fn a_bind_of_a_file_on_a_directory_is_refused_and_leaves_nothing() {
        in_private_mounts(|dir| {
            let (file, target) = (dir.join("file"), dir.join("target"));
            fs::write(&file, "x").unwrap();
            fs::create_dir(&target).unwrap();
            assert_eq!(bind_read_only(&file, &target).unwrap_err().raw_os_error(), Some(libc::ENOTDIR));
            assert!(Mounts::read().unwrap().find_at(&target).is_none());
        });
    }

    #[test]
    fn unmounting_is_repeatable_and_tells_busy_apart() {
        in_private_mounts(|dir| {
            let target = tmpfs(dir, "target", &[]);
            let user = fs::File::create(target.join("f")).unwrap();
            assert_eq!(ensure_unmounted(&target).unwrap_err().raw_os_error(), Some(libc::EBUSY));
            drop(user);
            // Children that other tests fork keep the file open until their exec.
            let unmounted = std::iter::repeat_with(|| ensure_unmounted(&target)).find_map(Result::ok);
            assert_eq!(unmounted, Some(Unmounted::Done));
            assert_eq!(ensure_unmounted(&target).unwrap(), Unmounted::NotMounted);
            assert_eq!(ensure_unmounted(&dir.join("never")).unwrap(), Unmounted::NotMounted);
        });
    }

    #[test]
    fn a_busy_mount_can_be_detached() {
        in_private_mounts(|dir| {
            let target = tmpfs(dir, "target", &[]);
            let _user = fs::File::create(target.join("f")).unwrap();
            unmount_detached(&target).unwrap();
            assert!(Mounts::read().unwrap().find_at(&target).is_none());
        });
    }

    #[test]
    fn a_dead_mount_in_use_is_detached() {
        in_private_mounts(|dir| {
            // A FUSE file system whose process ends without unmounting it.
            let target = dir.join("target");
            fs::create_dir(&target).unwrap();
            let process = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
            let fd = format!("fd={}", process.as_raw_fd());
            let options = Options::parse(&[&fd, "rootmode=40000", "user_id=0", "group_id=0"]);
            mount(Path::new("scratch"), &target, "fuse", &options).unwrap();
            let _user = rustix::fs::open(&target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
            drop(process);
            assert_eq!(unmount(&target).unwrap_err().raw_os_error(), Some(libc::EBUSY));
            assert_eq!(ensure_unmounted(&target).unwrap(), Unmounted::Detached);
            assert!(Mounts::read().unwrap().find_at(&target).is_none());
        });
    }

    #[test]
    fn dead_is_not_busy() {
        assert!(is_dead(libc::ENOTCONN) && is_dead(libc::ESHUTDOWN));
        assert!(!is_dead(libc::EBUSY) && !is_dead(libc::EACCES) && !is_dead(libc::ENOENT));
    }
}
