//! The kernel's CephFS client: what it says about its mounts, as extended attributes (fs/ceph/xattr.c), and
//! the name that it gives to the metadata servers.

use std::io;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::system::sethostname;
use rustix::thread::UnshareFlags;

/// The id of the cluster (fsid) whose file system is mounted at `path`.
///
/// # Errors
/// Those of getxattr(2); ENODATA and EOPNOTSUPP if it is no such mount.
pub fn cluster_at(path: &Path) -> io::Result<String> {
    let mut value = [0; 64];
    let length = getxattr(path, c"ceph.cluster_fsid", &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length.min(value.len())]).trim_end_matches('\0').to_string())
}

/// Gives the calling thread a host name of its own (unshare(2), CLONE_NEWUTS). The client names its mounts
/// after the host name of the thread that mounts (`ceph_mdsc_init`). The host keeps its name.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN; EINVAL for a name of more than 64 bytes.
pub fn take_host_name(name: &str) -> io::Result<()> {
    // SAFETY: of all that can be unshared only the UTS namespace is, which has only names in it.
    #[expect(unsafe_code, reason = "no other way to a UTS namespace")]
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUTS) }?;
    Ok(sethostname(name.as_bytes())?)
}
