//! The locks of images that are being mapped or unmapped.
//!
//! What maps may be in a system call when its daemon is killed, and do its work after the next daemon has
//! looked; and the process of rbd-nbd lives on. So who maps or unmaps takes the image's lock first; the
//! helper or command inherits it, and whatever that leaves running. It is released once what was mapped is
//! known to be the image. Whoever finds it taken knows that a process is at it or, if there is a device of
//! rbd-nbd, whose process lives on with the lock, that nobody has seen to it: that device was given to nobody
//! and is unmapped.
//!
//! The lock goes by the image's name, as the volume's ID has it: that is all an ID without incarnation says.

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
    /// The right to map or unmap the image. Waits for what an earlier daemon has begun, and unmaps what its
    /// command left to nobody.
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

    /// Whether somebody has looked at what was mapped as this device.
    pub(super) fn is_seen_to(&self, image: &Image<'_>, device: &BlockDevice) -> Result<bool> {
        // The kernel reports the id.
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
