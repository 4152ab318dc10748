//! RBD images as devices of this node: mapped, found again, unmapped.
//!
//! The kernel is the source of truth. An image is found by its id, which is unique and survives a rename. If
//! only its name is known, the image is found by the name and the cluster. Finding reads only sysfs and
//! /proc: it starts no process and waits for no storage.
//!
//! One image has one device. Two mappings would be two devices with a cache each, and destroy a file system
//! on them. So every map and unmap holds the image's lock (`locks`) and looks under it. An image that is
//! mapped twice nevertheless (by hand) is refused.
//!
//! A call looks once, before it does anything, and passes the result on ([`MapRequest::found`]).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backend::ceph::ClusterAccess;
use crate::backend::rbd::names;
use crate::backend::rbd::timing::NodeTiming;
use crate::backend::{BlockDevice, DeviceHere};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::Runner;
use crate::kernel::rbd::Unmapped;
use crate::kernel::{Backing, Kernel};
use crate::sys::block;
use crate::sys::byte_lock::ByteLock;
use crate::sys::holders;
use crate::sys::modules::Modules;
use crate::sys::mountinfo::Mounts;
use crate::sys::nbd::{ConnectedDevice, Table};
use crate::sys::openers::Openers;
use crate::sys::rbd::{Bus, MappedImage};
use crate::topology::NodeTopology;

pub(crate) mod attach;
mod condition;
mod confirm;
mod cookie;
mod image;
mod krbd;
mod locks;
mod lost;
mod nbd;
mod options;

pub use image::Image;
pub use options::Mounter;

use locks::{MapLocks, failed};

/// How an image is to be mapped.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// What maps the image.
    pub mounter: Mounter,
    /// Further options ([`Mounter::parse_options`]).
    pub options: Vec<String>,
    /// Whether to map it read-only.
    pub read_only: bool,
    /// The image's features by rbd's names; empty if they are not known.
    pub features: BTreeSet<String>,
}

/// The device of an image that the kernel has mapped.
fn of_kernel(image: MappedImage) -> BlockDevice {
    BlockDevice {
        path: image.path(),
        image: image.image_id.clone(),
        read_only: image.read_only,
        backing: Backing::Rbd(image),
        sparse_file: None,
    }
}

/// The device of an image that rbd-nbd serves.
fn of_nbd(connected: ConnectedDevice) -> BlockDevice {
    BlockDevice {
        path: connected.path(),
        image: cookie::image_id(&connected.cookie).into(),
        read_only: connected.read_only,
        backing: Backing::Nbd(connected),
        sparse_file: None,
    }
}

/// Maps images on this node.
#[derive(Clone)]
pub struct Mapper {
    kernel: Kernel,
    runner: Arc<dyn Runner>,
    bus: Bus,
    table: Table,
    modules: Modules,
    locks: MapLocks,
    topology: Arc<NodeTopology>,
    in_container: bool,
    timing: NodeTiming,
}

/// Asks the cluster for the id of the image that has the name now.
pub type IdNow<'a> = &'a dyn Fn() -> Result<Option<String>>;

/// An image that is to be mapped.
#[derive(Clone, Copy)]
pub struct MapRequest<'a> {
    /// Its cluster and the credentials.
    pub access: &'a ClusterAccess,
    /// The image, with its id.
    pub image: &'a Image<'a>,
    /// What maps it, and how.
    pub options: &'a MapOptions,
    /// The device it is mapped as, if any.
    pub found: Option<&'a BlockDevice>,
    /// For rbd-nbd, which maps by name and does not report what it has mapped.
    pub id_now: IdNow<'a>,
}

impl Mapper {
    /// A mapper that uses `kernel`, and runs tools by `runner`. `locks` is a file that lives until the next
    /// boot. `topology` says which OSDs are near, for mappings that read from near ones. In a container there
    /// is no rbd-nbd: its processes would end with that.
    pub fn new(
        kernel: Kernel,
        runner: Arc<dyn Runner>,
        locks: PathBuf,
        (topology, in_container): (Arc<NodeTopology>, bool),
    ) -> Self {
        Self {
            kernel,
            runner,
            bus: Bus::default(),
            table: Table::default(),
            modules: Modules::default(),
            locks: MapLocks::at(locks),
            topology,
            in_container,
            timing: NodeTiming::default(),
        }
    }

    /// A mapper that sees sysfs and /proc below `root`.
    #[cfg(test)]
    pub(crate) fn below(root: &Path, kernel: Kernel, runner: Arc<dyn Runner>) -> Self {
        let sysfs = root.join("sys");
        Self {
            bus: Bus::at(&sysfs),
            table: Table::at(&sysfs, root.join("proc")),
            modules: Modules::at(root.join("modules")),
            timing: NodeTiming { earlier_map: std::time::Duration::ZERO, ..NodeTiming::default() },
            ..Self::new(kernel, runner, root.join("run/map-locks"), Default::default())
        }
    }

