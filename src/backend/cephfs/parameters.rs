//! The parameters of the CephFS backend: what a request can specify beside the size. They have the names of
//! ceph-csi where it has such parameters.

use crate::backend::RootSettings;
use crate::backend::ceph::domains::{TopologyAccess, Wishes, parse_constrained_pools};
use crate::backend::ceph::placement;
use crate::backend::cephfs::names::{NAME, USUAL_GROUP, plain};
use crate::backend::cephfs::subvolumes::NewSubvolume;
use crate::backend::parameters::{parse_bool, refused, unknown};
use crate::clusters::{Clusters, DomainPool};
use crate::csi::{METADATA, Map};
use crate::error::{Error, Result};
use crate::ids::Place;
use crate::kernel::ceph::Mounter;

/// The parameters of a volume.
pub const PARAMETERS: [&str; 15] = [
    "backend",
    "cluster",
    "fsName",
    "subvolumeGroup",
    "pool",
    "uid",
    "gid",
    "mode",
    "mountGroupPolicy",
    "mounter",
    "kernelMountOptions",
    "fuseMountOptions",
    SHARES,
    "topologyConstrainedPools",
    "topologyAccess",
];

/// Whether a volume from a snapshot that is only read shares it, without a copy.
pub(crate) const SHARES: &str = "backingSnapshot";

/// The values of `mounter`.
const MOUNTERS: [(&str, Mounter); 2] = [("kernel", Mounter::Kernel), ("fuse", Mounter::Fuse)];

/// What the parameters of a volume say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub cluster: Option<String>,
    /// The file system; None for the only one of the cluster.
    pub fs: Option<String>,
    pub group: Option<String>,
    /// All but the size and the owner.
    pub layout: NewSubvolume,
    pub root: RootSettings,
    /// The client that mounts it.
    pub mounter: Mounter,
    /// Options for the kernel's client.
    pub kernel_options: Vec<String>,
    /// Options for ceph-fuse.
    pub fuse_options: Vec<String>,
    /// [`SHARES`]; None if nothing is said.
    pub shares: Option<bool>,
    /// The data pools that topology chooses from.
    pub constrained: Vec<DomainPool>,
    /// From where the volume is reachable.
    pub access: TopologyAccess,
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
            "uid" | "gid" | "mode" | "mountGroupPolicy" => self.root.set(key, value)?,
            "mounter" => self.mounter = mounter(value)?,
            "kernelMountOptions" => self.kernel_options = mount_options(key, value, &KERNEL_OWN)?,
            "fuseMountOptions" => self.fuse_options = mount_options(key, value, &FUSE_OWN)?,
            SHARES => self.shares = Some(parse_bool(key, value)?),
            "topologyConstrainedPools" => self.constrained = parse_constrained_pools(value)?,
            "topologyAccess" => self.access = TopologyAccess::parse(value)?,
            key if key.starts_with(METADATA) => {}
            key => return Err(unknown("parameter", key, "CephFS", &PARAMETERS)),
        }
        Ok(())
    }

    /// Whether topology chooses the pool for the volume's data: if the parameters name pools to choose from,
    /// or if they name no pool and a requirement names domains.
    pub fn leave_pool_to(&self, wishes: &Wishes) -> bool {
        !self.constrained.is_empty() || (self.layout.pool.is_none() && !wishes.is_empty())
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

/// The client of this name.
pub(super) fn mounter(name: &str) -> Result<Mounter> {
    let found = MOUNTERS.iter().find(|(known, _)| *known == name).map(|(_, mounter)| *mounter);
    found.ok_or_else(|| refused("mounter", name, "allowed are \"kernel\" and \"fuse\""))
}

/// The name of a client.
pub(super) fn mounter_name(mounter: Mounter) -> &'static str {
    MOUNTERS.iter().find(|(_, known)| *known == mounter).map_or("", |(name, _)| name)
}

/// What cephlet says itself to the kernel's client, and to libfuse.
const KERNEL_OWN: [&str; 9] =
    ["name", "secret", "secretfile", "key", "mon_addr", "mds_namespace", "fs", "fsid", "share"];
const FUSE_OWN: [&str; 2] = ["fsname", "subtype"];

/// Options for a client. Those that cephlet gives it are refused.
fn mount_options(key: &str, value: &str, own: &[&str]) -> Result<Vec<String>> {
    let options: Vec<String> =
        value.split(',').map(str::trim).filter(|it| !it.is_empty()).map(str::to_string).collect();
    refuse_own(&format!("the parameter {key:?}"), &options, own)?;
    Ok(options)
}

/// Refuses the mount flags of a request that cephlet gives to one of the clients itself.
pub(super) fn refuse_own_flags(flags: &[String]) -> Result<()> {
    refuse_own("the list of mount flags", flags, &[&KERNEL_OWN[..], &FUSE_OWN].concat())
}

fn refuse_own(what: &str, options: &[String], own: &[&str]) -> Result<()> {
    let mut names = options.iter().map(|option| option.split('=').next().unwrap_or_default());
    match names.find(|name| own.contains(name)) {
        None => Ok(()),
        Some(own) => {
            Err(Error::invalid(format!("{what} has {own:?}, which cephlet gives itself: leave it out")))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::sys::owner::Owner;

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
            ("backingSnapshot", "false"),
            ("csi.storage.k8s.io/pvc/name", "web"),
        ])
        .unwrap();
        let layout = NewSubvolume { pool: Some("ssd".into()), ..NewSubvolume::default() };
        let owner = Owner { uid: Some(65534), gid: Some(0), mode: Some(0o770) };
        assert_eq!(settings.root.owner, owner);
        assert_eq!((settings.fs.as_deref(), settings.group.as_deref()), (Some("cephfs"), Some("team")));
        assert_eq!((settings.layout, settings.shares), (layout, Some(false)));
        assert_eq!((settings.mounter, settings.fuse_options.len()), (Mounter::Fuse, 1));
        assert_eq!(settings.kernel_options.len(), 2);
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
            ("kernelMountOptions", "share", "\"share\""),
            ("fuseMountOptions", "noatime,fsname=a", "\"fsname\""),
            ("mounter", "nfs", "\"fuse\""),
            ("backingSnapshot", "yes", "backingSnapshot"),
        ] {
            let error = parse(&[(key, value)]).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument);
            assert!(error.message().contains(said), "{error}");
        }
    }

    #[test]
    fn mount_flags_are_passed_on_unless_cephlet_gives_them_itself() {
        refuse_own_flags(&["noatime".into(), "rasize=1".into()]).unwrap();
        for flag in ["fsname=x", "mds_namespace=other", "share"] {
            let refused = refuse_own_flags(&["noatime".into(), flag.into()]).unwrap_err();
            assert!(refused.message().contains(flag.split('=').next().unwrap()), "{refused}");
        }
    }
}
