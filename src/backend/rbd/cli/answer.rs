//! How a command's failure is told apart: absent, refused by the set-up, or a failure nobody here can go on from.

use super::Cli;
use crate::backend::ceph::{Access, Failure};
use crate::backend::rbd::tool::{Layout, Spot};
use crate::call::Call;
use crate::error::{Error, Kind};
use crate::exec::{Cmd, Output};

/// No such file or directory.
pub(super) const ENOENT: i32 = libc::ENOENT;

/// What librbd writes where a pool whose quota is used up refuses.
const OVER_QUOTA: &str = "Disk quota exceeded";

impl Cli {
    /// Runs a command.
    pub(super) fn run(&self, call: &Call, access: &Access, cmd: Cmd) -> Result<Output, Failure> {
        access.run(&*self.runner, call, cmd)
    }
}

/// Whether the command ended with `status`.
pub(super) fn is(failure: &Failure, status: i32) -> bool {
    failure.status() == Some(status)
}

/// Whether `rbd` says that what was asked about is not there, in one of the ways `texts` in which it says only that.
///
/// A full pool is the trap: `rbd rm` then cannot write its note in the trash, and ends with 2 and "delete error: (2)" while the
/// image stays.
pub(super) fn absent(failure: &Failure, texts: &[&str]) -> bool {
    is(failure, ENOENT) && !failure.says(OVER_QUOTA) && texts.iter().any(|text| failure.says(text))
}

/// The error that a failure of `doing` is, in a pool and namespace.
pub(super) fn error(failure: Failure, spot: &Spot, doing: &str) -> Error {
    if failure.says("error opening pool") {
        let pool = &spot.pool;
        return missing(
            doing,
            format!("there is no pool {pool:?}: `ceph osd pool create {pool}` and `rbd pool init {pool}` make it"),
        );
    }
    if failure.says("namespace '") && failure.says("does not exist.") {
        let Spot { pool, namespace, .. } = spot;
        let make = format!("rbd namespace create --pool {pool} --namespace {namespace}");
        return missing(doing, format!("pool {pool:?} has no namespace {namespace:?}: `{make}` makes it"));
    }
    if failure.says(OVER_QUOTA) || [libc::EDQUOT, libc::ENOSPC].into_iter().any(|status| is(&failure, status)) {
        return failure.into_error(doing).with_kind(Kind::NoSpace);
    }
    failure.into_error(doing)
}

fn missing(doing: &str, what: String) -> Error {
    Error::precondition(format!("{doing}: {what}"))
}

/// The same error where the request's own parameters named what is missing.
fn asked_for(error: Error) -> Error {
    if error.kind() == Kind::Precondition { error.with_kind(Kind::InvalidArgument) } else { error }
}

/// The error that a failure to make an image is, whose pool and layout the request named.
pub(super) fn not_made(failure: Failure, spot: &Spot, layout: &Layout, doing: &str) -> Error {
    if let Some(pool) = missing_data_pool(&failure, layout) {
        let make = format!("`ceph osd pool create {pool}` and `rbd pool init {pool}` make it");
        return Error::invalid(format!("{doing}: there is no data pool {pool:?}: {make}"));
    }
    if is(&failure, libc::EINVAL) || failure.says("the argument for option") {
        let refused = "rbd refuses this layout (imageFeatures, objectSize, stripeUnit, stripeCount)";
        return failure.into_error(format!("{doing}: {refused}")).with_kind(Kind::InvalidArgument);
    }
    asked_for(error(failure, spot, doing))
}

/// The data pool that is missing, if that is it. rbd says 2 then; only its log says of what.
pub(super) fn missing_data_pool<'a>(failure: &Failure, layout: &'a Layout) -> Option<&'a str> {
    let named = layout.data_pool.as_deref()?;
    let missing = is(failure, ENOENT) && (failure.says("import failed: (2)") || failure.says("validate_data_pool"));
    missing.then_some(named)
}
