//! The trash of a pool.

use super::PoolCommands;
use super::answer::{absent, is};
use super::output::read;
use crate::backend::ceph::objects::Rados;
use crate::backend::rbd::tool::{ImageRef, Removed, TrashTool, Trashed};
use crate::error::Result;
use crate::exec::Class;

impl TrashTool for PoolCommands<'_> {
    /// `rbd trash ls --all`. Not `--long`, which opens every image and fails if one of them is being removed.
    fn trash(&self) -> Result<Vec<Trashed>> {
        match self.run(self.rbd(Class::Listing, &["trash", "ls", "--all", "--format=json"])) {
            Ok(output) => read("rbd trash ls", &output.stdout),
            Err(failure) => Err(self.error(failure, &format!("list the trash of {}", self.path("")))),
        }
    }

    /// `rbd trash rm`. --force overrides the time until which an image was to be kept, as clocks may differ.
    /// It still refuses images that are in use.
    fn purge(&self, id: &str) -> Result<Removed> {
        let (words, image) = (["trash", "rm", "--force"], ImageRef::Id(id));
        match self.run(self.rbd_image(Class::Lasting, &words, image)?) {
            Ok(_) => Ok(Removed::Gone),
            Err(failure) if absent(&failure, &["remove error: "]) => Ok(Removed::Absent),
            // Still on its way to the trash: no other image can have its name.
            Err(failure) if is(&failure, libc::EUCLEAN) => Ok(Removed::Absent),
            Err(failure) if is(&failure, libc::EBUSY) => Ok(Removed::Watched),
            Err(failure) if is(&failure, libc::ENOTEMPTY) => Ok(Removed::HasSnapshots),
            Err(failure) => {
                Err(self.error(failure, &format!("purge image {} from the trash", self.path(image))))
            }
        }
    }
}