    /// Checks that this node can map images, by the kernel's driver or by rbd-nbd; the error says why neither
    /// is there, nor could be.
    pub fn usable(&self) -> Result<()> {
        self.kernel.can_mount()?;
        match (self.has_kernel_driver(), self.has_nbd()) {
            (Err(kernel), Err(nbd)) => {
                Err(Error::precondition(format!("no image can be mapped on this node: {kernel}; {nbd}")))
            }
            _ => Ok(()),
        }
    }

    /// Maps an image, or takes the device it is mapped as. A mapped image keeps its options and its mounter,
    /// even if the request names others. A device for writing serves a reader, too.
    ///
    /// The kernel reports the id of the image it has mapped. rbd-nbd maps by name and reports nothing, so the
    /// name is looked up once more afterwards. If it means another image, the device is unmapped again.
    ///
    /// # Errors
    /// Precondition if the image is mapped read-only but wanted for writing, if the mounter lacks one of its
    /// features, or if the node lacks the mounter; not found, unauthenticated, unavailable as the cluster
    /// answers; an invalid argument for an option.
    pub fn map(&self, call: &Call, wanted: &MapRequest<'_>) -> Result<BlockDevice> {
        let MapRequest { image, options, found, .. } = wanted;
        options.options.iter().try_for_each(|option| options.mounter.check(option))?;
        let device = found.map_or_else(|| self.map_anew(call, wanted), |found| Ok(found.clone()))?;
        self.ensure_served(call, wanted, &device)?;
        if device.read_only && !options.read_only {
            return Err(Error::precondition(format!(
                "{image} is to be written, but is mapped read-only as {}: end its use there first",
                device.path.display()
            )));
        }
        Ok(device)
    }

    /// Holds the image's lock until it is known which image was mapped. If that stays unknown, the processes
    /// that still run keep the lock.
    fn map_anew(&self, call: &Call, wanted: &MapRequest<'_>) -> Result<BlockDevice> {
        let image = wanted.image;
        image.id()?;
        let lock = self.lock(call, image)?;
        let (numbers, present) = self.look(image)?;
        // An earlier command may have mapped the image by now.
        let device = match (only_one(image, present)?, wanted.options.mounter) {
            (Some(device), _) => device,
            (None, Mounter::Kernel) => self.map_by_kernel(call, wanted, numbers, &lock)?,
            (None, Mounter::Nbd) => self.map_by_nbd(call, wanted, &lock)?,
        };
        self.verify(call, wanted, &device)?;
        self.refuse_dead(image, &device)?;
        lock.give_back().map_err(|error| failed(image, &error))?;
        Ok(device)
    }

    /// The device an image is mapped as. A device that a broken-off map has left does not count.
    ///
    /// # Errors
    /// Precondition, with the paths, if there are several devices; failures to read sysfs.
    pub fn find(&self, image: &Image<'_>) -> Result<Option<BlockDevice>> {
        let mut found = Vec::new();
        for device in self.find_all(image)? {
            if self.is_seen_to(image, &device)? {
                found.push(device);
            }
        }
        only_one(image, found)
    }

    fn find_all(&self, image: &Image<'_>) -> Result<Vec<BlockDevice>> {
        self.look(image).map(|(_, found)| found)
    }

    /// The devices of volumes, also those that others have mapped. One that is mounted, or has a device on
    /// top of it, may be that of another cephlet on this host, and is left out.
    pub fn devices(&self) -> io::Result<Vec<DeviceHere>> {
        let device = |path: PathBuf, object: &str, unmap: &str| DeviceHere {
            detach: format!("if no other cephlet on this host uses it: {unmap} {}", path.display()),
            object: object.to_string(),
            path,
        };
        let is_unused = |device: &DeviceHere| Self::users(&device.path).is_ok_and(|users| users.is_empty());
        let mapped = self.bus.mapped()?.into_iter().filter(|it| names::is_volume(&it.name));
        let mapped = mapped.map(|it| device(it.path(), &it.name, "rbd device unmap"));
        let connected = self.table.connected()?.into_iter();
        let connected = connected.filter_map(|it| {
            let [.., name, _] = cookie::fields(&it.cookie)?;
            Some(device(it.path(), name, "rbd-nbd unmap"))
        });
        Ok(mapped.chain(connected).filter(is_unused).collect())
    }

    /// The numbers of all devices of the kernel's driver, and the devices of the image.
    fn look(&self, image: &Image<'_>) -> Result<(Vec<u32>, Vec<BlockDevice>)> {
        let look = || {
            let mapped = self.bus.mapped()?;
            let numbers = mapped.iter().map(|mapped| mapped.number).collect();
            let by_kernel = mapped.into_iter().filter(|mapped| image.is(mapped)).map(of_kernel);
            let connected = self.table.connected()?.into_iter();
            let by_nbd = connected.filter(|device| cookie::means(&device.cookie, image)).map(of_nbd);
            Ok((numbers, by_kernel.chain(by_nbd).collect()))
        };
        look().map_err(|error| Error::io(format_args!("look where {image} is mapped"), &error))
    }

