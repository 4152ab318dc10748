//! Mounts that no other process sees, and that go with the one that made them: mount_namespaces(7),
//! open_tree(2), move_mount(2) (Linux 5.2).

use std::io;
use std::os::fd::OwnedFd;
use std::panic;
use std::path::Path;
use std::thread;

use rustix::fs::CWD;
use rustix::mount::{MountPropagationFlags, MoveMountFlags, OpenTreeFlags};
use rustix::thread::UnshareFlags;

use super::changing;

/// Runs `act` on a thread with a mount namespace of its own: no other process ever sees the mounts that it
/// makes, and they go with the thread, however it ends.
///
/// # Errors
/// Those of unshare(2): EPERM where namespaces are not allowed.
pub fn in_own_namespace<T: Send>(act: impl FnOnce() -> T + Send) -> io::Result<T> {
    let act = || -> io::Result<T> {
        // SAFETY: of all that can be unshared only the mount namespace (and with it root, directory and
        // umask) is.
        #[expect(unsafe_code, reason = "no other way to a mount namespace")]
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        Ok(act())
    };
    let ended = thread::scope(|scope| scope.spawn(act).join());
    ended.unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// A copy of the mount that `part` is on, of which only `part` is reached. It is mounted nowhere yet; it
/// keeps its file system when that is unmounted everywhere else, and is gone when it is dropped.
///
/// # Errors
/// Those of open_tree(2).
pub fn copy(part: &Path) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    Ok(rustix::mount::open_tree(CWD, part, flags)?)
}

/// Mounts a [`copy`] on `target`.
///
/// # Errors
/// Those of move_mount(2).
pub fn put(copy: &OwnedFd, target: &Path) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    changing("move mount", || rustix::mount::move_mount(copy, "", CWD, target, flags))?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;
    use crate::sys::mount::{Options, mount};
    use crate::sys::mountinfo::Mounts;
    use crate::sys::scratch::in_private_mounts;

    #[test]
    fn a_part_of_an_unseen_mount_is_all_that_is_put_to_a_path() {
        in_private_mounts(|dir| {
            let whole = || {
                mount(Path::new("none"), dir, "tmpfs", &Options::parse::<&str>(&[]))?;
                fs::create_dir(dir.join("part"))?;
                fs::write(dir.join("part/file"), "it")?;
                copy(&dir.join("part"))
            };
            let part = in_own_namespace(whole).unwrap().unwrap();
            assert!(Mounts::read().unwrap().find_at(dir).is_none(), "the whole is seen");
            put(&part, dir).unwrap();
            assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "it");
            assert_eq!(Mounts::read().unwrap().find_at(dir).unwrap().root, Path::new("/part"));
        });
    }
}
