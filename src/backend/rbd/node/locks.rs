//! The locks that tell which process maps an image.
//!
//! What maps may be in a system call when its daemon is killed, and do its work after the next daemon has
//! looked; and the process of rbd-nbd lives on. So who maps takes the image's lock first; the command
//! inherits it, and whatever the command leaves running. It is released once what was mapped is known to be
//! the image. Whoever finds it taken knows that a command is under way or, if there is a device of rbd-nbd,
//! whose process lives on with the lock, that nobody has seen to it: that device was given to nobody and is
//! unmapped.
//!
//! The lock goes by the image's name, as the volume's ID has it: that is all an ID without incarnation says.

use std::io;

use super::{Image, MappedBy, Mapper, Mapping, cookie};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::kernel::rbd::{lock_key, name_key};
use crate::sys::byte_lock::ByteLock;

/// The locks of this node.
pub(super) use crate::sys::byte_lock::LockFile as MapLocks;

impl Image<'_> {
    fn lock_key(&self) -> u64 {
        key_of(&self.cluster.name, self.pool, self.namespace, self.name)
    }
}

/// No name has a slash in it.
fn key_of(cluster: &str, pool: &str, namespace: &str, name: &str) -> u64 {
    lock_key(cluster, pool, &[namespace, name].join("/"))
}

impl Mapper {
    /// The right to map the image. What an earlier daemon was mapping is waited for, and what its command
    /// left to nobody is unmapped.
    pub(super) fn lock(&self, call: &Call, image: &Image<'_>) -> Result<ByteLock> {
        self.await_earlier_map(call, image, || self.try_lock(call, image))
    }

    fn try_lock(&self, call: &Call, image: &Image<'_>) -> Result<Option<ByteLock>> {
        let take = || self.locks.try_take(image.lock_key()).map_err(|error| failed(image, &error));
        let lock = match take()? {
            Some(lock) => Some(lock),
            None => {
                self.unmap_left(call, image)?;
                take()?
            }
        };
        match lock {
            Some(lock) if !self.kernel_maps(image)? => Ok(Some(lock)),
            _ => Ok(None),
        }
    }

    /// Unmaps what a command has mapped for nobody.
    fn unmap_left(&self, call: &Call, image: &Image<'_>) -> Result<()> {
        for mapping in self.find_all(image)? {
            if !self.is_seen_to(image, &mapping)? {
                self.unmap(call, &mapping)?;
            }
        }
        Ok(())
    }

    /// Waits until nobody maps the image any more.
    pub(super) fn await_end_of_map(&self, call: &Call, image: &Image<'_>) -> Result<()> {
        self.await_earlier_map(call, image, || {
            if self.is_being_mapped(image)? {
                self.unmap_left(call, image)?;
            }
            Ok((!self.is_being_mapped(image)?).then_some(()))
        })
    }

    /// Waits for a process that was mapping the image to end, by what `look` finds.
    fn await_earlier_map<T>(
        &self,
        call: &Call,
        image: &Image<'_>,
        look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let what = format!("the end of a process that was mapping {image}");
        let found = call.wait_for(what, self.timing.earlier_map, self.timing.poll, look)?;
        found.ok_or_else(|| {
            Error::unavailable(format!(
                "a process that was given up is still mapping {image}, as its cluster does not answer: try \
                 again when it does"
            ))
        })
    }

    /// Whether a command or a helper is mapping the image.
    pub(super) fn is_being_mapped(&self, image: &Image<'_>) -> Result<bool> {
        let taken = self.locks.is_taken(image.lock_key()).map_err(|error| failed(image, &error))?;
        Ok(taken || self.kernel_maps(image)?)
    }

    /// Whether a helper does.
    fn kernel_maps(&self, image: &Image<'_>) -> Result<bool> {
        self.bus
            .is_locked(name_key(image.pool, image.namespace, image.name))
            .map_err(|error| failed(image, &error))
    }

    /// Whether somebody has looked at what was mapped as this device.
    pub(super) fn is_seen_to(&self, image: &Image<'_>, mapping: &Mapping) -> Result<bool> {
        // The kernel reports the id.
        let MappedBy::Nbd(connected) = &mapping.by else { return Ok(true) };
        let Some([cluster, pool, namespace, name, _]) = cookie::fields(&connected.cookie) else {
            return Ok(false);
        };
        let taken = self.locks.is_taken(key_of(cluster, pool, namespace, name));
        taken.map(|taken| !taken).map_err(|error| failed(image, &error))
    }
}

fn failed(image: &Image<'_>, error: &io::Error) -> Error {
    Error::io(format_args!("look whether {image} is being mapped"), error)
}
