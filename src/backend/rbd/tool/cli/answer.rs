//! How a command's failure is told apart: absent, refused by the set-up, or a failure nobody here can go on
//! from.
//!
//! The tools write their words to stderr piece by piece, and librbd's log goes in between at any place. So
//! only a piece that is written at once can be relied on: "rename error: " is one, "(2) No such file or
//! directory" after it is another.

use super::{Cli, pools};
use crate::backend::ceph::{Access, Failure};
use crate::backend::rbd::tool::{Layout, Spot};
use crate::call::Call;
use crate::error::{Error, Kind};
use crate::exec::{Cmd, Output};

/// What librbd writes where a pool whose quota is used up refuses.
const OVER_QUOTA: &str = "Disk quota exceeded";

/// Whether the command ended with `status`.
pub(super) fn is(failure: &Failure, status: i32) -> bool {
    failure.status() == Some(status)
}

/// Whether both of these were written.
pub(super) fn says(failure: &Failure, what: &str, why: &str) -> bool {
    failure.says(what) && failure.says(why)
}

/// Whether `rbd` says that what was asked about is not there, by one of the `pieces` that say what was tried.
///
/// A full pool is the trap: `rbd rm` then cannot write its note in the trash, and ends with 2 and "delete
/// error: (2)" while the image stays.
pub(super) fn absent(failure: &Failure, pieces: &[&str]) -> bool {
    is(failure, libc::ENOENT) && !failure.says(OVER_QUOTA) && pieces.iter().any(|piece| failure.says(piece))
}

/// The data pool that is missing, if that is it. rbd says 2 then; only its log says of what.
pub(super) fn missing_data_pool<'a>(failure: &Failure, layout: &'a Layout) -> Option<&'a str> {
    let named = layout.data_pool.as_deref()?;
    let missing =
        is(failure, libc::ENOENT) && (failure.says("import failed: ") || failure.says("validate_data_pool"));
    missing.then_some(named)
}

impl Cli {
    /// Runs a command.
    pub(super) fn run(&self, call: &Call, access: &Access, cmd: Cmd) -> Result<Output, Failure> {
        access.run(&*self.runner, call, &cmd)
    }

    /// Runs a question about an image. One that is removed after it was opened fails in many words; asked
    /// again, it is absent.
    pub(super) fn ask(&self, call: &Call, access: &Access, cmd: Cmd) -> Result<Output, Failure> {
        match access.run(&*self.runner, call, &cmd) {
            Err(failure)
                if is(&failure, libc::ENOENT)
                    && !failure.says("error opening ")
                    && !failure.says("does not exist") =>
            {
                access.run(&*self.runner, call, &cmd)
            }
            answer => answer,
        }
    }

    /// The error that a failure of `doing` is, in a pool and namespace.
    pub(super) fn error(&self, call: &Call, failure: Failure, spot: &Spot, doing: &str) -> Error {
        let Spot { access, pool, namespace } = spot;
        if failure.says("error opening pool") {
            return Error::precondition(format!("{doing}: {}", no_pool(pool)));
        }
        if says(&failure, "namespace '", "does not exist.") {
            let make = format!("rbd namespace create --pool {pool} --namespace {namespace}");
            return Error::precondition(format!(
                "{doing}: pool {pool:?} has no namespace {namespace:?}: `{make}` makes it"
            ));
        }
        let waited = timed_out(&failure);
        let refused = failure.says(OVER_QUOTA) || is(&failure, libc::EDQUOT) || is(&failure, libc::ENOSPC);
        if refused || (waited && pools::room(self, call, access, pool).is_ok_and(|room| room.full)) {
            return Error::no_space(format!("{doing}: {}", full(pool)));
        }
        if waited {
            let what = "its OSDs did not answer in time, look at `ceph -s` and `ceph health detail`";
            return Error::timeout(format!(
                "{doing}: pool {pool:?} of cluster {:?}: {what}",
                access.cluster.name
            ));
        }
        failure.into_error(doing)
    }

    /// The error that a failure to make an image is, whose pool and layout the request named.
    pub(super) fn not_made(
        &self,
        call: &Call,
        failure: Failure,
        spot: &Spot,
        layout: &Layout,
        doing: &str,
    ) -> Error {
        if let Some(pool) = missing_data_pool(&failure, layout) {
            return Error::invalid(format!("{doing}: the data pool is missing: {}", no_pool(pool)));
        }
        if is(&failure, libc::EINVAL) || failure.says("the argument for option") {
            let refused = "rbd refuses this layout (imageFeatures, objectSize, stripeUnit, stripeCount)";
            return failure.into_error(format!("{doing}: {refused}")).with_kind(Kind::InvalidArgument);
        }
        let named = failure.says("error opening pool") || says(&failure, "namespace '", "does not exist.");
        let error = self.error(call, failure, spot, doing);
        if named { error.with_kind(Kind::InvalidArgument) } else { error }
    }
}

/// Whether an OSD let a change wait for as long as [`super::OSD_TIMEOUT`] says. `rados` tells it in words. A
/// monitor that does not answer is told with the same number, while the tool connects.
fn timed_out(failure: &Failure) -> bool {
    let connecting = ["connect to", "connecting to", "authenticate timed out", "failed to fetch mon config"];
    let waited = is(failure, libc::ETIMEDOUT) || failure.says("(110) Connection timed out");
    waited && !connecting.iter().any(|piece| failure.says(piece))
}

pub(super) fn no_pool(pool: &str) -> String {
    format!("there is no pool {pool:?}: `ceph osd pool create {pool}` and `rbd pool init {pool}` make it")
}

fn full(pool: &str) -> String {
    format!(
        "pool {pool:?} is full or its quota is used up, and takes no changes, not even deletions: look at \
         `ceph df detail`, then add \
         storage or raise the quota (`ceph osd pool set-quota {pool} max_bytes N`)"
    )
}
