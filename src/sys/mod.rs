//! System calls behind safe functions: the only place with `unsafe`. Errors keep their errno.
//!
//! Oldest kernel: Linux 5.11 (`close_range` with CLOSE_RANGE_CLOEXEC; since 5.8 LOOP_CONFIGURE, and a
//! mountinfo that loses no entry while others unmount).

pub mod address;
pub mod blank;
pub mod block;
pub mod byte_lock;
pub mod ceph;
pub mod copy;
pub mod crash;
pub mod discard;
pub mod ext4;
pub mod file;
pub mod flock;
pub mod freeze;
pub mod holders;
pub mod keyring;
pub mod loopdev;
pub mod modules;
pub mod mount;
pub mod mountinfo;
pub mod nbd;
pub mod openers;
pub mod owner;
pub mod process;
pub mod random;
pub mod rbd;
pub mod socket;
pub mod statfs;
pub mod superblock;
pub mod unseen;

#[cfg(test)]
pub(crate) mod scratch;

/// Makes a change to disk or kernel state between two crash points.
pub fn changing<T>(what: &str, change: impl FnOnce() -> T) -> T {
    crash::point(what);
    let result = change();
    crash::point(what);
    result
}
