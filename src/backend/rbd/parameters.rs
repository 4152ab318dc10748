//! The parameters of the RBD backend: what a request can specify beside the size. They have the names of
//! ceph-csi where it has such parameters.

use std::collections::BTreeSet;

use crate::backend::RootSettings;
use crate::backend::ceph::domains::{TopologyAccess, Wishes, parse_constrained_pools};
use crate::backend::ceph::placement::{self, PlacementWish};
use crate::backend::creation_record::Placed;
use crate::backend::parameters::{did_you_mean, parse_file_system, unknown};
use crate::backend::rbd::names::NAME;
use crate::backend::rbd::node::Mounter;
use crate::backend::rbd::tool::{DEFAULT_OBJECT_SIZE, FEATURES, Layout};
use crate::clusters::{Clusters, DomainPool};
use crate::csi::{FS_TYPE, METADATA, Map};
use crate::error::{Error, Result};
use crate::ids::{MAX_RBD_PLACE, Place};

/// The parameters of a volume.
pub const PARAMETERS: [&str; 18] = [
    "backend",
    "cluster",
    "pool",
    "namespace",
    "dataPool",
    "imageFeatures",
    "objectSize",
    "stripeUnit",
    "stripeCount",
    "mounter",
    "mapOptions",
    "topologyConstrainedPools",
    "topologyAccess",
    "uid",
    "gid",
    "mode",
    "mountGroupPolicy",
    FS_TYPE,
];

/// The pool that the rbd tool takes when none is named.
pub(crate) const USUAL_POOL: &str = "rbd";

/// Mutable parameters: limits, with the cluster's name for each.
pub const LIMITS: [(&str, &str); 6] = [
    ("iops", "conf_rbd_qos_iops_limit"),
    ("readIops", "conf_rbd_qos_read_iops_limit"),
    ("writeIops", "conf_rbd_qos_write_iops_limit"),
    ("bps", "conf_rbd_qos_bps_limit"),
    ("readBps", "conf_rbd_qos_read_bps_limit"),
    ("writeBps", "conf_rbd_qos_write_bps_limit"),
];

/// The prefix of the metadata keys that rbd treats as settings of the image (`rbd config image set`).
const SETTING: &str = "conf_";

/// What the parameters of a volume say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub cluster: Option<String>,
    pub pool: Option<String>,
    pub namespace: String,
    pub layout: Layout,
    pub mounter: Mounter,
    /// Options of the mapping, for that mounter.
    pub map_options: Vec<String>,
    /// The file system for staging requests that name none.
    pub fs_type: Option<String>,
    /// Limits, by the cluster's names; zero removes a limit.
    pub limits: Vec<(&'static str, u64)>,
    /// Pools with their domains, from which topology chooses.
    pub constrained: Vec<DomainPool>,
    /// Whether the volume says from which domain it can be reached.
    pub access: TopologyAccess,
    /// The root of its file system.
    pub root: RootSettings,
}

impl Settings {
    /// Reads the parameters of a request. Unknown names and values are refused, with the nearest name that is
    /// known.
    pub fn parse(parameters: &Map, mutable: &Map) -> Result<Self> {
        let mut settings = Self { limits: limits(mutable)?, ..Self::default() };
        for (key, value) in parameters {
            match key.as_str() {
                "backend" | "stripeUnit" | "stripeCount" | "mapOptions" => {}
                "cluster" => settings.cluster = Some(filled(key, value)?),
                "pool" => settings.pool = Some(name(key, value)?),
                "namespace" if value.is_empty() => {}
                "namespace" => settings.namespace = name(key, value)?,
                "dataPool" => settings.layout.data_pool = Some(name(key, value)?),
                "imageFeatures" => settings.layout.features = Some(features(value)?),
                "objectSize" => settings.layout.object_size = Some(object_size(key, value)?),
                "mounter" => settings.mounter = Mounter::parse(value)?,
                "topologyConstrainedPools" => settings.constrained = constrained_pools(key, value)?,
                "topologyAccess" => settings.access = TopologyAccess::parse(value)?,
                "uid" | "gid" | "mode" | "mountGroupPolicy" => settings.root.set(key, value)?,
                FS_TYPE => settings.fs_type = parse_file_system(key, value)?,
                key if key.starts_with(METADATA) => {}
                key => return Err(unknown("parameter", key, "RBD", &PARAMETERS)),
            }
        }
        let map_options = parameters.get("mapOptions").map_or("", String::as_str);
        settings.map_options = settings.mounter.parse_options(map_options)?;
        let object_size = settings.layout.object_size.unwrap_or(DEFAULT_OBJECT_SIZE);
        settings.layout.striping = striping(parameters, object_size)?;
        Ok(settings)
    }

