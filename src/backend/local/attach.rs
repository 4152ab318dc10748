//! Volumes as loop devices of this node.
//!
//! Another process may delete a volume while this one attaches it: the deletion takes an exclusive flock(2),
//! the loop device a shared one. The second of the two is refused, unless the image was opened before the
//! deletion and locked after it: a second look, once the device exists, finds that case.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Local;
use super::files::is_name;
use super::find::Found;
use crate::backend::parameters::is_read_only;
use crate::backend::{
    Attachment, BlockDevice, DeviceHere, NodeContext, NodeDriver, Publication, PublishedBy, WriteDown,
};
use crate::csi::Access;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::kernel::Backing;
use crate::secrets::Secrets;
use crate::sys::loopdev::{self, Detached, LoopDevice};

impl NodeDriver for Local {
    fn attach(
        &self,
        call: &Call,
        id: &VolumeId,
        _found: Option<&Attachment>,
        context: &NodeContext<'_>,
        _write_down: WriteDown<'_>,
    ) -> Result<Attachment> {
        let found = self.existing(id)?;
        if found.image.is_none() {
            return Err(Error::precondition(format!("volume {id} cannot be attached: its image is missing")));
        }
        let path = self.volumes.image_path(&id.object);
        let read_only = context.read_only || is_read_only(context.publish)?;
        let image = Image { path: &path, preallocate: found.preallocate() };
        let is_mounted = matches!(context.capability.access, Access::Mount { .. });
        let attached = match read_only && is_mounted {
            true => self.replay_journal(call, image).and_then(|()| self.attach_image(call, image, true)),
            false => self.attach_image(call, image, read_only),
        };
        let device = attached.map_err(|error| error.context(format_args!("attach volume {id}")))?;
        // The volume existed all the time if it has the same incarnation before and after.
        let incarnation = |found: &Found| found.record.as_ref().ok().map(|record| record.incarnation.clone());
        if self.look_up(id)?.is_some_and(|now| incarnation(&now) == incarnation(&found)) {
            return self.to_attachment(&id.object, device);
        }
        self.loops.detach(call, &device)?;
        Err(Error::not_found(format!("volume {id} was deleted while it was attached")))
    }

    /// If another daemon is the controller, only that daemon writes to the directory.
    fn publish_here(&self, id: &VolumeId, publication: &Publication) -> Result<()> {
        match self.is_controller() {
            true => self.note_publication(id, publication, PublishedBy::Node),
            false => Ok(()),
        }
    }

    /// A device that is leaving does not count: as soon as it is closed, its number may be given to another
    /// volume.
    fn attached(&self, id: &VolumeId) -> Result<Option<Attachment>> {
        let stays = self.device_of(id)?.filter(|device| !device.is_leaving);
        stays.map(|device| self.to_attachment(&id.object, device)).transpose()
    }

    fn devices(&self) -> Result<Vec<DeviceHere>> {
        let attached = loopdev::attached().map_err(|error| Error::io("look for loop devices", &error))?;
        let device = |(path, file): (PathBuf, PathBuf)| {
            let object = file.parent()?.file_name()?.to_string_lossy().into_owned();
            let detach = format!("losetup --detach {}", path.display());
            (file == self.volumes.image_path(&object)).then_some(DeviceHere { path, object, detach })
        };
        Ok(attached.into_iter().filter_map(device).collect())
    }

    fn is_absent(&self, id: &VolumeId) -> Result<bool> {
        Ok(self.device_of(id)?.is_none())
    }

    fn detach(&self, call: &Call, id: &VolumeId, by: PublishedBy, _secrets: &Secrets) -> Result<()> {
        if let Some(device) = self.device_of(id)? {
            self.detach_device(call, id, &device)?;
        }
        match by {
            PublishedBy::Node if self.is_controller() => self.forget_own_publication(id),
            _ => Ok(()),
        }
    }

    fn grow(&self, call: &Call, id: &VolumeId, attachment: &Attachment, _least: u64) -> Result<()> {
        let device = attachment.device()?;
        self.loops.grow(call, &device.path)?;
        match (&device.backing, self.look_up(id)?) {
            (Backing::Loop(device), Some(found)) if found.preallocate() => {
                self.loops.refuse_discard(call, device)
            }
            _ => Ok(()),
        }
    }
}

