//! RBD images as devices of this node: mapped, found again, unmapped.
//!
//! The kernel is the truth. An image is found by its id, which a rename does not change and no other image
//! has; where only its name is known, by that and the cluster. Finding reads sysfs and /proc alone: it starts
//! no process and waits for no storage.
//!
//! One image has one device. Two mappings would be two devices with a cache each, and a file system on both
//! of them is lost. So what maps holds the image's lock (`locks`) and looks again under it, and what is found
//! twice all the same (by hand) is brought down to the one in use.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use log::warn;

use crate::backend::BlockDevice;
use crate::backend::ceph::ClusterAccess;
use crate::backend::rbd::timing::NodeTiming;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::exec::Runner;
use crate::kernel::rbd::Unmapped;
use crate::kernel::{Backing, Kernel};
use crate::sys::block;
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

use locks::MapLocks;

/// How an image is to be mapped.
#[derive(Clone, Debug)]
pub struct MapOptions {
    /// By what.
    pub mounter: Mounter,
    /// Further options ([`Mounter::parse_options`]).
    pub options: Vec<String>,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// The image's features by rbd's names; empty if they are not known.
    pub features: BTreeSet<String>,
}

/// An image that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its device.
    pub device: BlockDevice,
    by: MappedBy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum MappedBy {
    Kernel(MappedImage),
    Nbd(ConnectedDevice),
}

impl Mapping {
    fn kernel(image: MappedImage) -> Self {
        // By hand it may have been mapped with its key in the options, and a backing is seen in `ps`.
        let shown = MappedImage { config: String::new(), ..image.clone() };
        let device = BlockDevice {
            path: image.path(),
            backing: Backing::Rbd(shown),
            image: image.image_id.clone(),
            read_only: image.read_only,
            sparse_file: None,
        };
        Self { device, by: MappedBy::Kernel(image) }
    }

    fn nbd(connected: ConnectedDevice) -> Self {
        let device = BlockDevice {
            path: connected.path(),
            backing: Backing::Nbd(connected.clone()),
            image: cookie::image_id(&connected.cookie).into(),
            read_only: connected.read_only,
            sparse_file: None,
        };
        Self { device, by: MappedBy::Nbd(connected) }
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
    timing: NodeTiming,
}

/// Asks the cluster which image has the name now: its id.
pub type IdNow<'a> = &'a dyn Fn() -> Result<Option<String>>;

/// An image that is to be mapped.
#[derive(Clone, Copy)]
pub struct MapRequest<'a> {
    /// Its cluster and the credentials.
    pub access: &'a ClusterAccess,
    /// The image, with its id.
    pub image: &'a Image<'a>,
    /// By what, and how.
    pub options: &'a MapOptions,
    /// For what maps by name and does not tell what it has mapped.
    pub id_now: IdNow<'a>,
}

impl Mapper {
    /// Maps by asking `kernel` and running tools by `runner`. `locks` is a file of this boot, the same after
    /// a restart. Reads are near to where `topology` says, where they are to be near.
    pub fn new(kernel: Kernel, runner: Arc<dyn Runner>, locks: PathBuf, topology: Arc<NodeTopology>) -> Self {
        Self {
            kernel,
            runner,
            bus: Bus::default(),
            table: Table::default(),
            modules: Modules::default(),
            locks: MapLocks::at(locks),
            topology,
            timing: NodeTiming::default(),
        }
    }

    /// A mapper that sees sysfs and /proc below `root`.
    #[cfg(test)]
    pub(crate) fn below(root: &std::path::Path, kernel: Kernel, runner: Arc<dyn Runner>) -> Self {
        let sysfs = root.join("sys");
        Self {
            bus: Bus::at(&sysfs),
            table: Table::at(&sysfs, root.join("proc")),
            modules: Modules::at(root.join("modules")),
            timing: NodeTiming { earlier_map: std::time::Duration::ZERO, ..NodeTiming::default() },
            ..Self::new(kernel, runner, root.join("run/map-locks"), Arc::default())
        }
    }

