//! Mapping by rbd-nbd: a process for each device, which outlives the daemon. After a restart the daemon finds
//! the device by its cookie.
//!
//! The device is connected by ioctl, not by netlink. A netlink device with a cookie does not follow the
//! image's size (seen with rbd-nbd 16.2 on Linux 6.1: "must specify backend"), and one without a cookie
//! cannot be told from others. The option `try-netlink` makes a device that waits for another process when
//! its own has died, and grows only when it is mapped again.
//!
//! rbd-nbd unmaps a device even while it is in use, which fails all further I/O. So an unmap first looks for
//! claims (mounts, in any mount namespace), and for processes that have the device open. A process that
//! cannot be looked at may have it open.
//!
//! If a file system of an ended mapping still holds the device number, rbd-nbd reports a device as mapped
//! that no process serves. So the mapper looks for the process.

use super::{Image, MapRequest, Mapper, cookie, only_one};
use crate::backend::BlockDevice;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Tool};
use crate::kernel::Backing;
use crate::kernel::rbd::Unmapped;
use crate::sys::byte_lock::ByteLock;
use crate::sys::nbd::ConnectedDevice;
use crate::sys::openers::Openers;

impl Mapper {
    /// Checks that rbd-nbd can map; the error says why not. rbd-nbd loads the kernel's driver by itself.
    pub(super) fn has_nbd(&self) -> Result<()> {
        self.refuse_in_container()?;
        self.runner.has(Tool::RbdNbd)?;
        match self.table.is_loaded() || self.modules.has("nbd") {
            true => Ok(()),
            false => Err(Error::precondition("the kernel has no NBD driver: run `modprobe nbd` on the host")),
        }
    }

    fn refuse_in_container(&self) -> Result<()> {
        let why = "rbd-nbd would end with this container: use the kernel's driver";
        if self.in_container { Err(Error::precondition(why)) } else { Ok(()) }
    }