    /// The settings at the place that topology chose.
    pub fn at(mut self, placed: Option<&Placed>) -> Self {
        let data_pool = placed.and_then(|placed| placed.data_pool.clone());
        self.layout.data_pool = data_pool.or(self.layout.data_pool);
        self
    }

    /// Whether topology chooses the volume's pool: if the parameters name pools to choose from, or if they
    /// name no pool and a requirement names domains.
    pub fn leave_pool_to(&self, wishes: &Wishes) -> bool {
        !self.constrained.is_empty() || (self.pool.is_none() && !wishes.is_empty())
    }

    pub fn wish(&self) -> PlacementWish<'_> {
        PlacementWish {
            cluster: self.cluster.as_deref(),
            pool: self.pool.as_deref(),
            namespace: &self.namespace,
            usual_pool: USUAL_POOL,
        }
    }

    /// Where a volume with these parameters would live.
    pub fn place(&self, clusters: &Clusters) -> Result<Place> {
        let place = placement::choose(clusters, NAME, &self.wish())?;
        place.fits(None, MAX_RBD_PLACE)?;
        Ok(place)
    }

    /// Where the volume's name is registered if topology chooses its pool.
    pub fn registry(&self, clusters: &Clusters) -> Result<Place> {
        placement::choose_registry(clusters, NAME, &self.wish())
    }
}

/// The limits in mutable parameters, by the cluster's names.
pub(crate) fn limits(mutable: &Map) -> Result<Vec<(&'static str, u64)>> {
    mutable.iter().map(|(key, value)| limit(key, value)).collect()
}

fn limit(key: &str, value: &str) -> Result<(&'static str, u64)> {
    let Some((_, name)) = LIMITS.iter().find(|(ours, _)| *ours == key) else {
        let known = LIMITS.map(|(ours, _)| ours);
        return Err(unknown("mutable parameter", key, "RBD", &known));
    };
    let bad = || {
        Error::invalid(format!(
            "the mutable parameter {key:?} is {value:?}: allowed is a whole number, 0 for no limit"
        ))
    };
    Ok((name, value.parse().map_err(|_| bad())?))
}

/// The name that `rbd config` has for the limit whose metadata key is `key`.
pub(crate) fn setting(key: &str) -> &str {
    key.strip_prefix(SETTING).unwrap_or(key)
}

fn filled(key: &str, value: &str) -> Result<String> {
    if value.is_empty() {
        Err(Error::invalid(format!("the parameter {key:?} is empty")))
    } else {
        Ok(value.to_string())
    }
}

/// The name of a pool or namespace. Ceph allows more, but not in an image's spec.
fn name(key: &str, value: &str) -> Result<String> {
    let odd = |c: char| c.is_control() || c.is_whitespace() || "/@".contains(c);
    if value.starts_with('-') || value.contains(odd) {
        return Err(Error::invalid(format!(
            "the parameter {key:?} is {value:?}: no spaces, '/', '@', or '-' in front"
        )));
    }
    filled(key, value)
}

fn constrained_pools(key: &str, value: &str) -> Result<Vec<DomainPool>> {
    let pools = parse_constrained_pools(value)?;
    for pool in &pools {
        let names = [Some(&pool.name), pool.data_pool.as_ref()];
        names.into_iter().flatten().try_for_each(|pool| name(key, pool).map(drop))?;
    }
    Ok(pools)
}

fn features(value: &str) -> Result<BTreeSet<String>> {
    let asked: BTreeSet<String> =
        value.split(',').map(|it| it.trim().to_string()).filter(|it| !it.is_empty()).collect();
    let known = FEATURES.map(|(name, _)| name);
    if let Some(odd) = asked.iter().find(|feature| !known.contains(&feature.as_str())) {
        return Err(Error::invalid(format!(
            "the parameter \"imageFeatures\" names {odd:?}: {}",
            did_you_mean(odd, &known)
        )));
    }
    let needs =
        [("object-map", "exclusive-lock"), ("fast-diff", "object-map"), ("journaling", "exclusive-lock")];
    for (feature, other) in needs {
        if asked.contains(feature) && !asked.contains(other) {
            return Err(Error::invalid(format!(
                "the parameter \"imageFeatures\" asks for {feature}, which needs {other}: add it"
            )));
        }
    }
    if !asked.contains("layering") {
        return Err(Error::invalid(
            "the parameter \"imageFeatures\" lacks layering, without which there are no snapshots and \
             clones: add it",
        ));
    }
    Ok(asked)
}

