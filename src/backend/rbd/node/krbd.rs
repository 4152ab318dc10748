//! Mapping by the kernel.

use super::{MapOptions, MapRequest, Mapper, of_kernel};
use crate::backend::BlockDevice;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::exec::{Class, Cmd, Tool};
use crate::kernel::rbd::ImageToMap;
use crate::sys::byte_lock::ByteLock;

/// Every mapping gets these. Ceph's tools, too, try for 20 seconds to reach a cluster.
const OWN_CLIENT: [&str; 2] = ["noshare", "mount_timeout=20"];
/// Which replica is read, and where the node is; the driver has both since Linux 5.8.
const READ_FROM: &str = "read_from_replica";
const NEAR: &str = "crush_location";
const NOWHERE: &str = "it is not known which OSDs are near to this node, so reads go to the primary ones: set \
                       CEPHLET_TOPOLOGY or CEPHLET_CRUSH_LOCATION";
const BLOCKLISTED: &str = "the cluster has blocklisted this node: `ceph osd blocklist ls` shows until when";

impl Mapper {
    /// Maps an image that is not mapped. `former` are the numbers of the devices that there are.
    pub(super) fn map_by_kernel(
        &self,
        call: &Call,
        wanted: &MapRequest<'_>,
        former: Vec<u32>,
        lock: &ByteLock,
    ) -> Result<BlockDevice> {
        let MapRequest { access, image, options, .. } = *wanted;
        self.ensure_driver(call)?;
        let (user, key) = (access.credentials.user.clone(), access.key()?);
        let (monitors, only_v2) = access.cluster.kernel_monitors()?;
        let mut driver_options = self.driver_options(wanted);
        if only_v2 && !driver_options.iter().any(|option| option.starts_with("ms_mode=")) {
            driver_options.push("ms_mode=prefer-crc".into());
        }
        let to_map = ImageToMap {
            monitors,
            user,
            key,
            options: driver_options,
            pool: image.pool.into(),
            namespace: image.namespace.into(),
            name: image.name.into(),
            image_id: image.id()?.into(),
            fsid: image.cluster.fsid.clone(),
            read_only: options.read_only,
            former,
        };
        let mapped = self.kernel.map_rbd(call, &to_map, lock);
        mapped.map(of_kernel).map_err(|error| advise(error, &to_map, (options, self.or_nbd())))
    }

    /// The options asked for, with those that every mapping has, and those that say which OSDs are near.
    fn driver_options(&self, wanted: &MapRequest<'_>) -> Vec<String> {
        let mut options = with_own_client(&wanted.options.options);
        if wanted.access.cluster.read_affinity && !has(&options, READ_FROM) {
            options.push(format!("{READ_FROM}=localize"));
        }
        if options.iter().any(|option| option == &format!("{READ_FROM}=localize")) && !has(&options, NEAR) {
            match self.topology.crush_location() {
                Some(location) => options.push(format!("{NEAR}={location}")),
                None => log::warn!("{}: {NOWHERE}", wanted.image),
            }
        }
        options
    }

    /// Checks that the driver is loaded or can be loaded; the error says why not.
    pub(super) fn has_kernel_driver(&self) -> Result<()> {
        if self.bus.is_loaded() {
            return Ok(());
        }
        if !self.modules.has("rbd") {
            return Err(self.no_driver("there is no module of it"));
        }
        self.runner.has(Tool::Modprobe).map_err(|error| self.no_driver(&Error::from(error).to_string()))
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
                Err(self
                    .no_driver("`modprobe rbd` has loaded it, but /sys/bus/rbd is not there: mount sysfs"))
            }
            Err(error) => Err(self.no_driver(&Error::from(error).to_string())),
        }
    }

    fn no_driver(&self, why: &str) -> Error {
        Error::precondition(format!(
            "this node's kernel has no RBD driver: {why}; run `modprobe rbd` on the host{}",
            self.or_nbd()
        ))
    }
}

/// The options with those of every mapping. `noshare` gives it a client of its own: to shut out that client
/// harms no other image, and the reverse. `mount_timeout` ends the search for a cluster that is away.
fn with_own_client(options: &[String]) -> Vec<String> {
    let missing = |wanted: &&&str| !has(options, wanted.split('=').next().unwrap_or_default());
    let own = OWN_CLIENT.iter().filter(missing).map(ToString::to_string);
    options.iter().cloned().chain(own).collect()
}

fn has(options: &[String], name: &str) -> bool {
    options.iter().any(|option| option.split('=').next() == Some(name))
}

/// Says what the kernel's answer to a mapping means, and what to do about it.
fn advise(error: Error, image: &ImageToMap, wanted: (&MapOptions, &str)) -> Error {
    match error.errno().and_then(|errno| advice(errno, image, wanted)) {
        Some((kind, advice)) => error.with_kind(kind).hint(advice),
        None => error,
    }
}

