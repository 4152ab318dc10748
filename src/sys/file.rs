//! Exact operations on files and names: open(2), unlink(2), rmdir(2), mkdir(2), fsync(2).

#![expect(clippy::disallowed_methods, reason = "what it writes is to be durable")]

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::changing;

/// Creates a new file that only its owner can read and write, under any umask.
///
/// # Errors
/// Those of open(2): EEXIST when the name is taken, also by a symbolic link.
pub fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = changing("create file", || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))?;
    Ok(file.into())
}

/// Removes a file; false if there was none.
///
/// # Errors
/// Those of unlink(2).
pub fn remove(path: &Path) -> io::Result<bool> {
    absent_is_fine(changing("remove file", || rustix::fs::unlink(path)))
}

/// Removes an empty directory; false if there was none.
///
/// # Errors
/// Those of rmdir(2): ENOTEMPTY, EBUSY when something is mounted there.
pub fn remove_dir(path: &Path) -> io::Result<bool> {
    absent_is_fine(changing("remove directory", || rustix::fs::rmdir(path)))
}

fn absent_is_fine(result: rustix::io::Result<()>) -> io::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NAMETOOLONG) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Makes a directory and its parents, if they are missing; new ones are for their owner alone (0700).
///
/// # Errors
/// Those of mkdir(2): ENOTDIR or EEXIST when something else is there.
pub fn ensure_dir(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    changing("make directory", || DirBuilder::new().recursive(true).mode(0o700).create(path))
}

/// Makes the missing directories above a path, as `mkdir -p` does: open to all users, if the umask permits.
///
/// # Errors
/// Those of mkdir(2): ENOTDIR or EEXIST when something else is there.
pub fn ensure_parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.is_dir() => {
            changing("make directory", || DirBuilder::new().recursive(true).mode(0o755).create(parent))
        }
        _ => Ok(()),
    }
}

/// What was read; None if no such file is there.
///
/// # Errors
/// Those of reading, except ENOENT.
pub fn if_there<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Whether nothing is there, not even a dangling symbolic link.
pub fn is_absent(path: &Path) -> bool {
    path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Makes an empty file for its owner alone, unless a file is there already.
///
/// # Errors
/// Those of open(2): EEXIST when a directory is there.
pub fn ensure_file(path: &Path) -> io::Result<()> {
    match create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !path.is_dir() => Ok(()),
        outcome => outcome.map(drop),
    }
}

/// Opens a lock file, and makes it if need be. Every process that can open it can lock it, so it is made
/// private to its owner, even if an earlier release has left it readable to others. If that fails, because
/// another user owns the file, its mode stays.
///
/// # Errors
/// Those of open(2): ELOOP when a symbolic link is there.
pub fn open_lock(path: &Path) -> io::Result<File> {
    ensure_file(path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.mode() & 0o077 != 0
        && let Err(error) = changing("set mode", || file.set_permissions(Permissions::from_mode(0o600)))
    {
        log::warn!("others can keep {} locked: {error}", path.display());
    }
    Ok(file)
}

/// The path as the kernel's tables show it: symbolic links are followed, except in the last name.
///
/// # Errors
/// Those of realpath(3) for the directory the path is in.
pub fn resolve_parent(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path.to_path_buf()),
    }
}

/// Writes or replaces a small file. At any moment, and after a crash, the file has its old content or all of
/// the new. Its directory must exist.
///
/// # Errors
/// Those of open(2), write(2), fsync(2) and rename(2).
pub fn write_whole(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, |unfinished| write_new(unfinished, content))
}

/// The same for a file that all users may read, under any umask.
///
/// # Errors
/// Those of [`write_whole`] and chmod(2).
pub fn write_readable(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    replace(path, |unfinished| {
        write_new(unfinished, content)?;
        changing("set mode", || fs::set_permissions(unfinished, Permissions::from_mode(0o644)))
    })
}

fn replace(path: &Path, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let unfinished = path.with_extension("new");
    remove(&unfinished)?;
    write(&unfinished)?;
    rename(&unfinished, path, RenameFlags::empty())?;
    sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// Writes a new file. Its content is durable then, its name only after [`sync_dir`].
///
/// # Errors
/// Those of [`create_new`], write(2) and fsync(2).
pub fn write_new(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    let mut file = create_new(path)?;
    file.write_all(content.as_ref())?;
    sync_file(&file)
}

/// Renames a file or directory; durable after [`sync_dir`].
///
/// # Errors
/// Those of renameat2(2): with NOREPLACE EEXIST when the name is taken.
pub fn rename(from: &Path, to: &Path, flags: RenameFlags) -> io::Result<()> {
    Ok(changing("rename", || renameat_with(CWD, from, CWD, to, flags))?)
}

/// Waits until the file's data and length are on disk. After an error their state is unknown: do not retry.
///
/// # Errors
/// Those of fsync(2).
pub fn sync_file(file: &File) -> io::Result<()> {
    changing("sync file", || file.sync_all())
}

/// Waits until every name in the directory is on disk.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub fn sync_dir(path: &Path) -> io::Result<()> {
    changing("sync directory", || File::open(path)?.sync_all())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_private_and_never_an_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        create_new(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(create_new(&path).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &link).unwrap();
        assert_eq!(create_new(&link).unwrap_err().raw_os_error(), Some(libc::EEXIST));
    }

    #[test]
    fn what_is_locked_can_be_opened_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let [new, earlier, link] = ["new", "earlier", "link"].map(|name| dir.path().join(name));
        fs::write(&earlier, "").unwrap();
        fs::set_permissions(&earlier, Permissions::from_mode(0o644)).unwrap();
        for path in [&new, &earlier] {
            assert_eq!(open_lock(path).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
        }
        std::os::unix::fs::symlink(&earlier, &link).unwrap();
        open_lock(&link).unwrap_err();
    }

    #[test]
    fn others_may_read_a_file_only_if_that_is_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mode = || fs::metadata(&path).unwrap().mode() & 0o7777;
        write_readable(&path, "a").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode()), (b"a".as_slice(), 0o644));
        write_whole(&path, "b").unwrap();
        assert_eq!((fs::read(&path).unwrap().as_slice(), mode()), (b"b".as_slice(), 0o600));
    }

    #[test]
    fn what_can_have_no_name_is_not_there() {
        let name = "x".repeat(256);
        assert!(!remove(&tempfile::tempdir().unwrap().path().join(name)).unwrap());
    }

    #[test]
    fn removing_is_repeatable() {
        let dir = tempfile::tempdir().unwrap();
        let (file, sub) = (dir.path().join("f"), dir.path().join("d"));
        fs::write(&file, "").unwrap();
        fs::create_dir(&sub).unwrap();
        assert_eq!((remove(&file).unwrap(), remove(&file).unwrap()), (true, false));
        assert_eq!((remove_dir(&sub).unwrap(), remove_dir(&sub).unwrap()), (true, false));
        fs::create_dir(&sub).unwrap();
        fs::write(sub.join("f"), "").unwrap();
        assert_eq!(remove_dir(&sub).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    }
}
