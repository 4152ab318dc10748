//! Copies of files in file systems that are frozen for that moment.

use std::path::{Path, PathBuf};

use super::{HelperReply, HelperRequest, Kernel, unexpected};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::copy::Reflink;
use crate::sys::freeze::Thawed;

impl Kernel {
    /// Makes `to`, which must not exist, a copy of `from` that shares its blocks, while the file systems at
    /// `mount_points` are frozen (once each, however many of its mounts are named). Where blocks cannot be
    /// shared nothing is left of `to`.
    ///
    /// Never killed: a file system that stays frozen hangs everybody who writes to it.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when one of them is frozen by somebody else; [`Kind::AlreadyExists`] when `to`
    /// exists.
    pub fn clone_frozen(
        &self,
        call: &Call,
        mount_points: &[PathBuf],
        from: &Path,
        to: &Path,
    ) -> Result<Reflink> {
        let step = format!("clone {} to {}", from.display(), to.display());
        let mount_points = mount_points.iter().map(Into::into).collect();
        let request = HelperRequest::CloneFrozen { mount_points, from: from.into(), to: to.into() };
        match self.ask(call, &step, Class::Unbounded, &request).map_err(explain_clone)? {
            HelperReply::Cloned(how) => Ok(how),
            other => Err(unexpected(&step, &other)),
        }
    }

    /// Thaws the file system at `mount_point`.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn thaw(&self, call: &Call, mount_point: &Path) -> Result<Thawed> {
        let step = format!("thaw {}", mount_point.display());
        match self.ask(
            call,
            &step,
            Class::Change,
            &HelperRequest::Thaw { mount_point: mount_point.into() },
        )? {
            HelperReply::Thawed(how) => Ok(how),
            other => Err(unexpected(&step, &other)),
        }
    }
}

fn explain_clone(error: Error) -> Error {
    match error.errno() {
        Some(libc::EBUSY) => error
            .with_kind(Kind::Precondition)
            .hint("somebody else has frozen it: `fsfreeze --unfreeze` ends that"),
        Some(libc::EEXIST) => error.with_kind(Kind::AlreadyExists),
        _ => error,
    }
}
