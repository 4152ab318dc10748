//! RBD images mapped by the kernel, through its own files: no tool, no Ceph package, and no secret in any
//! command line or attribute.
//!
//! The helper holds the image's lock from before it looks until the device is there, so one image gets one
//! device, also when a helper whose daemon is gone is still at it. Killed, a helper leaves no device, or one
//! that the next look finds.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::failure::{Answer, During, SyscallFailure};
use super::Ask;
use crate::base64;
use crate::exec::Class;
use crate::secrets::Secret;
use crate::sys::block::Device;
use crate::sys::byte_lock::number_of;
use crate::sys::keyring::add_ceph_key;
use crate::sys::rbd::{Bus, MappedImage, add_line};

/// How often and how long to look whether the node of a new device is there, which somebody else may have to
/// make.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// An image to map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageToMap {
    /// `10.0.0.1:6789,10.0.0.2:6789`
    pub monitors: String,
    /// Who maps, without `client.`.
    pub user: String,
    /// The user's key, in base64.
    #[serde(serialize_with = "write_secret", deserialize_with = "read_secret")]
    pub key: Secret,
    /// Further options of the driver.
    pub options: Vec<String>,
    /// The pool.
    pub pool: String,
    /// The namespace; empty for the default one.
    pub namespace: String,
    /// The image's name.
    pub name: String,
    /// The image's id.
    pub image_id: String,
    /// The cluster, where it is known: an image of the same id in another one is another image.
    pub fsid: Option<String>,
    /// Whether nothing may be written.
    pub read_only: bool,
}

fn write_secret<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

fn read_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

impl ImageToMap {
    fn is(&self, mapped: &MappedImage) -> bool {
        mapped.image_id == self.image_id
            && (&mapped.pool, &mapped.namespace) == (&self.pool, &self.namespace)
            && mapped.snapshot == "-"
            && self.fsid.as_ref().is_none_or(|fsid| mapped.fsid.is_empty() || *fsid == mapped.fsid)
    }

    /// With everything but the key itself.
    fn line(&self) -> Result<String, String> {
        let mut all = vec![format!("name={}", self.user), format!("key=client.{}", self.user)];
        if !self.namespace.is_empty() {
            all.push(format!("_pool_ns={}", self.namespace));
        }
        if self.read_only {
            all.push("ro".into());
        }
        all.extend(self.options.iter().cloned());
        add_line(&self.monitors, &all, &self.pool, &self.name)
    }
}

impl fmt::Display for ImageToMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// The number that the lock of an image's mapping goes by.
pub fn lock_key(pool: &str, namespace: &str, image_id: &str) -> u64 {
    number_of(&[pool, namespace, image_id].join("\0"))
}

/// The same of an image whose id is not known: by its name.
pub fn name_key(pool: &str, namespace: &str, name: &str) -> u64 {
    // No id has a slash in it.
    lock_key(pool, namespace, &["name", name].join("/"))
}

/// How an unmap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unmapped {
    /// The device is not this image's any more.
    Done,
    /// Somebody has it open.
    InUse,
}

/// Maps the image, or finds the device it is mapped as, whatever that one's options are. The error has what the
/// kernel answered as errno.
impl Ask for ImageToMap {
    type Reply = MappedImage;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("map {self}")
    }

    fn answer(&self) -> Answer<MappedImage> {
        map(&Bus::default(), self)
    }
}

/// Removes a device if it still is this image.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unmap {
    /// The image.
    pub image: MappedImage,
}

impl Ask for Unmap {
    type Reply = Unmapped;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("unmap {}", named(&self.image))
    }

    fn answer(&self) -> Answer<Unmapped> {
        unmap(&Bus::default(), &self.image)
    }
}

/// Has the kernel look at the image's size, and replies that of the device in bytes. The error is ENOENT when
/// the device is gone, or another image by now.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refresh {
    /// The image.
    pub image: MappedImage,
}

impl Ask for Refresh {
    type Reply = u64;
    const CLASS: Class = Class::Change;

    fn step(&self) -> String {
        format!("refresh the size of {}", named(&self.image))
    }

    fn answer(&self) -> Answer<u64> {
        refresh(&Bus::default(), &self.image).during(|| self.step())
    }
}

fn named(image: &MappedImage) -> String {
    format!("{} ({}/{})", image.path().display(), image.pool, image.name)
}

fn map(bus: &Bus, image: &ImageToMap) -> Answer<MappedImage> {
    let ImageToMap { pool, namespace, name, image_id, .. } = image;
    let _lock = bus.lock(lock_key(pool, namespace, image_id)).during(|| format!("lock {image}"))?;
    // For those to see who know no more.
    let _named = bus.lock(name_key(pool, namespace, name)).during(|| format!("lock {image}"))?;
    if let Some(mapped) = find(bus, image).during(|| format!("look for {image}"))? {
        return Ok(mapped);
    }
    add_key(&image.user, &image.key)
        .during(|| format!("give the kernel the key of client.{}", image.user))?;
    let mapped = add_and_find(bus, image)?;
    match await_node(bus, &mapped) {
        Ok(()) => Ok(mapped),
        Err(error) => {
            let removed = bus.remove(mapped.number).during(|| format!("unmap {} again", named(&mapped)));
            Err(error).during(|| node_is_missing(&mapped)).or_else(|failure| removed.and(Err(failure)))
        }
    }
}

