//! Block devices that are built on another one: device-mapper (LVM, dm-crypt, multipath), md, bcache. They
//! keep it in use without a process or a mount. Documentation/ABI/stable/sysfs-block.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::block::DeviceNumber;
use super::file::if_there;

/// A device that is built on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The kernel's name: `dm-0`, `md127`.
    pub device: String,
    /// Its name in device-mapper: `vgx-l`.
    pub mapped_name: Option<String>,
    /// The command that removes it, if known.
    pub release: Option<String>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, mapped_name, release } = self;
        match mapped_name {
            Some(name) => write!(f, "held by {name} ({device})")?,
            None => write!(f, "held by {device}")?,
        }
        release.as_ref().map_or(Ok(()), |command| write!(f, ", which `{command}` releases"))
    }
}

/// The holders of a device and of its partitions. A device that is gone has none.
///
/// # Errors
/// Those of reading sysfs.
pub fn of(device: DeviceNumber) -> io::Result<Vec<Holder>> {
    below(Path::new("/sys"), device)
}

fn below(sysfs: &Path, device: DeviceNumber) -> io::Result<Vec<Holder>> {
    let own = sysfs.join(format!("dev/block/{device}"));
    let partitions = entries(&own)?.into_iter().filter(|path| path.join("partition").exists());
    let mut found = Vec::new();
    for part in partitions.chain([own]) {
        let holders = entries(&part.join("holders"))?;
        found.extend(holders.iter().filter_map(|path| path.file_name()).map(|name| describe(sysfs, name)));
    }
    Ok(found)
}

fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = if_there(fs::read_dir(directory))?.into_iter().flatten();
    entries.map(|entry| entry.map(|entry| entry.path())).collect()
}

fn describe(sysfs: &Path, name: &OsStr) -> Holder {
    let attribute = |file: &str| {
        let text = fs::read_to_string(sysfs.join("block").join(name).join(file)).ok()?;
        Some(text.trim_end().to_owned()).filter(|text| !text.is_empty())
    };
    let device = name.to_string_lossy().into_owned();
    let (mapped_name, uuid) = (attribute("dm/name"), attribute("dm/uuid").unwrap_or_default());
    let release = match &mapped_name {
        // The kind of a mapping is the prefix of its UUID.
        Some(name) if uuid.starts_with("LVM-") => Some(format!("lvchange -an /dev/mapper/{name}")),
        Some(name) if uuid.starts_with("CRYPT-") => Some(format!("cryptsetup close {name}")),
        Some(name) if uuid.starts_with("mpath-") => Some(format!("multipath -f {name}")),
        Some(name) => Some(format!("dmsetup remove {name}")),
        None if sysfs.join("block").join(name).join("md").exists() => {
            Some(format!("mdadm --stop /dev/{device}"))
        }
        None => None,
    };
    Holder { device, mapped_name, release }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DEVICE: DeviceNumber = DeviceNumber { major: 7, minor: 3 };

    /// The descriptions of the holders in a sysfs with these directories and files.
    fn said(directories: &[&str], files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        directories.iter().for_each(|name| fs::create_dir_all(path(name)).unwrap());
        for (name, text) in files {
            fs::create_dir_all(path(name).parent().unwrap()).unwrap();
            fs::write(path(name), format!("{text}\n")).unwrap();
        }
        let mut said: Vec<_> = below(root.path(), DEVICE).unwrap().iter().map(Holder::to_string).collect();
        said.sort();
        said
    }

    #[test]
    fn a_holder_is_named_with_the_command_that_releases_it() {
        let volume = ("block/dm-0/dm/name", "vgx-l");
        let kinds = [
            ("LVM-q1", "held by vgx-l (dm-0), which `lvchange -an /dev/mapper/vgx-l` releases"),
            ("CRYPT-LUKS2-q1", "held by vgx-l (dm-0), which `cryptsetup close vgx-l` releases"),
            ("mpath-q1", "held by vgx-l (dm-0), which `multipath -f vgx-l` releases"),
            ("", "held by vgx-l (dm-0), which `dmsetup remove vgx-l` releases"),
        ];
        for (uuid, words) in kinds {
            let files = [volume, ("block/dm-0/dm/uuid", uuid)];
            assert_eq!(said(&["dev/block/7:3/holders/dm-0"], &files), [words]);
        }
        let raid = ["dev/block/7:3/holders/md127", "block/md127/md"];
        assert_eq!(said(&raid, &[]), ["held by md127, which `mdadm --stop /dev/md127` releases"]);
        assert_eq!(said(&["dev/block/7:3/holders/bcache0"], &[]), ["held by bcache0"]);
    }

    #[test]
    fn a_holder_of_a_partition_holds_the_device() {
        let partition = ("dev/block/7:3/loop3p1/partition", "1");
        let directories = ["dev/block/7:3/holders", "dev/block/7:3/loop3p1/holders/dm-1"];
        assert_eq!(said(&directories, &[partition, ("block/dm-1/dm/name", "a")]).len(), 1);
        assert!(said(&["dev/block/7:3/holders", "dev/block/7:3/queue"], &[]).is_empty());
        assert!(said(&[], &[]).is_empty(), "a device that is gone");
    }
}
