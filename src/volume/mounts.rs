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
pub(super) fn resolved(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    match file::resolve_parent(path) {
        Ok(resolved) => Ok(resolved),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(path.to_path_buf()),
        Err(error) => Err(Error::io(format!("look at {}", path.display()), &error)),
    }
}

/// Whether `mount` belongs to a volume whose device is gone: a bind of what is mounted at `real`, or of a device's node. Anything
/// else at the path may be anybody's.
fn is_left_over(mounts: &Mounts, real: &Path, mount: &Mount) -> bool {
    let same = |other: &Mount| (other.device, &other.root) == (mount.device, &mount.root);
    let is_node = |dev: &Mount| dev.device == mount.device && dev.root != mount.root;
    mounts.at(real).any(same) || mounts.find_at(Path::new("/dev")).is_some_and(is_node)
}

impl Volumes {
    /// Where the volume's device is mounted for real, as the table of mounts names it.
    pub(super) fn real_mount(&self, id: &VolumeId) -> Result<PathBuf> {
        resolved(&self.layout.mount_point(&id.key()))
    }

    /// The volume's device on this node, if it is attached and its node is there.
    fn device(&self, id: &VolumeId) -> Result<Option<block::Device>> {
        let attached = self.backends.at(&id.place).map_or(Ok(None), |backend| backend.attached(id))?;
        Ok(attached.and_then(|device| block::Device::at(&device.path).ok()))
    }

    /// What is mounted at `target`.
    pub(super) fn mounted_at(&self, id: &VolumeId, target: &Path) -> Result<Mounted> {
        let mounts = read()?;
        let Some(present) = mounts.find_at(target) else { return Ok(Mounted::Nothing) };
        let (device, real) = (self.device(id)?, self.real_mount(id)?);
        let ours = |mount: &Mount| match &device {
            Some(device) => mounts.of_device(device).any(|it| it.id == mount.id),
            None => is_left_over(&mounts, &real, mount),
        };
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