/// What is no key, or none of Ceph's, is a matter of the key: the driver's EINVAL is one of its options.
fn add_key(user: &str, key: &Secret) -> io::Result<()> {
    let refused = || io::Error::from_raw_os_error(libc::EKEYREJECTED);
    let key = base64::decode(key.reveal().trim()).ok_or_else(refused)?;
    match add_ceph_key(&format!("client.{user}"), &key) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(refused()),
        added => added,
    }
}

fn add_and_find(bus: &Bus, image: &ImageToMap) -> Answer<MappedImage> {
    let former = numbers(bus).during(|| format!("look for {image}"))?;
    add(bus, image)?;
    match find(bus, image).during(|| format!("look for {image}"))? {
        Some(mapped) => Ok(mapped),
        None => unmap_new(bus, image, &former).and_then(|()| Err(another_image(image))),
    }
}

fn numbers(bus: &Bus) -> io::Result<Vec<u32>> {
    Ok(bus.mapped()?.iter().map(|mapped| mapped.number).collect())
}

/// Unmaps what came to be under the image's name but is another one. What others mapped at the same time
/// stays if they use it.
fn unmap_new(bus: &Bus, image: &ImageToMap, former: &[u32]) -> Answer<()> {
    let ours = |mapped: &MappedImage| {
        !former.contains(&mapped.number)
            && (&mapped.pool, &mapped.namespace, &mapped.name) == (&image.pool, &image.namespace, &image.name)
    };
    let mapped = bus.mapped().during(|| format!("look for {image}"))?;
    mapped.iter().filter(|mapped| ours(mapped)).try_for_each(|mapped| match bus.remove(mapped.number) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOENT)) => Ok(()),
        removed => removed.during(|| format!("unmap {} again", named(mapped))),
    })
}

fn add(bus: &Bus, image: &ImageToMap) -> Answer<()> {
    let line = image.line().map_err(|word| SyscallFailure {
        action: format!("map {image}: the kernel cannot be told the word {word:?}"),
        errno: Some(libc::EINVAL),
        text: String::new(),
    })?;
    bus.add(&line)
        .during(|| format!("map {image} of the cluster at {} as client.{}", image.monitors, image.user))
}

/// The lowest device of the image.
fn find(bus: &Bus, image: &ImageToMap) -> io::Result<Option<MappedImage>> {
    Ok(bus.mapped()?.into_iter().find(|mapped| image.is(mapped)))
}

fn another_image(image: &ImageToMap) -> SyscallFailure {
    let text = format!("another image than {} has this name now", image.image_id);
    SyscallFailure { action: format!("map {image}: {text}"), errno: Some(libc::ENOENT), text }
}

fn node_is_missing(mapped: &MappedImage) -> String {
    let path = mapped.path();
    format!("wait for {} (does this container have the host's /dev?)", path.display())
}

/// Waits until the node of the device is there and is its node, not one left from another device.
fn await_node(bus: &Bus, mapped: &MappedImage) -> io::Result<()> {
    let number = bus.device_number(mapped.number)?;
    let look = || Device::at(&mapped.path()).is_ok_and(|node| node.number == number);
    for _ in 0..LOOKS {
        if look() {
            return Ok(());
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Err(io::Error::from_raw_os_error(libc::ENODEV))
}

/// Whether the device is still the mapping that was found: numbers are used again.
pub(super) fn is_still(bus: &Bus, image: &MappedImage) -> io::Result<bool> {
    let same = |now: MappedImage| {
        (&now.image_id, &now.client, &now.fsid) == (&image.image_id, &image.client, &image.fsid)
    };
    Ok(bus.read(image.number)?.is_some_and(same))
}

fn unmap(bus: &Bus, image: &MappedImage) -> Answer<Unmapped> {
    let key = lock_key(&image.pool, &image.namespace, &image.image_id);
    let _lock = bus.lock(key).during(|| format!("lock {}", named(image)))?;
    if !is_still(bus, image).during(|| format!("look at {}", named(image)))? {
        return Ok(Unmapped::Done);
    }
    match bus.remove(image.number) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Unmapped::InUse),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Unmapped::Done),
        removed => removed.map(|()| Unmapped::Done).during(|| format!("unmap {}", named(image))),
    }
}

fn refresh(bus: &Bus, image: &MappedImage) -> io::Result<u64> {
    if !is_still(bus, image)? {
        return Err(io::Error::from_raw_os_error(libc::ENOENT));
    }
    bus.refresh(image.number)?;
    bus.device_size(image.number)
}

#[cfg(test)]
#[path = "rbd_tests.rs"]
mod tests;
