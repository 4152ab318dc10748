//! Maps RBD images through the kernel's own files: no tool, no Ceph package, and no secret in any command
//! line or attribute.
//!
//! The helper inherits the image's lock from its caller and holds it until its end, even if the daemon was
//! killed and a system call goes on. So no process that takes the lock maps or unmaps the image meanwhile. A
//! killed helper leaves no device, or a device that the next look finds. Processes that ignore the lock are
//! noticed afterwards: if two map an image at once, the later one sees both and unmaps its own.

use std::fmt;
use std::io;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::failure::{Answer, During, SyscallFailure};
use super::{HelperRequest, Kernel};
use crate::base64;
use crate::dispatch::Call;
use crate::error::Result;
use crate::exec::Class;
use crate::secrets::Secret;
use crate::sys::block::Device;
use crate::sys::byte_lock::ByteLock;
use crate::sys::keyring::add_ceph_key;
use crate::sys::rbd::{Bus, MappedImage, add_line};

/// How often, and with what pause, to look for the node of a new device, which another process may have to
/// make.
const LOOKS: u32 = 100;
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// An image to map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageToMap {
    /// `10.0.0.1:6789,10.0.0.2:6789`
    pub monitors: String,
    /// The user that maps, without `client.`.
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
    /// The cluster, if known: an image of the same id in another cluster is another image.
    pub fsid: Option<String>,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// The numbers of all devices that existed before the image was mapped.
    pub former: Vec<u32>,
}

pub(super) fn write_secret<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(secret.reveal())
}

pub(super) fn read_secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

impl ImageToMap {
    fn is(&self, mapped: &MappedImage) -> bool {
        mapped.is((&self.pool, &self.namespace, &self.image_id), self.fsid.as_deref())
    }

    /// The driver's line, with everything but the key itself.
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

/// How an unmap ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unmapped {
    /// The device is no longer this image's.
    Done,
    /// The device is in use.
    InUse,
}

impl Kernel {
    /// Maps an image that is not mapped.
    ///
    /// # Errors
    /// The errno of the kernel; EEXIST when another process has mapped the image meanwhile.
    pub fn map_rbd(&self, call: &Call, image: &ImageToMap, lock: &ByteLock) -> Result<MappedImage> {
        let request = HelperRequest::MapRbd { image: image.clone() };
        self.ask_holding(call, (&format!("map {image}"), Class::Change), &request, Some(lock.file()))
    }

    /// Removes a device if it still is this image.
    ///
    /// # Errors
    /// Failures of the system.
    pub fn unmap_rbd(&self, call: &Call, image: &MappedImage, lock: Option<&ByteLock>) -> Result<Unmapped> {
        let step = format!("unmap {}", image.path().display());
        let request = HelperRequest::UnmapRbd { image: image.clone() };
        self.ask_holding(call, (&step, Class::Change), &request, lock.map(ByteLock::file))
    }

    /// Makes the kernel look at the image's size, and returns the size of the device in bytes.
    ///
    /// # Errors
    /// ENOENT when the device is gone, or belongs to another image by now.
    pub fn refresh_rbd(&self, call: &Call, image: &MappedImage) -> Result<u64> {
        let step = format!("refresh the size of {}", image.path().display());
        let request = HelperRequest::RefreshRbd { image: image.clone() };
        self.ask(call, &step, Class::Change, &request)
    }
}

fn named(image: &MappedImage) -> String {
    format!("{} ({}/{})", image.path().display(), image.pool, image.name)
}

pub(super) fn map(bus: &Bus, image: &ImageToMap) -> Answer<MappedImage> {
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

/// An invalid key fails with EKEYREJECTED, to tell it from the driver's EINVAL, which is about the options.
pub(super) fn add_key(user: &str, key: &Secret) -> io::Result<()> {
    let refused = || io::Error::from_raw_os_error(libc::EKEYREJECTED);
    let key = base64::decode(key.reveal().trim()).ok_or_else(refused)?;
    match add_ceph_key(&format!("client.{user}"), &key) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Err(refused()),
        added => added,
    }
}

