//! What the kernel's CephFS client says about its mounts, as extended attributes (fs/ceph/xattr.c).

use std::io;
use std::path::Path;

use rustix::fs::getxattr;

/// The id of the cluster (fsid) whose file system is mounted at `path`.
///
/// # Errors
/// Those of getxattr(2); ENODATA and EOPNOTSUPP if it is no such mount.
pub fn cluster_at(path: &Path) -> io::Result<String> {
    let mut value = [0; 64];
    let length = getxattr(path, c"ceph.cluster_fsid", &mut value)?;
    Ok(String::from_utf8_lossy(&value[..length.min(value.len())]).trim_end_matches('\0').to_string())
}
