//! How full a file system is: statvfs(3). On a volume it can wait for storage: only for helpers.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// How much there is. Used and available need not add up to the total: some is reserved for root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// All of it.
    pub total: u64,
    /// What is in use.
    pub used: u64,
    /// What an ordinary user may still take.
    pub available: u64,
}

/// Space and inodes of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes, without the file system's own structures.
    pub bytes: Amount,
    /// Inodes; 0 in all if the file system makes them as needed (btrfs, CephFS).
    pub inodes: Amount,
}

/// Asks the file system at `path`.
///
/// # Errors
/// Those of statvfs(3).
pub fn usage(path: &Path) -> io::Result<Usage> {
    let stat = rustix::fs::statvfs(path)?;
    let amount = |total: u64, free: u64, available: u64, size: u64| Amount {
        total: total.saturating_mul(size),
        used: total.saturating_sub(free).saturating_mul(size),
        available: available.saturating_mul(size),
    };
    Ok(Usage {
        bytes: amount(stat.f_blocks, stat.f_bfree, stat.f_bavail, stat.f_frsize),
        inodes: amount(stat.f_files, stat.f_ffree, stat.f_favail, 1),
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
            assert_eq!((before.bytes.total, before.inodes.total), (8 << 20, 100));
            std::fs::write(dir.join("f"), vec![1; 1 << 20]).unwrap();
            let after = usage(dir).unwrap();
            assert_eq!(after.bytes.used - before.bytes.used, 1 << 20);
            assert_eq!(before.bytes.available - after.bytes.available, 1 << 20);
            assert_eq!(after.inodes.used - before.inodes.used, 1);
            assert_eq!(before.inodes.available - after.inodes.available, 1);
        });
    }
}
