//! Mounts, as the kernel reports them, and the bind mounts at staging paths and targets.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::backend::{Attachment, Backend};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::sys::file;
use crate::sys::mountinfo::{Mount, Mounts};
use crate::volume::Operations;
use crate::volume::node::record::{Made, NodeRecord};
use crate::volume::request::Access;

/// How often a path is unmounted before another process is assumed to mount it again and again.
const MAX_LAYERS: usize = 8;

/// What is mounted at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    /// Nothing.
    Nothing,
    /// The volume.
    Ours {
        /// Whether nothing can be written there.
        read_only: bool,
    },
    /// Another file system.
    Foreign {
        /// Its source.
        what: String,
        /// Whether the volume is mounted below it.
        covers_ours: bool,
    },
}

/// A volume on this node, as one call has found and changed it. The call holds the volume's lock, so the
/// record is read once, and the kernel's state once until the call changes it.
pub(crate) struct OnNode<'a> {
    pub(crate) call: &'a Call,
    pub(crate) id: &'a VolumeId,
    pub(crate) backend: &'a dyn Backend,
    /// The record of an earlier volume of the same name.
    pub(crate) predecessor: Option<NodeRecord>,
    record: RefCell<Option<NodeRecord>>,
    /// The volume's attachment, if it is attached; None until it is looked up.
    attachment: RefCell<Option<Option<Attachment>>>,
    /// The kernel's table of mounts; None until it is read.
    mounts: RefCell<Option<Rc<Mounts>>>,
}

impl OnNode<'_> {
    /// The node's record of the volume.
    pub(crate) fn record(&self) -> Option<NodeRecord> {
        self.record.borrow().clone()
    }

    /// The record, if the volume is in use.
    pub(crate) fn record_in_use(&self) -> Option<NodeRecord> {
        self.record().filter(|record| !record.is_unused())
    }

    /// The record of a volume that must have one.
    pub(crate) fn recorded(&self) -> Result<NodeRecord> {
        let lost =
            || Error::internal(format!("volume {} is in use, but this node has no record of it", self.id));
        self.record().ok_or_else(lost)
    }

    /// The record of a volume that is staged or published at `path`.
    pub(crate) fn record_at(&self, path: &str) -> Result<NodeRecord> {
        let record = self.record().filter(|record| record.paths().any(|known| known == path));
        let elsewhere = || format!("volume {} is neither staged nor published at {path}", self.id);
        record.ok_or_else(|| Error::not_found(elsewhere()))
    }

    /// Notes the record that was written.
    pub(crate) fn was_recorded(&self, record: Option<NodeRecord>) {
        *self.record.borrow_mut() = record;
    }

    /// The ID of the volume with the image that is attached on this node.
    pub(crate) fn id_here(&self) -> VolumeId {
        let image = self.record().map(|record| record.attached.image).filter(|image| !image.is_empty());
        VolumeId { incarnation: image.or_else(|| self.id.incarnation.clone()), ..self.id.clone() }
    }

    /// The volume's attachment, if it is attached.
    pub(crate) fn attachment(&self) -> Result<Option<Attachment>> {
        if let Some(known) = &*self.attachment.borrow() {
            return Ok(known.clone());
        }
        let found = self.backend.node().attached(&self.id_here())?;
        *self.attachment.borrow_mut() = Some(found.clone());
        Ok(found)
    }

    /// Notes the new attachment. The table of mounts may be out of date, so it is forgotten, unless the file
    /// system is mounted nowhere: then its mount comes next, and forgets the table.
    pub(crate) fn was_attached(&self, attachment: Attachment, access: &Access) {
        let is_next = |mounts: &Mounts| attachment.mounts_in(mounts).is_some_and(|own| own.is_empty());
        self.mounts.borrow_mut().take_if(|mounts| *access == Access::Block || !is_next(mounts));
        *self.attachment.borrow_mut() = Some(Some(attachment));
    }

    /// The kernel's table of mounts.
    pub(crate) fn mounts(&self) -> Result<Rc<Mounts>> {
        if let Some(known) = &*self.mounts.borrow() {
            return Ok(Rc::clone(known));
        }
        let found = Rc::new(read()?);
        *self.mounts.borrow_mut() = Some(Rc::clone(&found));
        Ok(found)
    }

    /// Forgets the table of mounts, before it changes.
    pub(crate) fn forget_mounts(&self) {
        self.mounts.take();
    }

    /// Forgets the attachment, before it may change.
    pub(crate) fn forget_attachment(&self) {
        self.attachment.take();
    }

    /// Forgets both, so that they are looked up again.
    pub(crate) fn look_again(&self) {
        self.attachment.take();
        self.mounts.take();
    }
}

/// A bind mount to make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bind<'a> {
    pub(crate) source: &'a Path,
    pub(crate) target: &'a Path,
    /// A file is bound for a block device, a directory for a file system.
    pub(crate) access: &'a Access,
    pub(crate) read_only: bool,
}

