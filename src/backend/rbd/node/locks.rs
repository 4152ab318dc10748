//! The locks of images that are being mapped or unmapped.
//!
//! A process that maps may be in a system call when its daemon is killed, and may map after the next daemon
//! has looked. The process of rbd-nbd lives on. So the daemon takes the image's lock before it maps or
//! unmaps; the helper or command inherits it, with all that it starts. The daemon releases the lock once the
//! mapped device is known to be the image. A lock that is taken means that a process is mapping or unmapping.
//! If there is a device of rbd-nbd, whose process keeps the lock, no call was given that device: it is
//! unmapped.
//!
//! The lock goes by the image's name in the volume's ID: an ID without an incarnation has nothing else.

use std::io;

use super::{Image, Mapper, cookie};
use crate::backend::BlockDevice;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::kernel::Backing;
use crate::sys::byte_lock::{ByteLock, number_of};

/// The locks of this node.
pub(super) use crate::sys::byte_lock::LockFile as MapLocks;

impl Image<'_> {
    fn lock_key(&self) -> u64 {
        key_of(&self.cluster.name, self.pool, self.namespace, self.name)
    }
}

/// No name has a slash in it.
fn key_of(cluster: &str, pool: &str, namespace: &str, name: &str) -> u64 {
    number_of(&format!("{cluster}\0{pool}\0{namespace}/{name}"))
}

impl Mapper {
    /// Takes the lock of the image. Waits for a process of an earlier daemon, and unmaps devices that its
    /// command left and no call was given.
    pub(super) fn lock(&self, call: &Call, image: &Image<'_>) -> Result<ByteLock> {
        let what = format!("the end of a process that was mapping or unmapping {image}");
        let look = || self.try_lock(call, image);
        call.wait_for(what, self.timing.earlier_map, self.timing.poll, look)?.ok_or_else(|| {
            Error::unavailable(format!(
                "a process that was given up is still mapping or unmapping {image}, as its cluster does not \
                 answer: try again when it does"
            ))
        })
    }

    fn try_lock(&self, call: &Call, image: &Image<'_>) -> Result<Option<ByteLock>> {
        let take = || self.locks.try_take(image.lock_key()).map_err(|error| failed(image, &error));
        if let Some(lock) = take()? {
            return Ok(Some(lock));
        }
        for device in self.find_all(image)? {
            if !self.is_seen_to(image, &device)? {
                self.unmap(call, &device, None)?;
            }
        }
        take()
    }

    /// Whether a process is mapping or unmapping the image.
    pub(super) fn is_locked(&self, image: &Image<'_>) -> Result<bool> {
        self.locks.is_taken(image.lock_key()).map_err(|error| failed(image, &error))
    }

    /// Whether a daemon has verified that this device is the image's.
    pub(super) fn is_seen_to(&self, image: &Image<'_>, device: &BlockDevice) -> Result<bool> {
        // krbd reports the id.
        let Backing::Nbd(connected) = &device.backing else { return Ok(true) };
        let Some([cluster, pool, namespace, name, _]) = cookie::fields(&connected.cookie) else {
            return Ok(false);
        };
        let taken = self.locks.is_taken(key_of(cluster, pool, namespace, name));
        taken.map(|taken| !taken).map_err(|error| failed(image, &error))
    }
}

pub(super) fn failed(image: &Image<'_>, error: &io::Error) -> Error {
    Error::io(format_args!("use the lock by which {image} is mapped"), error)
}
