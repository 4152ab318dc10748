//! What is mounted where, asked of the kernel, and the binds that staging paths and targets are.

use std::io;
use std::path::{Path, PathBuf};

use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::sys::block;
use crate::sys::file;
use crate::sys::mountinfo::{Mount, Mounts};
use crate::volume::Volumes;

/// How often a path is unmounted before it counts as mounted again and again by somebody else.
const MOST_LAYERS: usize = 8;

/// What is mounted at a path.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mounted {
    /// Nothing.
    Nothing,
    /// The volume.
    Ours,
    /// Something else.
    Foreign {
        /// Its source.
        what: String,
        /// The volume is mounted below it.
        covers_ours: bool,
    },
}

/// The kernel's table of mounts.
pub(super) fn read() -> Result<Mounts> {
    Mounts::read().map_err(|error| Error::io("read the table of mounts", &error))
}

/// The path as the table of mounts names it. One whose directory is gone is no mount point.
pub(super) fn resolved(path: &str) -> Result<PathBuf> {
    match file::resolve_parent(Path::new(path)) {
        Ok(resolved) => Ok(resolved),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PathBuf::from(path)),
        Err(error) => Err(Error::io(format!("look at {path}"), &error)),
    }
}

impl Volumes {
    /// Where the volume's device is mounted for real.
    pub(super) fn real_mount(&self, id: &VolumeId) -> PathBuf {
        self.layout.mount_point(&id.key())
    }

    /// The volume's device on this node, if it is attached and its node is there.
    fn device(&self, id: &VolumeId) -> Result<Option<block::Device>> {
        let attached = self.backends.at(&id.place).map_or(Ok(None), |backend| backend.attached(id))?;
        Ok(attached.and_then(|device| block::Device::at(&device.path).ok()))
    }

    /// What is mounted at `target`.
    pub(super) fn mounted_at(&self, id: &VolumeId, target: &Path) -> Result<Mounted> {
        let (mounts, device) = (read()?, self.device(id)?);
        let Some(present) = mounts.find_at(target) else { return Ok(Mounted::Nothing) };
        // A device that is gone leaves dead mounts: those at our paths are taken for ours.
        let ours = |mount: &Mount| device.as_ref().is_none_or(|device| mounts.of_device(device).any(|it| it.id == mount.id));
        Ok(match (ours(present), mounts.at(target).any(ours)) {
            (true, _) => Mounted::Ours,
            (false, covers_ours) => Mounted::Foreign { what: present.source.to_string_lossy().into_owned(), covers_ours },
        })
    }

    /// Makes sure that `target` is a bind of `source`. Whatever else is mounted there is left alone.
    pub(super) fn ensure_bound(&self, call: &Call, id: &VolumeId, source: &Path, target: &Path, read_only: bool) -> Result<()> {
        match self.mounted_at(id, target)? {
            Mounted::Ours => Ok(()),
            Mounted::Nothing => {
                self.kernel.bind(call, source, target, read_only).map_err(|error| error.context(format!("volume {id}")))
            }
            Mounted::Foreign { what, .. } => Err(Error::precondition(format!(
                "volume {id} cannot be mounted at {}: {what} is mounted there; unmount it first",
                target.display()
            ))),
        }
    }

    /// Takes the volume off `path`; a bind that a crash made twice lies there twice. What is not the volume's stays.
    pub(super) fn ensure_unbound(&self, call: &Call, id: &VolumeId, path: &Path) -> Result<()> {
        for _ in 0..MOST_LAYERS {
            match self.mounted_at(id, path)? {
                Mounted::Nothing | Mounted::Foreign { covers_ours: false, .. } => return Ok(()),
                Mounted::Ours => {
                    self.kernel.unmount(call, path).map(drop).map_err(|error| error.context(format!("volume {id}")))?
                }
                Mounted::Foreign { what, .. } => {
                    return Err(Error::precondition(format!(
                        "{what} is mounted over volume {id} at {}: unmount it first",
                        path.display()
                    )));
                }
            }
        }
        Err(Error::internal(format!("{} was unmounted {MOST_LAYERS} times and is still a mount point", path.display())))
    }
}