/// The kernel's table of mounts.
pub(crate) fn read() -> Result<Mounts> {
    Mounts::read().map_err(|error| Error::io("read the table of mounts", &error))
}

/// The path as the table of mounts names it. A path whose directory is gone is no mount point.
pub(crate) fn resolved(path: impl AsRef<Path>) -> Result<PathBuf> {
    let path = path.as_ref();
    match file::resolve_parent(path) {
        Ok(resolved) => Ok(resolved),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(path.to_path_buf())
        }
        Err(error) => Err(Error::io(format!("look at {}", path.display()), &error)),
    }
}

/// Whether anything is mounted at the path.
pub(crate) fn is_mount_point(mounts: &Mounts, path: &str) -> bool {
    // A path of the table needs no look at its directories, which may hang.
    mounts.find_at(Path::new(path)).is_some()
        || resolved(path).is_ok_and(|path| mounts.find_at(&path).is_some())
}

/// Makes the directory or file to bind over, if it is missing. A symbolic link is refused: the mount would be
/// at another path than the one that is looked at.
pub(crate) fn ensure_place(path: &Path, directory: bool) -> Result<()> {
    let refused = |what: &str| {
        Err(Error::precondition(format!("{} {what}: remove it, or name another path", path.display())))
    };
    let made = match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => return refused("is a symbolic link"),
        Ok(found) if found.is_dir() && !directory => return refused("is a directory"),
        Ok(found) if !found.is_dir() && directory => return refused("is no directory"),
        Ok(_) => Ok(()),
        Err(_) if directory => file::ensure_dir(path),
        Err(_) => file::ensure_file(path),
    };
    made.map_err(|error| Error::io(format!("create {}", path.display()), &error))
}

/// The same for a path that an orchestrator named. Consumers can pass through the directories above it.
pub(crate) fn ensure_named_place(path: &Path, directory: bool) -> Result<()> {
    file::ensure_parents(path)
        .map_err(|error| Error::io(format!("create the directories above {}", path.display()), &error))?;
    ensure_place(path, directory)
}

/// Whether `mount` belongs to a volume whose device is gone: it is of a missing device, a bind of the file
/// system mounted at `real`, or a bind of a device node. Any other mount may belong to another user.
fn is_left_over(mounts: &Mounts, real: &Path, mount: &Mount) -> bool {
    let same = |other: &Mount| (other.device, &other.root) == (mount.device, &mount.root);
    let is_node = |dev: &Mount| dev.device == mount.device && dev.root != mount.root;
    mount.device.is_of_gone_device()
        || mounts.at(real).any(same)
        || mounts.find_at(Path::new("/dev")).is_some_and(is_node)
}

impl Operations {
    /// The path of the volume's real mount, as the table of mounts names it.
    pub(crate) fn real_mount(&self, id: &VolumeId) -> Result<PathBuf> {
        resolved(self.layout.mount_point(&self.record_key(id)))
    }