    /// Why no image can be mapped here, if so: neither the kernel's driver nor rbd-nbd is there, nor could
    /// be.
    pub fn usable(&self) -> Result<()> {
        self.kernel.can_mount()?;
        match (self.has_kernel_driver(), self.has_nbd()) {
            (Err(kernel), Err(nbd)) => {
                Err(Error::precondition(format!("no image can be mapped on this node: {kernel}; {nbd}")))
            }
            _ => Ok(()),
        }
    }

    /// Maps an image, or finds the device it is mapped as. An image that is mapped with other options, or by
    /// another mounter, keeps them; one that is mapped for writing is found also by who only reads.
    ///
    /// The kernel reports the id of what it has mapped. rbd-nbd maps by name and reports nothing, so the name
    /// is looked up once more afterwards. Another image than the one meant is unmapped again.
    ///
    /// # Errors
    /// Precondition when it is mapped read-only and is to be written, has features that the mounter cannot
    /// do, or the node lacks what maps it; not found, unauthenticated, unavailable as the cluster answers; an
    /// invalid argument for an option.
    pub fn map(&self, call: &Call, wanted: &MapRequest<'_>) -> Result<Mapping> {
        let MapRequest { image, options, .. } = wanted;
        options.options.iter().try_for_each(|option| options.mounter.check(option))?;
        let mapping = match self.find(image)? {
            Some(mapping) => self.keep_one(call, image, mapping)?,
            None => self.map_anew(call, wanted)?,
        };
        self.ensure_served(call, wanted, &mapping)?;
        if mapping.device.read_only && !options.read_only {
            return Err(Error::precondition(format!(
                "{image} is to be written, but is mapped read-only as {}: end its use there first",
                mapping.device.path.display()
            )));
        }
        Ok(mapping)
    }

    /// Holds the image's lock until it is known what was mapped. If that cannot be known, whatever still runs
    /// of it keeps the lock.
    fn map_anew(&self, call: &Call, wanted: &MapRequest<'_>) -> Result<Mapping> {
        let image = wanted.image;
        image.id()?;
        let lock = self.lock(call, image)?;
        // An earlier command may have come to its end.
        if self.find_all(image)?.is_empty() {
            match wanted.options.mounter {
                Mounter::Kernel => self.map_by_kernel(call, wanted)?,
                Mounter::Nbd => self.map_by_nbd(call, wanted, &lock)?,
            }
        }
        let gone = || {
            Error::unavailable(format!(
                "{image} was mapped, but its device is gone or stands for another image: try again"
            ))
        };
        let mapping = self.pick(self.find_all(image)?)?.ok_or_else(gone)?;
        self.verify(call, wanted, &mapping)?;
        self.refuse_dead(image, &mapping)?;
        lock.give_back().map_err(|error| {
            Error::io(format_args!("release the lock by which {image} is mapped"), &error)
        })?;
        self.keep_one(call, image, mapping)
    }

    /// The device an image is mapped as; of several, the one in use, then the first. One that a map which was
    /// broken off has left is none.
    ///
    /// # Errors
    /// Failures to read sysfs or mountinfo.
    pub fn find(&self, image: &Image<'_>) -> Result<Option<Mapping>> {
        let mut found = Vec::new();
        for mapping in self.find_all(image)? {
            if self.is_seen_to(image, &mapping)? {
                found.push(mapping);
            }
        }
        self.pick(found)
    }

    fn pick(&self, mut found: Vec<Mapping>) -> Result<Option<Mapping>> {
        if found.len() < 2 {
            return Ok(found.pop());
        }
        for (place, mapping) in found.iter().enumerate() {
            if !self.users(mapping)?.is_empty() {
                return Ok(Some(found.swap_remove(place)));
            }
        }
        Ok(Some(found.swap_remove(0)))
    }