/// An image to be attached.
#[derive(Clone, Copy, Debug)]
struct Image<'a> {
    path: &'a Path,
    preallocate: bool,
}

impl Local {
    fn detach_device(&self, call: &Call, id: &VolumeId, device: &LoopDevice) -> Result<()> {
        let explain = |error: Error| error.context(format_args!("detach volume {id}"));
        // A detached device would be of no use until the last device on top of it is gone.
        if self.loops.holders(device).map_err(explain)?.is_empty()
            && self.loops.detach(call, device).map_err(explain)? == Detached::Gone
        {
            return Ok(());
        }
        Err(Error::precondition(format!(
            "volume {id} cannot be detached: it is {}, and something has it open; unmount it, stop what uses \
             it, try again",
            self.users_of(device)?
        )))
    }

    fn attach_image(&self, call: &Call, image: Image<'_>, read_only: bool) -> Result<LoopDevice> {
        let device = self.loops.attach(call, image.path, read_only)?;
        if image.preallocate {
            // Also for a device that an earlier release, or a killed daemon, has attached.
            self.loops.refuse_discard(call, &device)?;
        }
        Ok(device)
    }

    /// Replays the journal before the file system is attached read-only. A read-only device cannot replay it,
    /// and the data that was synced last would be missing. No other node reaches the image.
    fn replay_journal(&self, call: &Call, image: Image<'_>) -> Result<()> {
        if let Some(device) = self.loops.find(image.path)?
            && (device.read_only || !self.loops.mounts(&device)?.is_empty())
        {
            return Ok(());
        }
        let device = match self.attach_image(call, image, false) {
            // The image is on a read-only file system.
            Err(error) if error.errno() == Some(libc::EROFS) => return Ok(()),
            attached => attached?,
        };
        let replayed = self.loops.replay_journal(call, &device);
        match self.loops.detach(call, &device)? {
            Detached::Gone => replayed,
            Detached::WhenUnused => replayed.and(Err(Error::unavailable(format!(
                "{} is in use for a moment, so it cannot be attached read-only: try again",
                device.path.display()
            )))),
        }
    }

    fn to_attachment(&self, object: &str, device: LoopDevice) -> Result<Attachment> {
        Ok(Attachment::Block(BlockDevice {
            path: device.path.clone(),
            read_only: device.read_only,
            image: self.image_of(object)?,
            backing: Backing::Loop(device),
            sparse_file: Some(self.volumes.image_path(object)),
        }))
    }

    /// The incarnation, or the inode of an image without a readable record (put here by hand).
    fn image_of(&self, object: &str) -> Result<String> {
        let Some(found) = self.look(object)? else { return Ok(String::new()) };
        Ok(match (found.record, found.image) {
            (Ok(record), _) => record.incarnation,
            (Err(_), Some(stat)) => format!("inode-{}", stat.ino()),
            (Err(_), None) => String::new(),
        })
    }

    /// The device of the volume that the ID means, not that of a newer volume of the same name.
    fn device_of(&self, id: &VolumeId) -> Result<Option<LoopDevice>> {
        if !self.is_own(&id.place) || !is_name(&id.object) {
            return Ok(None);
        }
        let other = self
            .look(&id.object)?
            .is_some_and(|found| found.record.is_ok_and(|record| !id.means(&record.incarnation)));
        if other { Ok(None) } else { self.loops.find(&self.volumes.image_path(&id.object)) }
    }

    /// "attached as /dev/loop3 and mounted at /a, /b and held by md0"
    pub(super) fn users_of(&self, device: &LoopDevice) -> Result<String> {
        let mut users = vec![format!("attached as {}", device.path.display())];
        let mounts = self.loops.mounts(device)?;
        if !mounts.is_empty() {
            let mounts: Vec<_> = mounts.iter().map(|path| path.display().to_string()).collect();
            users.push(format!("mounted at {}", mounts.join(", ")));
        }
        users.extend(self.loops.holders(device)?.iter().map(ToString::to_string));
        Ok(users.join(" and "))
    }
}