fn advice(errno: i32, image: &ImageToMap, wanted: (&MapOptions, &str)) -> Option<(Kind, String)> {
    let ImageToMap { user, monitors, options, .. } = image;
    Some(match errno {
        libc::ENOENT => (Kind::NotFound, "there is no such image, pool or namespace".into()),
        libc::EPERM | libc::EACCES => (
            Kind::Unauthenticated,
            format!(
                "the cluster refuses client.{user}: check its key, and that its capabilities are `profile \
                 rbd` on this pool"
            ),
        ),
        libc::ENOKEY | libc::EKEYREJECTED | libc::EKEYEXPIRED | libc::EKEYREVOKED => (
            Kind::Unauthenticated,
            format!("the key of client.{user} is refused: `ceph auth get client.{user}` shows it"),
        ),
        libc::EINVAL => {
            let near = if has(options, READ_FROM) { "; to read from near takes Linux 5.8" } else { "" };
            let options = options.join(", ");
            (Kind::InvalidArgument, format!("the driver takes no such option ({options}): see `dmesg`{near}"))
        }
        libc::ENXIO => (Kind::Precondition, unsupported(image, wanted)),
        libc::EROFS => (Kind::Precondition, "it can only be mapped read-only".into()),
        libc::EBUSY | libc::EDEADLK => (Kind::Precondition, "another client has it exclusively".into()),
        libc::EIO | libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ECONNREFUSED | libc::ENETUNREACH => {
            (Kind::Unavailable, format!("the cluster does not answer at {monitors}"))
        }
        libc::ESHUTDOWN => (Kind::Unavailable, BLOCKLISTED.into()),
        libc::EEXIST => (Kind::Unavailable, "another process of this node has mapped it: try again".into()),
        _ => return None,
    })
}

/// The kernel refuses the image without naming the features that it lacks.
fn unsupported(image: &ImageToMap, (wanted, or_nbd): (&MapOptions, &str)) -> String {
    let features = wanted.features.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    format!(
        "the kernel cannot do one of the image's features ({features}; `dmesg` has the bits): create the volume \
         with fewer imageFeatures or run `rbd feature disable {image} FEATURE`{or_nbd}"
    )
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::backend::rbd::node::Mounter;
    use crate::secrets::Secret;

    fn image() -> ImageToMap {
        ImageToMap {
            monitors: "10.0.0.1:6789".into(),
            user: "csi".into(),
            key: Secret::new("AQBkey=="),
            options: vec!["queue_depth=64".into()],
            pool: "vms".into(),
            namespace: String::new(),
            name: "web".into(),
            image_id: "10309e725270".into(),
            fsid: None,
            read_only: false,
            former: Vec::new(),
        }
    }

    fn options() -> MapOptions {
        let features = ["layering", "journaling"].map(String::from).into();
        MapOptions { mounter: Mounter::Kernel, options: Vec::new(), read_only: false, features }
    }

    #[test]
    fn what_the_kernel_answers_is_said_in_words() {
        let expected = [
            (libc::ENOENT, Kind::NotFound, "no such image"),
            (libc::EPERM, Kind::Unauthenticated, "client.csi"),
            (libc::EACCES, Kind::Unauthenticated, "profile rbd"),
            (libc::ENOKEY, Kind::Unauthenticated, "ceph auth get client.csi"),
            (libc::EKEYREJECTED, Kind::Unauthenticated, "ceph auth get client.csi"),
            (libc::EINVAL, Kind::InvalidArgument, "queue_depth=64): see `dmesg`"),
            (libc::ENXIO, Kind::Precondition, "(journaling, layering; `dmesg`"),
            (libc::ENXIO, Kind::Precondition, "`rbd feature disable vms/web FEATURE`"),
            (libc::ETIMEDOUT, Kind::Unavailable, "10.0.0.1:6789"),
            (libc::EIO, Kind::Unavailable, "10.0.0.1:6789"),
            (libc::ESHUTDOWN, Kind::Unavailable, "blocklist"),
            (libc::EEXIST, Kind::Unavailable, "try again"),
            (libc::EMFILE, Kind::Internal, "map web"),
        ];
        for (errno, kind, words) in expected {
            let error = advise(
                Error::io("map web", &io::Error::from_raw_os_error(errno)),
                &image(),
                (&options(), ""),
            );
            assert_eq!((error.kind(), error.errno()), (kind, Some(errno)));
            assert!(error.message().contains(words) && !error.message().contains("AQBkey"), "{error}");
        }
        let near = ImageToMap { options: vec!["read_from_replica=localize".into()], ..image() };
        let refused = Error::io("map web", &io::Error::from_raw_os_error(libc::EINVAL));
        let error = advise(refused, &near, (&options(), ""));
        assert!(error.message().contains("takes Linux 5.8"), "{error}");
    }
}