    /// The way out of what the kernel's driver cannot do; empty in a container.
    pub(crate) fn or_nbd(&self) -> &'static str {
        if self.in_container { "" } else { ", or use the parameter mounter=rbd-nbd" }
    }

    /// rbd-nbd reads the key as it starts, before it becomes a daemon.
    pub(super) fn map_by_nbd(
        &self,
        call: &Call,
        wanted: &MapRequest<'_>,
        lock: &ByteLock,
    ) -> Result<BlockDevice> {
        self.refuse_in_container()?;
        let MapRequest { access, image, options, .. } = *wanted;
        let words = options.options.iter().map(|option| format!("--{option}"));
        let cookie = cookie::of(image, image.id()?);
        let command = access.command(Tool::RbdNbd, Class::Change).outliving().arg("map");
        let command = command.args(["--cookie", &cookie]).args(words);
        let command = if options.read_only { command.arg("--read-only") } else { command };
        let command = command.arg(image.to_string()).keeping_open(lock.file());
        self.runner.run(call, &command).map_err(|error| explain(error.into(), image))?;
        only_one(image, self.find_all(image)?)?.ok_or_else(|| {
            Error::unavailable(format!("{image} was mapped by rbd-nbd, but its device is gone: try again"))
        })
    }

    /// Ends the process behind a device, if the device still has this cookie.
    pub(super) fn unmap_nbd(&self, call: &Call, connected: &ConnectedDevice) -> Result<Unmapped> {
        let path = connected.path();
        let failed = |error| Error::io(format_args!("look at {}", path.display()), &error);
        let now = self.table.read(connected.number).map_err(failed)?;
        let number = self.table.device_number(connected.number).map_err(failed)?;
        let (Some(now), Some(number)) = (now, number) else { return Ok(Unmapped::Done) };
        if now.cookie != connected.cookie {
            return Ok(Unmapped::Done);
        }
        let openers = || self.kernel.openers(call, number);
        let is_open = |openers: Openers| {
            openers.hidden > 0 || openers.seen.iter().any(|it| !self.table.serves(it.process, connected))
        };
        if self.kernel.is_claimed(call, &path)? || is_open(openers()?) {
            return Ok(Unmapped::InUse);
        }
        let command = Cmd::new(Tool::RbdNbd, Class::Change).args(["-c", "/dev/null", "unmap"]).arg(path);
        self.runner.run(call, &command)?;
        Ok(Unmapped::Done)
    }

    /// Waits until the device has `least` bytes, but not longer than its growth may take.
    pub(super) fn await_size(&self, call: &Call, connected: &ConnectedDevice, least: u64) -> Result<()> {
        let path = connected.path();
        let failed = |error| Error::io(format_args!("look at {}", path.display()), &error);
        let what = format!("{} to grow with its image", path.display());
        let grown = call.wait_for(what, self.timing.growth, self.timing.poll, || {
            let now = self.table.read(connected.number).map_err(failed)?;
            Ok(now.is_none_or(|now| now.size >= least).then_some(()))
        });
        grown.map(drop)
    }

    /// Gives a new process to a device whose process has died, while the device still waits for one
    /// (`--reattach-timeout`).
    pub(super) fn ensure_served(
        &self,
        call: &Call,
        wanted: &MapRequest<'_>,
        device: &BlockDevice,
    ) -> Result<()> {
        let Backing::Nbd(connected) = &device.backing else { return Ok(()) };
        let MapRequest { access, image, .. } = *wanted;
        let path = connected.path();
        if self.is_served(connected)? {
            return Ok(());
        }
        let command = access.command(Tool::RbdNbd, Class::Change).outliving();
        let command = command.args(["attach", "--try-netlink", "--cookie", &connected.cookie]);
        let command = if connected.read_only { command.arg("--read-only") } else { command };
        let command = command.arg("--device").arg(&path).arg(image.to_string());
        let attached = self.runner.run(call, &command);
        attached.map_err(|error| {
            explain(error.into(), image).context(format_args!("{} has lost its process", path.display()))
        })?;
        self.verify(call, wanted, device)
    }

    fn is_served(&self, connected: &ConnectedDevice) -> Result<bool> {
        let path = connected.path();
        let served = self.table.is_served(connected);
        served.map_err(|error| Error::io(format_args!("look for the process of {}", path.display()), &error))
    }

    /// Checks that the device that was mapped just now has a live process.
    ///
    /// # Errors
    /// Unavailable if it has none.
    pub(super) fn refuse_dead(&self, image: &Image<'_>, device: &BlockDevice) -> Result<()> {
        let Backing::Nbd(connected) = &device.backing else { return Ok(()) };
        match self.is_served(connected)? {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "{image} was mapped as {}, but its rbd-nbd process has ended (is that device still in use by \
                 what was unmapped before?): try again",
                device.path.display()
            ))),
        }
    }

    /// Unmaps the device of rbd-nbd unless its name still means the image: rbd-nbd maps by name, and does not
    /// report the id.
    pub(super) fn verify(&self, call: &Call, wanted: &MapRequest<'_>, device: &BlockDevice) -> Result<()> {
        let Backing::Nbd(_) = &device.backing else { return Ok(()) };
        let (image, meant) = (wanted.image, wanted.image.id()?);
        let why = match (wanted.id_now)() {
            Ok(Some(id)) if id == meant => return Ok(()),
            Ok(_) => Error::not_found(format!("map {image}: another image than {meant} has this name now")),
            Err(error) => error
                .context(format_args!("{image} was mapped, but whether it still is {meant} is not known")),
        };
        Err(match self.unmap(call, device, None) {
            Ok(()) => why,
            Err(error) => why.context(format_args!("{} stays mapped ({error})", device.path.display())),
        })
    }
}

/// rbd-nbd exits with 1 for every failure. Its text names the cause, but is missing for an image that it
/// cannot open.
fn explain(error: Error, image: &Image<'_>) -> Error {
    let says = |words: &str| error.message().contains(words);
    let kind = match () {
        () if says("No such file") => Kind::NotFound,
        () if says("Operation not permitted") || says("Permission denied") => Kind::Unauthenticated,
        () if says("Connection timed out") => Kind::Unavailable,
        () if says("failed to find unused device") => Kind::NoSpace,
        () => error.kind(),
    };
    let hint = match () {
        () if says("no message") => format!(" (`rbd info {image}` as the same user tells why)"),
        () if kind == Kind::NoSpace => {
            " (all NBD devices of this node are in use: give a volume up that has one, or, once none is in use, \
             `modprobe -r nbd && modprobe nbd nbds_max=256`; a new volume with mapOptions=nbd:try-netlink gets a \
             device beyond them, which follows the size of its image only when it is mapped again)"
                .to_string()
        }
        () => String::new(),
    };
    error.with_kind(kind).context(format_args!("map {image}{hint}"))
}