fn add_and_find(bus: &Bus, image: &ImageToMap) -> Answer<MappedImage> {
    add(bus, image)?;
    let all = bus.mapped().during(|| format!("look for {image}"))?;
    let found: Vec<&MappedImage> = all.iter().filter(|mapped| image.is(mapped)).collect();
    let wrong = match found.as_slice() {
        [mapped] => return Ok((*mapped).clone()),
        [] => another_image(image),
        [..] => mapped_twice(image, &found),
    };
    unmap_new(bus, image, &all).and(Err(wrong))
}

/// Unmaps new devices under the image's name. A device that another process mapped meanwhile stays if used.
fn unmap_new(bus: &Bus, image: &ImageToMap, all: &[MappedImage]) -> Answer<()> {
    let is_ours = |mapped: &&MappedImage| {
        !image.former.contains(&mapped.number)
            && mapped.is_in(&image.pool, &image.namespace)
            && mapped.name == image.name
    };
    all.iter().filter(is_ours).try_for_each(|mapped| match bus.remove(mapped.number) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::ENOENT)) => Ok(()),
        removed => removed.during(|| format!("unmap {} again", named(mapped))),
    })
}

fn add(bus: &Bus, image: &ImageToMap) -> Answer<()> {
    let line = image.line().map_err(|word| SyscallFailure {
        action: Some(format!("map {image}: the kernel cannot be told the word {word:?}")),
        errno: Some(libc::EINVAL),
        text: String::new(),
    })?;
    bus.add(&line)
        .during(|| format!("map {image} of the cluster at {} as client.{}", image.monitors, image.user))
}

fn another_image(image: &ImageToMap) -> SyscallFailure {
    let text = format!("another image than {} has this name now", image.image_id);
    SyscallFailure { action: Some(format!("map {image}: {text}")), errno: Some(libc::ENOENT), text }
}

fn mapped_twice(image: &ImageToMap, found: &[&MappedImage]) -> SyscallFailure {
    let paths: Vec<String> = found.iter().map(|mapped| mapped.path().display().to_string()).collect();
    let action = format!("map {image}: it was mapped as {} at once", paths.join(" and as "));
    SyscallFailure { action: Some(action), errno: Some(libc::EEXIST), text: String::new() }
}

fn node_is_missing(mapped: &MappedImage) -> String {
    let path = mapped.path();
    format!("wait for {} (does this container have the host's /dev?)", path.display())
}

/// Waits until the device's node exists and has its number: the node may be left from another device.
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

/// Whether the device is still the mapping that was found: numbers are reused.
pub(super) fn is_still(bus: &Bus, image: &MappedImage) -> io::Result<bool> {
    let same = |now: MappedImage| {
        (&now.image_id, &now.client, &now.fsid) == (&image.image_id, &image.client, &image.fsid)
    };
    Ok(bus.read(image.number)?.is_some_and(same))
}

pub(super) fn unmap(bus: &Bus, image: &MappedImage) -> Answer<Unmapped> {
    if !is_still(bus, image).during(|| format!("look at {}", named(image)))? {
        return Ok(Unmapped::Done);
    }
    match bus.remove(image.number) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(Unmapped::InUse),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Unmapped::Done),
        removed => removed.map(|()| Unmapped::Done).during(|| format!("unmap {}", named(image))),
    }
}

pub(super) fn refresh(bus: &Bus, image: &MappedImage) -> Answer<u64> {
    let refresh = || {
        if !is_still(bus, image)? {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        bus.refresh(image.number)?;
        bus.device_size(image.number)
    };
    refresh().during(|| format!("refresh {}", named(image)))
}

#[cfg(test)]
#[path = "rbd_tests.rs"]
mod tests;
