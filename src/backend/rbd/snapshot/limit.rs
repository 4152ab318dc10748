//! How many snapshots an image may have: those in its trash, which clones still read from, count as well.
//!
//! The kernel's driver takes 510 of them (RBD_MAX_SNAP_COUNT, drivers/block/rbd.c). With one more, a map
//! hangs until the machine is rebooted, and so does all I/O of an image that is mapped already.

use crate::backend::rbd::context::Pool;
use crate::backend::rbd::tool::{ImageInfo, ImageRef};
use crate::error::{Error, Result};

/// How many the kernel's driver takes.
const MAX_FOR_KERNEL: u64 = 510;

/// From so many on cephlet takes none: the rest is for operators and for mirroring.
const MAX: u64 = 450;

/// Refuses a further snapshot of an image that has too many.
pub(crate) fn refuse_full(pool: &Pool<'_>, image: &ImageInfo) -> Result<()> {
    if image.snapshots < MAX {
        return Ok(());
    }
    Err(Error::no_space(format!(
        "image {:?} of {} has {} snapshots, and gets no more from {MAX} on, as the kernel's driver \
         maps no image with more than {MAX_FOR_KERNEL}: {WAY_OUT}",
        image.name, pool.at, image.snapshots
    )))
}

const WAY_OUT: &str = "delete snapshots, and flatten (`rbd flatten`) or delete clones, for which deleted \
                       snapshots are kept (`rbd snap ls --all` shows them)";

/// Refuses an image, by its id, that the kernel's driver would hang on.
pub(crate) fn refuse_unmappable(pool: &Pool<'_>, image: &str, or_nbd: &str) -> Result<()> {
    match pool.info(ImageRef::Id(image))? {
        Some(info) if info.snapshots > MAX_FOR_KERNEL => Err(Error::precondition(format!(
            "image {:?} of {} has {} snapshots, and the kernel's driver hangs with more than \
             {MAX_FOR_KERNEL}: {WAY_OUT}{or_nbd}",
            info.name, pool.at, info.snapshots
        ))),
        _ => Ok(()),
    }
}
