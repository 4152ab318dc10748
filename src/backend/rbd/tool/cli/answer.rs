//! How a command's failure is classified: absent, refused by the configuration, or a failure nobody here can
//! go on from.
//!
//! The tools write their words to stderr piece by piece, and librbd's log goes in between at any place. So
//! only a piece that is written at once can be relied on: "rename error: " is one, "(2) No such file or
//! directory" after it is another.

use super::CommandTool;
use super::space::free_space;
use crate::backend::ceph::PoolRef;
use crate::backend::ceph::{ClusterAccess, Failure, Reason};
use crate::backend::rbd::tool::Layout;
use crate::call::Call;
use crate::error::{Error, Kind};
use crate::exec::{Cmd, Output};

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
    let is_full = failure.reason() == Some(Reason::Full);
    is(failure, libc::ENOENT) && !is_full && pieces.iter().any(|piece| failure.says(piece))
}

/// The data pool that is missing, if that is it. rbd says 2 then; only its log says of what.
pub(super) fn missing_data_pool<'a>(failure: &Failure, layout: &'a Layout) -> Option<&'a str> {
    let named = layout.data_pool.as_deref()?;
    let missing =
        is(failure, libc::ENOENT) && (failure.says("import failed: ") || failure.says("validate_data_pool"));
    missing.then_some(named)
}

impl CommandTool {
    /// Runs a command.
    pub(super) fn run(&self, call: &Call, access: &ClusterAccess, cmd: Cmd) -> Result<Output, Failure> {
        access.run(&*self.runner, call, &cmd)
    }

    /// Runs a question about an image. One that is removed after it was opened fails in many words; asked
    /// again, it is absent.
    pub(super) fn ask(&self, call: &Call, access: &ClusterAccess, cmd: Cmd) -> Result<Output, Failure> {
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
    pub(super) fn error(&self, call: &Call, failure: Failure, at: &PoolRef, doing: &str) -> Error {
        let PoolRef { access, pool, namespace } = at;
        if failure.says("error opening pool") {
            return Error::precondition(format!("{doing}: {}", no_pool(pool)));
        }
        if says(&failure, "namespace '", "does not exist.") {
            let make = format!("rbd namespace create --pool {pool} --namespace {namespace}");
            return Error::precondition(format!(
                "{doing}: pool {pool:?} has no namespace {namespace:?}: `{make}` makes it"
            ));
        }
        let is_full = || {
            let space = free_space(&*self.runner, call, access, pool);
            space.is_ok_and(|space| space.is_some_and(|space| space.full))
        };
        match failure.reason() {
            Some(Reason::Full) => Error::no_space(format!("{doing}: {}", full(pool))),
            Some(Reason::Stalled) if is_full() => Error::no_space(format!("{doing}: {}", full(pool))),
            Some(Reason::Stalled) => failure.into_error(format!("{doing}: pool {pool:?}")),
            _ => failure.into_error(doing),
        }
    }

    /// The error that a failure to make an image is, whose pool and layout the request named.
    pub(super) fn not_made(
        &self,
        call: &Call,
        failure: Failure,
        at: &PoolRef,
        layout: &Layout,
        doing: &str,
    ) -> Error {
        if let Some(pool) = missing_data_pool(&failure, layout)
            && layout.is_default_data_pool
        {
            return Error::precondition(format!(
                "{doing}: the option rbd_default_data_pool, of pool {:?} (`rbd config pool ls`) or of the \
                 cluster, names a data pool that is missing: {}; or change the option, or name another pool \
                 with the parameter dataPool",
                at.pool,
                no_pool(pool)
            ));
        }
        if let Some(pool) = missing_data_pool(&failure, layout) {
            return Error::invalid(format!("{doing}: the data pool is missing: {}", no_pool(pool)));
        }
        // 22 is also said of monitors that cannot be parsed, and of a key.
        let is_about_layout = is(&failure, libc::EINVAL) && failure.reason().is_none();
        if is_about_layout || failure.says("the argument for option") {
            let refused = "rbd refuses this layout (imageFeatures, objectSize, stripeUnit, stripeCount)";
            return failure.into_error(format!("{doing}: {refused}")).with_kind(Kind::InvalidArgument);
        }
        let named = failure.says("error opening pool") || says(&failure, "namespace '", "does not exist.");
        let error = self.error(call, failure, at, doing);
        if named { error.with_kind(Kind::InvalidArgument) } else { error }
    }
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