/// A number of bytes, with K, M or no suffix.
fn bytes(key: &str, value: &str) -> Result<u64> {
    let (digits, factor) = match value.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => value.strip_suffix(['M', 'm']).map_or((value, 1), |digits| (digits, 1 << 20)),
    };
    let number =
        digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|number| *number > 0);
    number.ok_or_else(|| {
        Error::invalid(format!(
            "the parameter {key:?} is {value:?}: allowed is a number of bytes, as 4194304 or 4M"
        ))
    })
}

/// rbd takes powers of two from 4 KiB to 32 MiB.
fn object_size(key: &str, value: &str) -> Result<u64> {
    let size = bytes(key, value)?;
    if size.is_power_of_two() && (4 << 10..=32 << 20).contains(&size) {
        return Ok(size);
    }
    Err(Error::invalid(format!(
        "the parameter {key:?} is {value:?}: allowed are powers of two from 4K to 32M"
    )))
}

/// The unit and the count of stripes. rbd would refuse a unit that does not divide the objects only after it
/// has begun.
fn striping(parameters: &Map, object_size: u64) -> Result<Option<(u64, u64)>> {
    match (parameters.get("stripeUnit"), parameters.get("stripeCount")) {
        (None, None) => Ok(None),
        (Some(unit), Some(count)) => {
            let bad = || {
                Error::invalid(format!(
                    "the parameter \"stripeCount\" is {count:?}: allowed is a number above 0"
                ))
            };
            let count = count.parse().ok().filter(|count| *count > 0).ok_or_else(bad)?;
            let unit = bytes("stripeUnit", unit)?;
            if !object_size.is_multiple_of(unit) {
                return Err(Error::invalid(format!(
                    "the parameter \"stripeUnit\" is {unit}: it must divide the object size, which is {object_size}"
                )));
            }
            Ok(Some((unit, count)))
        }
        _ => Err(Error::invalid(
            "of the parameters \"stripeUnit\" and \"stripeCount\" one is missing: give both or none",
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings> {
        Settings::parse(&map(pairs), &Map::new())
    }

    fn refused(pairs: &[(&str, &str)], part: &str) {
        let error = parse(pairs).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert!(error.message().contains(part), "{error} should mention {part}");
    }

    #[test]
    fn known_parameters_are_understood() {
        let asked = [
            ("pool", "vms"),
            ("namespace", "team"),
            ("dataPool", "ec"),
            ("objectSize", "1M"),
            ("stripeUnit", "64K"),
        ];
        let settings =
            parse(&[&asked[..], &[("stripeCount", "4"), ("mounter", "rbd-nbd"), (FS_TYPE, "xfs")]].concat())
                .unwrap();
        assert_eq!((settings.pool.as_deref(), settings.namespace.as_str()), (Some("vms"), "team"));
        assert_eq!(settings.layout.data_pool.as_deref(), Some("ec"));
        assert_eq!(
            (settings.layout.object_size, settings.layout.striping),
            (Some(1 << 20), Some((64 << 10, 4)))
        );
        assert_eq!((settings.mounter, settings.fs_type.as_deref()), (Mounter::Nbd, Some("xfs")));
    }

    #[test]
    fn features_must_be_complete() {
        let settings = parse(&[("imageFeatures", "layering, exclusive-lock")]).unwrap();
        assert_eq!(settings.layout.features.unwrap().len(), 2);
        refused(&[("imageFeatures", "layering,object-map")], "needs exclusive-lock");
        refused(&[("imageFeatures", "exclusive-lock")], "layering");
        refused(&[("imageFeatures", "layring")], "did you mean \"layering\"?");
    }

    #[test]
    fn what_is_not_known_is_refused_with_the_nearest_name() {
        refused(&[("Pool", "p")], "did you mean \"pool\"?");
        refused(&[("pool", "a/b")], "'/'");
        refused(&[("pool", "")], "is empty");
        refused(&[("objectSize", "3M")], "powers of two");
        refused(&[("stripeUnit", "4K")], "give both");
        refused(&[("stripeUnit", "3000"), ("stripeCount", "2")], "must divide");
        refused(&[("mounter", "fuse")], "rbd-nbd");
        refused(&[(FS_TYPE, "vfat")], "ext4, xfs, btrfs");
        refused(&[("topologyAccess", "stric")], "strict");
    }

    #[test]
    fn limits_are_translated() {
        let settings = Settings::parse(&Map::new(), &map(&[("iops", "500"), ("readBps", "0")])).unwrap();
        assert_eq!(settings.limits, [("conf_rbd_qos_iops_limit", 500), ("conf_rbd_qos_read_bps_limit", 0)]);
        assert_eq!(setting(settings.limits[0].0), "rbd_qos_iops_limit");
        let error = limits(&map(&[("iop", "5")])).unwrap_err();
        assert!(error.message().contains("\"iops\""), "{error}");
        assert!(limits(&map(&[("iops", "many")])).is_err());
    }
}