    /// Unmaps a device. A device that is gone, or is another image's by now, counts as unmapped.
    ///
    /// # Errors
    /// Precondition, with the users, while the device is in use; what the kernel or the tool answers.
    fn unmap(&self, call: &Call, device: &BlockDevice, lock: Option<&ByteLock>) -> Result<()> {
        let users = Self::users(&device.path)?;
        let unmapped = match &device.backing {
            _ if !users.is_empty() => Unmapped::InUse,
            Backing::Rbd(image) => self.kernel.unmap_rbd(call, image, lock)?,
            Backing::Nbd(connected) => self.unmap_nbd(call, connected)?,
            Backing::Loop(_) => return Err(Error::internal("a loop device is no image's")),
        };
        match unmapped {
            Unmapped::Done => Ok(()),
            Unmapped::InUse => Err(self.busy(call, device, users)),
        }
    }

    /// Unmaps every device of an image, and returns them.
    ///
    /// # Errors
    /// Precondition, with the users, while a device is in use; unavailable while a process that was given up
    /// still maps or unmaps; what the kernel or the tool answers.
    pub fn ensure_unmapped(&self, call: &Call, image: &Image<'_>) -> Result<Vec<BlockDevice>> {
        if self.is_absent(image)? {
            return Ok(Vec::new());
        }
        let lock = self.lock(call, image)?;
        let found = self.find_all(image)?;
        found.iter().map(|device| self.unmap(call, device, Some(&lock))).fold(Ok(()), Result::and)?;
        lock.give_back().map_err(|error| failed(image, &error))?;
        Ok(found)
    }

    /// Whether the image is not mapped, and no process is about to map it.
    ///
    /// # Errors
    /// Failures to read sysfs.
    pub fn is_absent(&self, image: &Image<'_>) -> Result<bool> {
        Ok(!self.is_locked(image)? && self.find_all(image)?.is_empty())
    }

    /// Lets the device follow the image's size.
    ///
    /// The cluster tells the kernel's driver a new size, and the call only reminds the driver of it. rbd-nbd
    /// follows by itself, a moment after the image has grown. The call waits until the device has `least`
    /// bytes, or until rbd-nbd must have heard of the new size.
    ///
    /// # Errors
    /// Not found when the device is gone; what the kernel answers.
    pub fn refresh(&self, call: &Call, device: &BlockDevice, least: u64) -> Result<()> {
        match &device.backing {
            Backing::Rbd(image) => self.kernel.refresh_rbd(call, image).map(drop),
            Backing::Nbd(connected) => self.await_size(call, connected, least),
            Backing::Loop(_) => Ok(()),
        }
    }

    /// Mounts of the device, and devices on top of it.
    fn users(path: &Path) -> Result<Vec<String>> {
        let failed = |error| Error::io(format_args!("look who uses {}", path.display()), &error);
        let device = match block::Device::at(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            device => device.map_err(failed)?,
        };
        let mounts = Mounts::read().map_err(failed)?;
        let mounted =
            mounts.of_device(&device).map(|mount| format!("mounted at {}", mount.mount_point.display()));
        let holders = holders::of(device.number).map_err(failed)?;
        Ok(mounted.chain(holders.iter().map(ToString::to_string)).collect())
    }

    fn busy(&self, call: &Call, device: &BlockDevice, mut users: Vec<String>) -> Error {
        let path = &device.path;
        let openers =
            block::Device::at(path).ok().and_then(|device| self.kernel.openers(call, device.number).ok());
        let Openers { seen, hidden } = openers.unwrap_or_default();
        let others = seen.into_iter().filter(|opener| match &device.backing {
            Backing::Nbd(connected) => !self.table.serves(opener.process, connected),
            _ => true,
        });
        users.extend(others.map(|opener| format!("open in {} ({})", opener.name, opener.process)));
        if users.is_empty() && hidden > 0 {
            users.push(format!(
                "perhaps open in one of {hidden} processes that cephlet may not look at (grant it CAP_SYS_PTRACE)"
            ));
        }
        let users = if users.is_empty() {
            "in use, or mounted in another mount namespace".to_owned()
        } else {
            users.join(", ")
        };
        Error::precondition(format!(
            "{} cannot be unmapped: it is {users}; end that and try again",
            path.display()
        ))
    }
}

fn only_one(image: &Image<'_>, mut found: Vec<BlockDevice>) -> Result<Option<BlockDevice>> {
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let paths: Vec<String> = found.iter().map(|device| device.path.display().to_string()).collect();
    Err(Error::precondition(format!(
        "{image} is mapped as {}, and what is written to one of them is lost by the other: end the use of all but \
         one, and unmap them (`rbd device unmap`)",
        paths.join(" and as ")
    )))
}

#[cfg(test)]
mod tests;
