//! The kernel's RBD driver: `/sys/bus/rbd`, Documentation/ABI/testing/sysfs-bus-rbd.
//!
//! Reading attributes does not wait for the cluster. Writing `add`, `remove` and `refresh` does, for ever if
//! it does not answer: only helpers may do that.
//!
//! The attribute `name` is the name under which the image was mapped; a rename does not change it. The kernel
//! allows any number of mappings of an image.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::block::DeviceNumber;
use super::changing;
use super::file::if_there;

/// Where sysfs is mounted.
const SYSFS: &str = "/sys";

/// The driver's files, below a root: `/sys`, or a directory that looks like it.
#[derive(Clone, Debug)]
pub struct Bus {
    root: PathBuf,
}

/// An image the kernel has mapped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedImage {
    /// N of `/dev/rbdN`.
    pub number: u32,
    /// The pool's name at the time it was mapped.
    pub pool: String,
    /// The namespace; empty for the default one.
    pub namespace: String,
    /// The image's name at the time it was mapped.
    pub name: String,
    /// The image's id.
    pub image_id: String,
    /// The snapshot, `-` for the image itself.
    pub snapshot: String,
    /// The cluster; empty if the kernel does not show it (before Linux 4.9).
    pub fsid: String,
    /// The kernel's client of that cluster, as in `client4135`.
    pub client: String,
    /// The address of that client, as in `10.0.0.7:0/1234567`; empty if the kernel does not show it (before
    /// Linux 4.11).
    pub address: String,
    /// The monitors it was mapped with; empty if the kernel does not show them (before Linux 4.9).
    pub monitors: Vec<String>,
    /// Whether the kernel uses this client for no other image.
    pub has_own_client: bool,
    /// Whether it is read-only.
    pub read_only: bool,
}

impl MappedImage {
    /// Whether it is the image of this id in a pool and namespace of a cluster. Ids are random: if the
    /// cluster's fsid is not known, the image's id suffices.
    pub fn is(&self, (pool, namespace, id): (&str, &str, &str), fsid: Option<&str>) -> bool {
        self.is_in(pool, namespace)
            && self.image_id == id
            && fsid.is_none_or(|fsid| self.fsid.is_empty() || self.fsid == fsid)
    }

    /// Whether it is an image, and no snapshot, in this pool and namespace of any cluster.
    pub fn is_in(&self, pool: &str, namespace: &str) -> bool {
        (self.pool.as_str(), self.namespace.as_str(), self.snapshot.as_str()) == (pool, namespace, "-")
    }

    /// Its node, where devtmpfs or udev puts it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/rbd{}", self.number))
    }
}

impl Default for Bus {
    fn default() -> Self {
        Self::at(SYSFS)
    }
}

