//! The parameters of the CephFS backend: what a request can specify beside the size. They have the names of
//! ceph-csi where it has such parameters.

use crate::backend::ceph::placement;
use crate::backend::cephfs::names::{NAME, USUAL_GROUP, plain};
use crate::backend::cephfs::subvolumes::NewSubvolume;
use crate::backend::parameters::unknown;
use crate::clusters::Clusters;
use crate::csi::{METADATA, Map};
use crate::error::{Error, Result};
use crate::ids::Place;
use crate::kernel::ceph::Mounter;

/// The parameters of a volume.
pub const PARAMETERS: [&str; 11] = [
    "backend",
    "cluster",
    "fsName",
    "subvolumeGroup",
    "pool",
    "uid",
    "gid",
    "mode",
    "mounter",
    "kernelMountOptions",
    "fuseMountOptions",
];

/// The values of `mounter`.
const MOUNTERS: [(&str, Mounter); 2] = [("kernel", Mounter::Kernel), ("fuse", Mounter::Fuse)];

/// What the parameters of a volume say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub cluster: Option<String>,
    /// The file system; None for the only one of the cluster.
    pub fs: Option<String>,
    pub group: Option<String>,
    /// All but the size.
    pub layout: NewSubvolume,
    /// The client that mounts it.
    pub mounter: Mounter,
    /// Options for the kernel's client.
    pub kernel_options: Vec<String>,
    /// Options for ceph-fuse.
    pub fuse_options: Vec<String>,
}

impl Settings {
    /// Reads the parameters of a request. Unknown names and values are refused, with the nearest name that is
    /// known.
    pub fn parse(parameters: &Map, mutable: &Map) -> Result<Self> {
        if let Some(key) = mutable.keys().next() {
            return Err(Error::invalid(format!(
                "the mutable parameter {key:?}: CephFS volumes have no parameters that can be changed"
            )));
        }
        let mut settings = Self::default();
        for (key, value) in parameters {
            settings.set(key, value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "backend" => {}
            "cluster" => self.cluster = Some(value.to_string()),
            "fsName" => self.fs = Some(plain(key, value)?),
            "subvolumeGroup" => self.group = Some(plain(key, value)?),
            "pool" => self.layout.pool = Some(plain(key, value)?),
            "uid" => self.layout.uid = Some(number(key, value)?),
            "gid" => self.layout.gid = Some(number(key, value)?),
            "mode" => self.layout.mode = Some(mode(key, value)?),
            "mounter" => self.mounter = mounter(value)?,
            "kernelMountOptions" => self.kernel_options = mount_options(key, value, &KERNEL_OWN)?,
            "fuseMountOptions" => self.fuse_options = mount_options(key, value, &FUSE_OWN)?,
            key if key.starts_with(METADATA) => {}
            key => return Err(unknown("parameter", key, "CephFS", &PARAMETERS)),
        }
        Ok(())
    }

    /// Where a volume with these parameters would live. The file system stays empty if the parameters name
    /// none.
    pub fn place(&self, clusters: &Clusters) -> Result<Place> {
        Ok(Place {
            backend: NAME.into(),
            cluster: placement::choose_cluster(clusters, self.cluster.as_deref())?,
            pool: self.fs.clone().unwrap_or_default(),
            namespace: self.group.clone().unwrap_or_else(|| USUAL_GROUP.into()),
        })
    }
}

fn number(key: &str, value: &str) -> Result<u32> {
    let wrong = || {
        Error::invalid(format!("the parameter {key:?} is {value:?}: allowed is a number of a user or group"))
    };
    value.parse().map_err(|_| wrong())
}

/// Permissions as chmod(1) takes them in octal, with the bits for set-user-id, set-group-id and sticky.
fn mode(key: &str, value: &str) -> Result<String> {
    let is_octal = (3..=4).contains(&value.len()) && value.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match is_octal {
        true => Ok(value.to_string()),
        false => Err(Error::invalid(format!(
            "the parameter {key:?} is {value:?}: allowed are permissions in octal, for example 0770"
        ))),
    }
}

/// The client of this name.
pub(super) fn mounter(name: &str) -> Result<Mounter> {
    let found = MOUNTERS.iter().find(|(known, _)| *known == name).map(|(_, mounter)| *mounter);
    found.ok_or_else(|| {
        Error::invalid(format!("the parameter \"mounter\" is {name:?}: allowed are \"kernel\" and \"fuse\""))
    })
}

/// The name of a client.
pub(super) fn mounter_name(mounter: Mounter) -> &'static str {
    MOUNTERS.iter().find(|(_, known)| *known == mounter).map_or("", |(name, _)| name)
}

/// What cephlet says itself to the kernel's client, and to libfuse.
const KERNEL_OWN: [&str; 8] =
    ["name", "secret", "secretfile", "key", "mon_addr", "mds_namespace", "fs", "fsid"];
const FUSE_OWN: [&str; 2] = ["fsname", "subtype"];

/// Options for a client. Those that cephlet gives it are refused.
fn mount_options(key: &str, value: &str, own: &[&str]) -> Result<Vec<String>> {
    let options: Vec<String> =
        value.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_string).collect();
    match options.iter().find(|option| own.contains(&option.split('=').next().unwrap_or_default())) {
        None => Ok(options),
        Some(own) => Err(Error::invalid(format!(
            "the parameter {key:?} has {:?}, which cephlet gives itself: leave it out",
            own.split('=').next().unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings> {
        let map = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Settings::parse(&map, &Map::new())
    }

    #[test]
    fn known_parameters_are_understood() {
        let settings = parse(&[
            ("fsName", "cephfs"),
            ("subvolumeGroup", "team"),
            ("pool", "ssd"),
            ("uid", "65534"),
            ("gid", "0"),
            ("mode", "0770"),
            ("mounter", "fuse"),
            ("kernelMountOptions", "noatime, rasize=1048576"),
            ("fuseMountOptions", "noatime"),
            ("csi.storage.k8s.io/pvc/name", "web"),
        ])
        .unwrap();
        let layout = NewSubvolume {
            size: 0,
            pool: Some("ssd".into()),
            uid: Some(65534),
            gid: Some(0),
            mode: Some("0770".into()),
        };
        assert_eq!((settings.fs.as_deref(), settings.group.as_deref()), (Some("cephfs"), Some("team")));
        assert_eq!((settings.layout, settings.kernel_options.len()), (layout, 2));
        assert_eq!((settings.mounter, settings.fuse_options.len()), (Mounter::Fuse, 1));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (key, value, said) in [
            ("fsname", "a", "fsName"),
            ("subvolumeGroup", "..", "subvolumeGroup"),
            ("subvolumeGroup", "", "subvolumeGroup"),
            ("fsName", "a/b", "fsName"),
            ("uid", "-1", "uid"),
            ("gid", "x", "gid"),
            ("mode", "778", "mode"),
            ("mode", "rwx", "mode"),
            ("kernelMountOptions", "name=admin", "\"name\""),
            ("fuseMountOptions", "noatime,fsname=a", "\"fsname\""),
            ("mounter", "nfs", "\"fuse\""),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument);
            assert!(error.message().contains(said), "{error}");
        }
    }
}
