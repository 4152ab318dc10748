//! The clients of CephFS: what they say about their mounts, as extended attributes (fs/ceph/xattr.c;
//! ceph-fuse has the same), and the name that they give to the metadata servers.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{getxattr, syncfs};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;

use super::changing;
use super::mount::unmount_detached;

/// The id of the cluster (fsid) whose file system is mounted at `path`.
///
/// # Errors
/// Those of getxattr(2); ENODATA and EOPNOTSUPP if it is no such mount.
pub fn cluster_at(path: &Path) -> io::Result<String> {
    let mut value = [0; 64];
    let length = getxattr(path, c"ceph.cluster_fsid", &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length.min(value.len())]).trim_end_matches('\0').to_string())
}

/// Gives the calling thread a host name of its own (unshare(2), CLONE_NEWUTS). The kernel's client names its
/// mounts after the host name of the thread that mounts (`ceph_mdsc_init`), ceph-fuse after its own
/// (uname(2)). The host keeps its name. It allocates nothing.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; EINVAL for a name of more than 64 bytes.
pub fn take_host_name(name: &str) -> io::Result<()> {
    // SAFETY: of all that can be unshared only the UTS namespace is, which has only names in it.
    #[expect(unsafe_code, reason = "no other way to a UTS namespace")]
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUTS) }?;
    Ok(sethostname(name.as_bytes())?)
}

/// Asks the MDS about the directory at `path`. Unlike statfs(2) and stat(2) this is never answered from
/// memory: no client holds the sums of a directory.
///
/// # Errors
/// Those of getxattr(2): EACCES (kernel) or ESHUTDOWN (ceph-fuse) if the cluster has shut the client out,
/// ENOTCONN if the process of ceph-fuse is gone.
pub fn ask_server(path: &Path) -> io::Result<()> {
    match getxattr(path, c"ceph.dir.rentries", &mut [0; 64]) {
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::RANGE) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes out what the client holds of the file system at `path`.
///
/// # Errors
/// Those of open(2) and syncfs(2).
pub fn write_out(path: &Path) -> io::Result<()> {
    Ok(syncfs(File::open(path)?)?)
}

/// Unmounts the topmost mount at `target`, of servers that do not answer: the calls that wait for them fail,
/// and what they have not got is lost.
///
/// # Errors
/// Those of umount2(2) with MNT_FORCE, except EBUSY.
pub fn unmount_forced(target: &Path) -> io::Result<()> {
    match changing("unmount forced", || unmount(target, UnmountFlags::FORCE)) {
        // It has failed the calls all the same.
        Err(Errno::BUSY) => unmount_detached(target),
        outcome => Ok(outcome?),
    }
}