    /// The volume as it is on this node now.
    pub(crate) fn on_node<'a>(
        &self,
        call: &'a Call,
        id: &'a VolumeId,
        backend: &'a dyn Backend,
    ) -> Result<OnNode<'a>> {
        let (record, predecessor) = self.records_under_name(id)?;
        let (record, attachment, mounts) = (RefCell::new(record), RefCell::default(), RefCell::default());
        Ok(OnNode { call, id, backend, predecessor, record, attachment, mounts })
    }

    /// What is made for a path of a volume: nothing if the path exists. Directories above it that were made
    /// for other paths are removed with the last of these paths.
    pub(crate) fn what_is_made_for(&self, path: impl AsRef<Path>) -> Made {
        let path = path.as_ref();
        if !file::is_absent(path) {
            return Made::default();
        }
        let records = self.node_records();
        let made: HashSet<&Path> = records
            .iter()
            .flat_map(|(_, record)| &record.uses)
            .flat_map(|it| it.made.parents.iter().map(Path::new))
            .collect();
        let goes_with_it = |above: &&Path| made.contains(*above) || file::is_absent(above);
        let above = path.ancestors().skip(1).filter(goes_with_it);
        let mut parents: Vec<_> = above.map(|above| above.display().to_string()).collect();
        parents.reverse();
        Made { itself: true, parents }
    }

    /// Enters what is made for a target into its record. A path that was left behind stays ours.
    pub(crate) fn enter_what_is_made(&self, record: &mut NodeRecord, path: &str) {
        if let Some(target) = record.uses.iter_mut().find(|it| !it.is_staging() && it.path == path)
            && file::is_absent(Path::new(path))
        {
            target.made = self.what_is_made_for(path);
        }
    }

    /// Writes a volume's record; durable when Ok.
    pub(crate) fn write_record(&self, volume: &OnNode<'_>, record: NodeRecord) -> Result<()> {
        self.remember(volume.id, &record)?;
        volume.was_recorded(Some(record));
        Ok(())
    }

    /// The mount points of the volume, and of its device node.
    pub(crate) fn mount_points(&self, volume: &OnNode<'_>) -> Result<Vec<PathBuf>> {
        let (mounts, attachment) = (volume.mounts()?, volume.attachment()?);
        let own = attachment.as_ref().and_then(|attachment| attachment.mounts_in(&mounts));
        Ok(own.unwrap_or_default().iter().map(|mount| mount.mount_point.clone()).collect())
    }

    /// What is mounted at `target`.
    pub(crate) fn mounted_at(&self, volume: &OnNode<'_>, target: impl AsRef<Path>) -> Result<Mounted> {
        let (mounts, target) = (volume.mounts()?, &resolved(target)?);
        if mounts.at(target).next().is_none() {
            return Ok(Mounted::Nothing);
        }
        let (real, attachment) = (self.real_mount(volume.id)?, volume.attachment()?);
        let own = attachment.as_ref().and_then(|attachment| attachment.mounts_in(&mounts));
        let ours = |mount: &Mount| match &own {
            Some(own) => own.iter().any(|it| it.id == mount.id),
            None => {
                is_left_over(&mounts, &real, mount)
                    || volume.backend.node().is_mount_of(&volume.id_here(), mount)
            }
        };
        let covers_ours = mounts.at(target).any(ours);
        // Where none is seen, a mount on a directory above covers them all.
        let covering = mounts.find_at(target).or_else(|| mounts.under(target).filter(|_| covers_ours));
        Ok(match covering {
            None => Mounted::Nothing,
            Some(present) if present.mount_point == *target && ours(present) => {
                Mounted::Ours { read_only: present.is_read_only() }
            }
            Some(present) => {
                Mounted::Foreign { what: present.source.to_string_lossy().into_owned(), covers_ours }
            }
        })
    }

    /// Refuses a path whose mounts are seen in this container alone: its orchestrator would take the volume
    /// for published, and the consumer would write into a directory of the host.
    pub(crate) fn refuse_unseen(&self, volume: &OnNode<'_>, path: &Path) -> Result<()> {
        if !self.in_container {
            return Ok(());
        }
        let (mounts, path) = (volume.mounts()?, resolved(path)?);
        match mounts.under(&path) {
            Some(mount) if !mount.is_shared => Err(Error::precondition(format!(
                "volume {} cannot be published at {}: the host would not see it there, as {} is mounted in this \
                 container without propagation: start the container with that directory of the host as rshared",
                volume.id,
                path.display(),
                mount.mount_point.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Makes sure that the bind mount exists, and a place to bind over. Any other mount there is left alone.
    pub(crate) fn ensure_bound(&self, volume: &OnNode<'_>, bind: &Bind<'_>) -> Result<()> {
        let OnNode { call, id, .. } = *volume;
        let Bind { source, target: path, access, read_only } = *bind;
        let explain = |error: Error| error.context(format!("volume {id}"));
        match self.mounted_at(volume, path)? {
            // A crash came before the bind was made read-only, so no consumer has it.
            Mounted::Ours { read_only: false } if read_only => self.ensure_unbound(volume, path)?,
            Mounted::Ours { .. } => return Ok(()),
            Mounted::Nothing => {
                ensure_named_place(path, matches!(access, Access::Mount { .. })).map_err(explain)?
            }
            Mounted::Foreign { what, .. } => {
                return Err(Error::precondition(format!(
                    "volume {id} cannot be mounted at {}: {what} is mounted there; unmount it first",
                    path.display()
                )));
            }
        }
        volume.forget_mounts();
        self.kernel.bind(call, source, &resolved(path)?, read_only).map_err(explain)
    }

    /// Unmounts the volume from `path`, twice if a crash made the bind twice. Other mounts there stay.
    pub(crate) fn ensure_unbound(&self, volume: &OnNode<'_>, path: impl AsRef<Path>) -> Result<()> {
        let OnNode { call, id, .. } = *volume;
        let path = &resolved(path)?;
        for _ in 0..MAX_LAYERS {
            match self.mounted_at(volume, path)? {
                Mounted::Nothing | Mounted::Foreign { covers_ours: false, .. } => return Ok(()),
                Mounted::Ours { .. } => {
                    volume.forget_mounts();
                    let unmounted = self.kernel.unmount(call, path).map(drop);
                    unmounted.map_err(|error| error.context(format!("volume {id}")))?;
                }
                Mounted::Foreign { what, .. } => {
                    return Err(Error::precondition(format!(
                        "{what} is mounted over volume {id} at {}: unmount it first",
                        path.display()
                    )));
                }
            }
        }
        Err(Error::internal(format!(
            "{} was unmounted {MAX_LAYERS} times and is still a mount point",
            path.display()
        )))
    }
}