    fn find_all(&self, image: &Image<'_>) -> Result<Vec<Mapping>> {
        let look = || {
            let by_kernel =
                self.bus.mapped()?.into_iter().filter(|mapped| image.is(mapped)).map(Mapping::kernel);
            let connected = self.table.connected()?.into_iter();
            let by_nbd = connected.filter(|device| cookie::means(&device.cookie, image)).map(Mapping::nbd);
            Ok(by_kernel.chain(by_nbd).collect())
        };
        look().map_err(|error| Error::io(format_args!("look where {image} is mapped"), &error))
    }

    /// Unmaps all other mappings, if nobody uses them.
    fn keep_one(&self, call: &Call, image: &Image<'_>, kept: Mapping) -> Result<Mapping> {
        for surplus in self.find_all(image)?.iter().filter(|mapping| mapping.device.path != kept.device.path)
        {
            warn!(
                "{image} is mapped as {} and as {}",
                kept.device.path.display(),
                surplus.device.path.display()
            );
            if let Err(error) = self.unmap(call, surplus) {
                warn!("the second one stays: {error}");
            }
        }
        Ok(kept)
    }

    /// Unmaps a device. One that is gone, or another image by now, is unmapped.
    ///
    /// # Errors
    /// Precondition, naming who uses it, while somebody does; what the kernel or the tool answers.
    pub fn unmap(&self, call: &Call, mapping: &Mapping) -> Result<()> {
        let users = self.users(mapping)?;
        let unmapped = match &mapping.by {
            _ if !users.is_empty() => Unmapped::InUse,
            MappedBy::Kernel(image) => self.kernel.unmap_rbd(call, image)?,
            MappedBy::Nbd(connected) => self.unmap_nbd(call, connected)?,
        };
        match unmapped {
            Unmapped::Done => Ok(()),
            Unmapped::InUse => Err(self.busy(call, mapping, users)),
        }
    }

    /// Unmaps every device of an image.
    ///
    /// # Errors
    /// As [`Mapper::unmap`]; unavailable while a process that was given up is still mapping it.
    pub fn ensure_unmapped(&self, call: &Call, image: &Image<'_>) -> Result<()> {
        self.unmap_all(call, image)?;
        self.await_end_of_map(call, image)?;
        // What was mapped between the first look and the second.
        self.unmap_all(call, image)
    }

    fn unmap_all(&self, call: &Call, image: &Image<'_>) -> Result<()> {
        self.find_all(image)?.iter().try_for_each(|mapping| self.unmap(call, mapping))
    }

    /// Whether the image is not mapped, and nobody is about to.
    ///
    /// # Errors
    /// Failures to read sysfs.
    pub fn is_absent(&self, image: &Image<'_>) -> Result<bool> {
        Ok(!self.is_being_mapped(image)? && self.find_all(image)?.is_empty())
    }

    /// Lets the device follow the image's size.
    ///
    /// The kernel's driver hears of a new size from the cluster and is only reminded of it. rbd-nbd follows
    /// by itself, a moment after the image has grown: it is waited for, until the device has `least` bytes or
    /// must have heard of it.
    ///
    /// # Errors
    /// Not found when the device is gone; what the kernel answers.
    pub fn refresh(&self, call: &Call, mapping: &Mapping, least: u64) -> Result<()> {
        match &mapping.by {
            MappedBy::Kernel(image) => self.kernel.refresh_rbd(call, image).map(drop),
            MappedBy::Nbd(connected) => self.await_size(call, connected, least),
        }
    }

    /// Mounts and devices that stand on the device.
    fn users(&self, mapping: &Mapping) -> Result<Vec<String>> {
        let path = &mapping.device.path;
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

    fn busy(&self, call: &Call, mapping: &Mapping, mut users: Vec<String>) -> Error {
        let path = &mapping.device.path;
        let openers =
            block::Device::at(path).ok().and_then(|device| self.kernel.openers(call, device.number).ok());
        let Openers { seen, hidden } = openers.unwrap_or_default();
        let others = seen.into_iter().filter(|opener| match &mapping.by {
            MappedBy::Kernel(_) => true,
            MappedBy::Nbd(connected) => !self.table.serves(opener.process, connected),
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

#[cfg(test)]
mod tests;
