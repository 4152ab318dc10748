//! Copies of files in file systems that are frozen for that moment.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Answer, Ask, During, Kernel, read_reply, to_bytes};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::Class;
use crate::sys::copy::{Reflink, reflink};
use crate::sys::file;
use crate::sys::freeze::{self, Frozen, Thawed};

impl Kernel {
    /// Makes `to`, which must not exist, a copy of `from` that shares its blocks, while the file systems at
    /// `mount_points` are frozen (once each, however many of its mounts are named). Where blocks cannot be
    /// shared nothing is left of `to`.
    ///
    /// Never killed: a file system that stays frozen hangs every process that writes to it. If the helper is
    /// killed all the same, all are thawed here.
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
        let places = mount_points.iter().map(Into::into).collect();
        let clone = CloneFrozen { mount_points: places, from: from.into(), to: to.into() };
        let asked = self.helper.ask(call, &clone.step(), CloneFrozen::CLASS, &to_bytes(&clone));
        let reply = asked.or_else(|error| {
            // What one that goes on has frozen, it thaws.
            let thawed = if error.has_ended() { self.thaw_all(call, mount_points) } else { Ok(()) };
            thawed.and(Err(error.into()))
        })?;
        read_reply(&clone, &reply)
    }

    fn thaw_all(&self, call: &Call, mount_points: &[PathBuf]) -> Result<()> {
        // Each of them, and then the first failure.
        let thawed: Vec<_> = mount_points.iter().map(|place| self.ask(call, &Thaw { mount_point: place.into() })).collect();
        thawed.into_iter().zip(mount_points).try_for_each(|(thawed, place)| {
            thawed.map(drop).map_err(|error| {
                let hint = "it hangs its writers until `fsfreeze --unfreeze` is run on it";
                error.context(format_args!("{} may be frozen ({hint})", place.display()))
            })
        })
    }
}

/// See [`Kernel::clone_frozen`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CloneFrozen {
    mount_points: Vec<OsString>,
    from: OsString,
    to: OsString,
}

impl Ask for CloneFrozen {
    type Reply = Reflink;
    const CLASS: Class = Class::Unbounded;

    fn step(&self) -> String {
        format!("clone {} to {}", self.from.display(), self.to.display())
    }

    fn answer(&self) -> Answer<Reflink> {
        clone_frozen(&self.mount_points, self.from.as_ref(), self.to.as_ref())
    }

    fn explain(&self, error: Error) -> Error {
        match error.errno() {
            Some(libc::EBUSY) => error
                .with_kind(Kind::Precondition)
                .hint("somebody else has frozen it: `fsfreeze --unfreeze` ends that"),
            Some(libc::EEXIST) => error.with_kind(Kind::AlreadyExists),
            _ => error,
        }
    }
}

/// Thaws the file system at a mount point.
#[derive(Debug, Serialize, Deserialize)]
pub struct Thaw {
    /// Where it is mounted.
    pub mount_point: OsString,
}

impl Ask for Thaw {
    type Reply = Thawed;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("thaw {}", self.mount_point.display())
    }

    fn answer(&self) -> Answer<Thawed> {
        freeze::thaw(self.mount_point.as_ref()).during(|| self.step())
    }
}

/// Everything that can fail or take time without the freeze is done before and after it.
fn clone_frozen(mount_points: &[OsString], from: &Path, to: &Path) -> Answer<Reflink> {
    let source = File::open(from).during(|| format!("open {}", from.display()))?;
    let target = file::create_new(to).during(|| format!("create {}", to.display()))?;
    let cloned = reflink_frozen(mount_points, &source, &target, to).and_then(|how| {
        if how == Reflink::Cloned {
            file::sync_file(&target).during(|| format!("sync {}", to.display()))?;
        }
        Ok(how)
    });
    if cloned != Ok(Reflink::Cloned) {
        let removed = file::remove(to).during(|| format!("remove {}", to.display()));
        return cloned.and_then(|how| removed.map(|_| how));
    }
    cloned
}

fn reflink_frozen(
    mount_points: &[impl AsRef<Path>],
    source: &File,
    target: &File,
    to: &Path,
) -> Answer<Reflink> {
    let volumes = file_systems(mount_points)?;
    let home = target.metadata().during(|| format!("stat {}", to.display()))?.dev();
    if let Some((mount_point, _)) = volumes.iter().find(|(_, device)| *device == home) {
        // The clone would wait for the thaw and the thaw for the clone, for ever.
        let deadlock = Err(io::Error::from_raw_os_error(libc::EDEADLK));
        return deadlock
            .during(|| format!("freeze {}, which holds {} itself", mount_point.display(), to.display()));
    }
    // On every way out of this function what is in here is thawed.
    let frozen = freeze_all(&volumes)?;
    let cloned = reflink(source, target).during(|| format!("clone to {}", to.display()));
    for (mount_point, frozen) in frozen {
        frozen.thaw().during(|| {
            format!("thaw {} (it still hangs its writers: `fsfreeze --unfreeze` it)", mount_point.display())
        })?;
    }
    cloned
}

/// Each file system once, whichever of its mounts are named: a second freeze of the same one is EBUSY.
fn file_systems<P: AsRef<Path>>(mount_points: &[P]) -> Answer<Vec<(&Path, u64)>> {
    let mut found: Vec<(&Path, u64)> = Vec::new();
    for mount_point in mount_points.iter().map(AsRef::as_ref) {
        let device =
            std::fs::metadata(mount_point).during(|| format!("stat {}", mount_point.display()))?.dev();
        if !found.iter().any(|(_, seen)| *seen == device) {
            found.push((mount_point, device));
        }
    }
    Ok(found)
}

fn freeze_all<'a>(volumes: &[(&'a Path, u64)]) -> Answer<Vec<(&'a Path, Frozen)>> {
    let freeze = |(mount_point, _): &(&'a Path, u64)| {
        let frozen = Frozen::freeze(mount_point).during(|| format!("freeze {}", mount_point.display()))?;
        Ok((*mount_point, frozen))
    };
    volumes.iter().map(freeze).collect()
}
