//! How full a file system is: statvfs(3). On a volume it can wait for storage: only for helpers.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Space and inodes of a file system. Used and available need not add up to the total: some is reserved for
/// root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Size in bytes, without the file system's own structures.
    pub bytes_total: u64,
    /// Bytes that users may still take.
    pub bytes_available: u64,
    /// Bytes in use.
    pub bytes_used: u64,
    /// Number of inodes; 0 if the file system makes them as needed (btrfs, CephFS).
    pub inodes_total: u64,
    /// Inodes that users may still take.
    pub inodes_available: u64,
    /// Inodes in use.
    pub inodes_used: u64,
}

/// Asks the file system at `path`.
///
/// # Errors
/// Those of statvfs(3).
pub fn usage(path: &Path) -> io::Result<Usage> {
    let stat = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Ok(Usage {
        bytes_total: bytes(stat.f_blocks),
        bytes_available: bytes(stat.f_bavail),
        bytes_used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes_total: stat.f_files,
        inodes_available: stat.f_favail,
        inodes_used: stat.f_files.saturating_sub(stat.f_ffree),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sys::mount::{Options, mount};
    use crate::sys::scratch::in_private_mounts;

    #[test]
    fn what_is_written_is_used() {
        in_private_mounts(|dir| {
            mount(Path::new("scratch"), dir, "tmpfs", &Options::parse(&["size=8m,nr_inodes=100"])).unwrap();
            let before = usage(dir).unwrap();
            assert_eq!((before.bytes_total, before.inodes_total), (8 << 20, 100));
            std::fs::write(dir.join("f"), vec![1; 1 << 20]).unwrap();
            let after = usage(dir).unwrap();
            assert_eq!(after.bytes_used - before.bytes_used, 1 << 20);
            assert_eq!(before.bytes_available - after.bytes_available, 1 << 20);
            assert_eq!(after.inodes_used - before.inodes_used, 1);
            assert_eq!(before.inodes_available - after.inodes_available, 1);
        });
    }
}
