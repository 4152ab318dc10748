//! The trash of a pool.

use super::answer::{absent, is};
use super::output::{TrashOutput, read};
use super::{CommandTool, path, plain, rbd, rbd_image};
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::{Failure, Reason};
use crate::backend::rbd::tool::{
    Changed, ImageRef, ImageTool, ManagerTask, Removed, Renamed, TrashTool, Trashed,
};
use crate::dispatch::Call;
use crate::error::{Kind, Result};
use crate::exec::{Class, Output, Tool};

/// How often a listing is begun.
const LISTINGS: usize = 4;

/// Purges the entries whose image is gone.
fn purge_empty_entries(cli: &CommandTool, call: &Call, at: &PoolRef) -> Result<()> {
    for entry in listed_rows(cli, call, at, rows(cli, call, at, &[]))? {
        if cli.info(call, at, ImageRef::Id(&entry.id))?.is_none() {
            cli.purge(call, at, &entry.id)?;
        }
    }
    Ok(())
}

fn rows(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    options: &[&str],
) -> std::result::Result<Output, Failure> {
    let words = ["trash", "ls", "--all", "--format=json"];
    cli.run(call, &at.access, rbd(at, Class::Listing, &[&words, options].concat()))
}

fn listed_rows(
    cli: &CommandTool,
    call: &Call,
    at: &PoolRef,
    listed: std::result::Result<Output, Failure>,
) -> Result<Vec<Trashed>> {
    match listed {
        Ok(output) => {
            let rows = read::<Vec<TrashOutput>>("rbd trash ls", &output.stdout)?;
            Ok(rows.into_iter().map(Trashed::from).collect())
        }
        Err(failure) => Err(cli.error(call, failure, at, &format!("list the trash of {}", path(at, "")))),
    }
}

/// Whether the manager does not do this, or not for this user: EINVAL is an unknown command, EOPNOTSUPP a
/// module that is not enabled. A cluster that is not reached ends with 1 as well.
fn not_served(failure: &Failure) -> bool {
    let answers = [libc::EPERM, libc::EACCES, libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS];
    let reached = matches!(failure.reason(), None | Some(Reason::Forbidden));
    reached && answers.iter().any(|status| is(failure, *status))
}

impl TrashTool for CommandTool {
    /// `rbd trash mv`
    fn move_to_trash(&self, call: &Call, at: &PoolRef, image: &str) -> Result<Changed> {
        let cmd = rbd_image(at, Class::Change, &["trash", "mv"], ImageRef::Name(image))?;
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(Changed::Done),
            Err(failure) if absent(&failure, &["deferred delete error: "]) => Ok(Changed::Absent),
            Err(failure) => {
                Err(self.error(call, failure, at, &format!("move image {} to the trash", path(at, image))))
            }
        }
    }

    /// `rbd trash ls`. It opens every image to tell where it came from, and fails as a whole where one is not
    /// there: one that is purged just now, or one whose purge was killed after the image and before its
    /// entry. Such an entry stays until it is purged again.
    fn trash(&self, call: &Call, at: &PoolRef) -> Result<Vec<Trashed>> {
        for _ in 1..LISTINGS {
            match rows(self, call, at, &["--long"]) {
                Err(failure) if absent(&failure, &["trash list: "]) => purge_empty_entries(self, call, at)?,
                listed => return listed_rows(self, call, at, listed),
            }
        }
        listed_rows(self, call, at, rows(self, call, at, &["--long"]))
    }

    /// `rbd trash restore`
    fn restore_from_trash(&self, call: &Call, at: &PoolRef, id: &str, name: &str) -> Result<Renamed> {
        let cmd = rbd_image(at, Class::Change, &["trash", "restore"], ImageRef::Id(id))?;
        match self.run(call, &at.access, cmd.arg(format!("--image={}", plain(name)?))) {
            Ok(_) => Ok(Renamed::Done),
            Err(failure) if absent(&failure, &["image does not exist in trash"]) => Ok(Renamed::Absent),
            Err(failure) if is(&failure, libc::EEXIST) => Ok(Renamed::Taken),
            Err(failure) => {
                let image = path(at, ImageRef::Id(id));
                Err(self.error(call, failure, at, &format!("restore image {image} from the trash as {name}")))
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
            // On its way there: its name still means it, or can be given to no other.
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

    /// `ceph rbd task add trash remove`. Where no manager is up, it waits for one: then its deadline passes.
    fn purge_by_manager(&self, call: &Call, at: &PoolRef, id: &str) -> Result<ManagerTask> {
        let words = ["rbd", "task", "add", "trash", "remove"];
        let cmd = at.access.command(Tool::Ceph, Class::Question).args(words).arg(path(at, id));
        match self.run(call, &at.access, cmd) {
            Ok(_) => Ok(ManagerTask::Accepted),
            Err(failure) if failure.says("RBD image not found") => Ok(ManagerTask::Absent),
            Err(failure) if not_served(&failure) => Ok(ManagerTask::NoManager),
            Err(failure) => {
                let error = self.error(
                    call,
                    failure,
                    at,
                    &format!("have image {} purged", path(at, ImageRef::Id(id))),
                );
                if error.kind() == Kind::Timeout { Ok(ManagerTask::NoManager) } else { Err(error) }
            }
        }
    }
}
