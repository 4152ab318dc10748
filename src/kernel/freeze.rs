//! Copies of files in file systems that are frozen for that moment.

use std::path::{Path, PathBuf};

use super::{HelperRequest, Kernel, read_reply, to_bytes};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::copy::Reflink;
use crate::sys::freeze::Thawed;

impl Kernel {
    /// Makes `to`, which must not exist, a copy of `from` that shares its blocks, while the file systems at
    /// `mount_points` are frozen (each once, even if several of its mounts are named). If blocks cannot be
    /// shared, `to` is removed.
    ///
    /// The helper is never killed: a file system that stays frozen hangs all its writers. If another process
    /// kills the helper, all file systems are thawed here.
    ///
    /// # Errors
    /// [`Kind::Precondition`] when another process has frozen one of them; [`Kind::AlreadyExists`] when `to`
    /// exists.
    pub fn clone_frozen(
        &self,
        call: &Call,
        mount_points: &[PathBuf],
        from: &Path,
        to: &Path,
    ) -> Result<Reflink> {
        let step = format!("clone {} to {}", from.display(), to.display());
        let places = mount_points;
        let mount_points = mount_points.iter().map(Into::into).collect();
        let request = HelperRequest::CloneFrozen { mount_points, from: from.into(), to: to.into() };
        let asked = self.helper.ask(call, &step, Class::Unbounded, &to_bytes(&request), None);
        let reply = asked.or_else(|error| {
            // A helper that goes on thaws what it has frozen.
            let thawed = if error.has_ended() { self.thaw_all(call, places) } else { Ok(()) };
            thawed.and(Err(error.into()))
        })?;
        read_reply(&step, &reply).map_err(explain_clone)
    }

    fn thaw_all(&self, call: &Call, mount_points: &[PathBuf]) -> Result<()> {
        // Thaws each of them, before the first failure is returned.
        let thawed: Vec<_> = mount_points.iter().map(|place| self.thaw(call, place)).collect();
        thawed.into_iter().zip(mount_points).try_for_each(|(thawed, place)| {
            thawed.map(drop).map_err(|error| {
                let hint = "it hangs its writers until `fsfreeze --unfreeze` is run on it";
                error.context(format_args!("{} may be frozen ({hint})", place.display()))
            })
        })
    }

    /// Thaws the file system at `mount_point`.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn thaw(&self, call: &Call, mount_point: &Path) -> Result<Thawed> {
        let step = format!("thaw {}", mount_point.display());
        self.ask(call, &step, Class::Change, &HelperRequest::Thaw { mount_point: mount_point.into() })
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