impl Bus {
    /// The driver as seen below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn bus(&self, file: &str) -> PathBuf {
        self.root.join("bus/rbd").join(file)
    }

    fn attribute(&self, number: u32, attribute: &str) -> PathBuf {
        self.root.join(format!("bus/rbd/devices/{number}/{attribute}"))
    }

    /// Whether the driver is loaded.
    pub fn is_loaded(&self) -> bool {
        self.bus("devices").is_dir()
    }

    /// Every mapped image, in the order of the devices. Images that come or go meanwhile may be missing.
    ///
    /// # Errors
    /// Those of reading sysfs; a driver that is not loaded has mapped nothing.
    pub fn mapped(&self) -> io::Result<Vec<MappedImage>> {
        let mut found = Vec::new();
        for entry in if_there(fs::read_dir(self.bus("devices")))?.into_iter().flatten() {
            let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            found.extend(self.read(number)?);
        }
        found.sort_unstable_by_key(|image: &MappedImage| image.number);
        Ok(found)
    }

    /// The image mapped as device `number`, if there is one.
    ///
    /// # Errors
    /// Those of reading sysfs.
    pub fn read(&self, number: u32) -> io::Result<Option<MappedImage>> {
        match self.read_all(number) {
            // ENODEV: the device is removed while its attribute is read.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(None),
            image => image.map(Some),
        }
    }

    fn read_all(&self, number: u32) -> io::Result<MappedImage> {
        let must = |attribute| line(&self.attribute(number, attribute));
        // Attributes that older kernels do not have.
        let may =
            |attribute| if_there(line(&self.attribute(number, attribute))).map(Option::unwrap_or_default);
        // Monitors, options, names. An image mapped by hand may have its key in the options.
        let config = may("config_info")?;
        let words = |at: usize| config.split(' ').nth(at).unwrap_or_default().split(',');
        Ok(MappedImage {
            number,
            pool: must("pool")?,
            namespace: may("pool_ns")?,
            name: must("name")?,
            image_id: must("image_id")?,
            snapshot: must("current_snap")?,
            fsid: may("cluster_fsid")?,
            client: must("client_id")?,
            address: may("client_addr")?,
            monitors: words(0).filter(|it| !it.is_empty()).map(Into::into).collect(),
            has_own_client: words(1).any(|option| option == "noshare"),
            read_only: line(&self.root.join(format!("block/rbd{number}/ro")))? != "0",
        })
    }

    /// Major and minor number of a mapped device. Without `single_major` the minor number is always 0, and
    /// the driver does not show it.
    ///
    /// # Errors
    /// Those of reading sysfs: ENOENT when the device is gone.
    pub fn device_number(&self, number: u32) -> io::Result<DeviceNumber> {
        let text = line(&self.root.join(format!("block/rbd{number}/dev")))?;
        DeviceNumber::parse(&text).ok_or_else(|| io::Error::other(format!("{text:?} is no device number")))
    }

    /// The size of a mapped device in bytes.
    ///
    /// # Errors
    /// Those of reading sysfs: ENOENT when the device is gone.
    pub fn device_size(&self, number: u32) -> io::Result<u64> {
        let sectors: u64 =
            line(&self.root.join(format!("block/rbd{number}/size")))?.parse().map_err(io::Error::other)?;
        Ok(sectors * 512)
    }

    /// The requests and watches of the kernel's client of an image (`osdc` of debugfs); None if debugfs does
    /// not show them.
    pub fn watches(&self, image: &MappedImage) -> Option<String> {
        fs::read_to_string(self.root.join(format!("kernel/debug/ceph/{}.{}/osdc", image.fsid, image.client)))
            .ok()
    }

    /// Maps the image that `line` names (see [`add_line`]). Waits for the cluster.
    ///
    /// # Errors
    /// Those of the kernel, which has mapped nothing then.
    pub fn add(&self, line: &str) -> io::Result<()> {
        changing("map an image", || self.write("add", line))
    }

    /// Removes a device. Waits for the cluster.
    ///
    /// # Errors
    /// EBUSY while it is in use, ENOENT when there is no such device.
    pub fn remove(&self, number: u32) -> io::Result<()> {
        changing("unmap an image", || self.write("remove", &number.to_string()))
    }

    /// Makes the kernel look at the image again, for a new size. Waits for the cluster.
    ///
    /// # Errors
    /// Those of the kernel: ENOENT when the device is gone.
    pub fn refresh(&self, number: u32) -> io::Result<()> {
        write_once(&self.attribute(number, "refresh"), "1")
    }

    /// With the module's parameter `single_major` (the default) the plain files refuse writes; without it
    /// only the plain files exist.
    fn write(&self, action: &str, line: &str) -> io::Result<()> {
        match write_once(&self.bus(&format!("{action}_single_major")), line) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.has_single_major() => {
                write_once(&self.bus(action), line)
            }
            written => written,
        }
    }

    fn has_single_major(&self) -> bool {
        self.bus("add_single_major").exists()
    }
}

/// Uses one write(2): the driver takes each write as a separate request.
fn write_once(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write(text.as_bytes()).map(drop)
}

fn line(path: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(path)?.trim_end_matches('\n').to_owned())
}

/// The line that maps an image: monitors, options, pool, image, and `-` for no snapshot.
///
/// # Errors
/// The offending word, if it is empty or has a character that separates words or options.
pub fn add_line(monitors: &str, options: &[String], pool: &str, name: &str) -> Result<String, String> {
    let parts = |word: &str, more: &[char]| {
        word.is_empty() || word.contains(|c: char| c.is_whitespace() || more.contains(&c))
    };
    let offending = options.iter().map(String::as_str).find(|option| parts(option, &[',']));
    match offending.or_else(|| [monitors, pool, name].into_iter().find(|word| parts(word, &[]))) {
        Some(word) => Err(word.to_owned()),
        None => Ok(format!("{monitors} {} {pool} {name} -", options.join(","))),
    }
}

#[cfg(test)]
#[path = "rbd_tests.rs"]
mod tests;
