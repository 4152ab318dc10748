//! Mapping by the kernel, asked directly or by `rbd device map`.

use super::{Image, MapOptions, Mapper, Wanted, features};
use crate::call::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Tool};
use crate::kernel::rbd::ImageToMap;
use crate::sys::byte_lock::ByteLock;

impl Mapper {
    /// The helper finds the device that is there already.
    pub(super) fn map_by_kernel(&self, call: &Call, wanted: &Wanted<'_>) -> Result<()> {
        let Wanted { access, image, options, .. } = *wanted;
        self.ensure_driver(call)?;
        self.check_features(image, options)?;
        let credentials = &access.credentials;
        let key = credentials.key.clone().ok_or_else(|| no_key(&access.cluster.name, &credentials.user))?;
        let (monitors, only_v2) = access.cluster.kernel_monitors()?;
        let mut driver_options = options.options.clone();
        if only_v2 && !driver_options.iter().any(|option| option.starts_with("ms_mode=")) {
            driver_options.push("ms_mode=prefer-crc".into());
        }
        let to_map = ImageToMap {
            monitors,
            user: credentials.user.clone(),
            key,
            options: driver_options,
            pool: image.pool.into(),
            namespace: image.namespace.into(),
            name: image.name.into(),
            image_id: image.id()?.into(),
            fsid: image.fsid.map(Into::into),
            read_only: options.read_only,
        };
        self.kernel.map_rbd(call, &to_map).map(drop)
    }

    /// Without `noudev` the tool waits for a udevd, for ever where none runs.
    pub(super) fn map_by_tool(&self, call: &Call, wanted: &Wanted<'_>, lock: &ByteLock) -> Result<()> {
        let Wanted { access, image, options, .. } = *wanted;
        self.check_features(image, options)?;
        let mut words = vec!["noudev".to_owned()];
        words.extend(options.options.iter().cloned());
        let command =
            access.command(Tool::Rbd, Class::Change).args(["device", "map", "--options", &words.join(",")]);
        let command = if options.read_only { command.arg("--read-only") } else { command };
        let command = command.arg(image.to_string()).keeping_open(lock.file());
        let output = self.runner.run(call, &command).map_err(|error| explain(error.into(), image))?;
        self.take_back_another(call, image, &output.stdout)
    }

    /// The tool knows only the name: what it mapped may be another image than was looked up. It prints the
    /// device.
    fn take_back_another(&self, call: &Call, image: &Image<'_>, printed: &[u8]) -> Result<()> {
        let printed = String::from_utf8_lossy(printed);
        let Some(number) = printed.trim().strip_prefix("/dev/rbd").and_then(|number| number.parse().ok())
        else {
            return Err(Error::internal(format!(
                "map {image}: `rbd device map` printed {printed:?} in place of a device"
            )));
        };
        let mapped = self
            .bus
            .read(number)
            .map_err(|error| Error::io(format_args!("look at {}", printed.trim()), &error))?;
        match mapped {
            Some(other) if !image.is(&other) => {
                self.kernel.unmap_rbd(call, &other)?;
                Err(Error::not_found(format!(
                    "map {image}: another image than {} has this name now",
                    image.id()?
                )))
            }
            _ => Ok(()),
        }
    }

    fn check_features(&self, image: &Image<'_>, options: &MapOptions) -> Result<()> {
        let supported = self.bus.supported_features();
        match supported
            .map_err(|error| Error::io("ask the kernel which features of RBD it can do", &error))?
        {
            Some(supported) => features::check(&image.to_string(), &options.features, supported),
            None => Ok(()),
        }
    }

    /// Why the driver is not there and cannot be loaded, if so.
    pub(super) fn has_kernel_driver(&self) -> Result<()> {
        if self.bus.is_loaded() {
            return Ok(());
        }
        if !self.modules.has("rbd") {
            return Err(no_driver(
                "there is no module of it (in a container: mount the host's /lib/modules)",
            ));
        }
        self.runner.has(Tool::Modprobe).map_err(|error| no_driver(&Error::from(error).to_string()))
    }

    /// Loads the driver, if it is not there.
    fn ensure_driver(&self, call: &Call) -> Result<()> {
        if self.bus.is_loaded() {
            return Ok(());
        }
        let loaded = self.runner.run(call, &Cmd::new(Tool::Modprobe, Class::Change).arg("rbd"));
        match loaded {
            Ok(_) if self.bus.is_loaded() => Ok(()),
            Ok(_) => {
                Err(no_driver("`modprobe rbd` has loaded it, but /sys/bus/rbd is not there: mount sysfs"))
            }
            Err(error) => Err(no_driver(&Error::from(error).to_string())),
        }
    }
}

fn no_driver(why: &str) -> Error {
    Error::precondition(format!(
        "this node's kernel has no RBD driver: {why}; run `modprobe rbd` on the host, or use the parameter \
         mounter=rbd-nbd"
    ))
}

fn no_key(cluster: &str, user: &str) -> Error {
    Error::unauthenticated(format!(
        "the key of client.{user} of cluster {cluster:?} is not known here, and the kernel needs it to map: \
         set CEPHLET_CEPH_KEYRING or \
         the cluster's key file, give `userID` and `userKey` as secrets, or use the parameter \
         mounter=rbd-tool"
    ))
}

/// What the statuses of `rbd device map` mean: they are what the kernel answered (rbd(8)).
fn explain(error: Error, image: &Image<'_>) -> Error {
    let kind = match error.exit_status() {
        Some(libc::ENOENT) => Kind::NotFound,
        Some(libc::EPERM | libc::EACCES | libc::ENOKEY | libc::EKEYREJECTED) => Kind::Unauthenticated,
        Some(libc::ENXIO | libc::EROFS | libc::EBUSY) => Kind::Precondition,
        Some(libc::EIO | libc::ETIMEDOUT | libc::ESHUTDOWN) => Kind::Unavailable,
        _ => error.kind(),
    };
    error.with_kind(kind).context(format_args!("map {image}"))
}
