//! The trash of a pool.

use super::answer::{absent, is};
use super::output::read;
use super::{CommandTool, path, rbd, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::rbd::tool::{ImageRef, Removed, TrashTool, Trashed};
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::Class;

impl TrashTool for CommandTool {
    /// `rbd trash ls --all`. Not `--long`, which opens every image and fails where one of them is going.
    fn trash(&self, call: &Call, at: &PoolRef) -> Result<Vec<Trashed>> {
        match self.run(call, &at.access, rbd(at, Class::Listing, &["trash", "ls", "--all", "--format=json"]))
        {
            Ok(output) => read("rbd trash ls", &output.stdout),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("list the trash of {}", path(at, ""))))
            }
        }
    }

    /// `rbd trash rm`. --force is about the time until which an image was to be kept, which clocks may see
    /// differently; images that are in use it refuses all the same.
    fn purge(&self, call: &Call, at: &PoolRef, id: &str) -> Result<Removed> {
        let cmd =
            rbd_image(at, Class::Lasting, &["trash", "rm", "--no-progress", "--force"], ImageRef::Id(id))?;
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(Removed::Gone),
            Err(failure) if absent(&failure, &["remove error: "]) => Ok(Removed::Absent),
            // On its way there: its name can be given to no other image.
            Err(failure) if is(&failure, libc::EUCLEAN) => Ok(Removed::Absent),
            Err(failure) if is(&failure, libc::EBUSY) => Ok(Removed::Watched),
            Err(failure) if is(&failure, libc::ENOTEMPTY) => Ok(Removed::HasSnapshots),
            Err(failure) => Err(self.error(
                call,
                failure,
                at,
                &format!("purge image {} from the trash", path(at, ImageRef::Id(id))),
            )),
        }
    }
}
