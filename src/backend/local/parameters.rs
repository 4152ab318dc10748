//! The parameters of the local backend: options of a volume besides its size.

use crate::backend::RootSettings;
use crate::backend::parameters::{parse_bool, parse_file_system, unknown};
use crate::csi::{FS_TYPE, METADATA, Map};
use crate::error::{Error, Result};

/// The parameters of a volume.
const PARAMETERS: [&str; 7] = ["backend", "preallocate", "uid", "gid", "mode", "mountGroupPolicy", FS_TYPE];

/// The parsed parameters of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// The image gets all its blocks when it is made, so that it cannot run out of space. A reflink copy gets
    /// the blocks that its source does not have; the shared blocks are still copied on their first write.
    pub preallocate: bool,
    /// The file system for stages that name none.
    pub fs_type: Option<String>,
    /// The root of its file system.
    pub root: RootSettings,
}

impl Settings {
    /// Reads the parameters of a request. Refuses unknown names, with the nearest known name, and unknown
    /// values.
    pub fn parse(parameters: &Map, mutable: &Map) -> Result<Self> {
        refuse_mutable(mutable)?;
        let mut settings = Self::default();
        for (key, value) in parameters {
            match key.as_str() {
                "backend" => {}
                "preallocate" => settings.preallocate = parse_bool(key, value)?,
                FS_TYPE => settings.fs_type = parse_file_system(key, value)?,
                "uid" | "gid" | "mode" | "mountGroupPolicy" => settings.root.set(key, value)?,
                key if key.starts_with(METADATA) => {}
                key => return Err(unknown("parameter", key, "local", &PARAMETERS)),
            }
        }
        Ok(settings)
    }
}

/// No setting of a local volume can be changed later.
pub(super) fn refuse_mutable(mutable: &Map) -> Result<()> {
    match mutable.keys().next() {
        None => Ok(()),
        Some(key) => Err(Error::invalid(format!(
            "the mutable parameter {key:?} is unknown: local volumes have none; remove it from the volume's \
             class"
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::parameters::fs_type_for;
    use crate::csi::{Access, Capability, Mode};
    use crate::error::Kind;

    fn parse(pairs: &[(&str, &str)]) -> Result<Settings> {
        let map = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        Settings::parse(&map, &Map::new())
    }

    fn refused(pairs: &[(&str, &str)], part: &str) {
        let error = parse(pairs).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert!(error.message().contains(part), "{error} should mention {part}");
    }

    #[test]
    fn known_parameters_are_understood() {
        let settings = parse(&[("backend", "local"), ("preallocate", "true"), (FS_TYPE, "xfs")]).unwrap();
        let expected = Settings { preallocate: true, fs_type: Some("xfs".into()), ..Settings::default() };
        assert_eq!(settings, expected);
        assert_eq!(parse(&[("uid", "7")]).unwrap().root.owner.uid, Some(7));
        assert_eq!(parse(&[(FS_TYPE, "")]).unwrap().fs_type, None);
    }

    #[test]
    fn parameters_win_over_uses() {
        let used_as = |fs_type: &str| {
            let access = Access::Mount { fs_type: fs_type.into(), flags: Vec::new() };
            Capability { access, mode: Mode::SingleNodeWriter }
        };
        let uses = [used_as(""), used_as("btrfs")];
        let asked = |pairs, uses| fs_type_for(parse(pairs).unwrap().fs_type.as_deref(), uses);
        assert_eq!(asked(&[(FS_TYPE, "xfs")], &uses).as_deref(), Some("xfs"));
        assert_eq!(asked(&[], &uses).as_deref(), Some("btrfs"));
        assert_eq!(asked(&[], &uses[..1]), None);
    }

    #[test]
    fn metadata_of_sidecars_is_passed_over() {
        assert_eq!(parse(&[("csi.storage.k8s.io/pvc/name", "claim")]).unwrap(), Settings::default());
    }

    #[test]
    fn what_is_not_known_is_refused_with_the_nearest_name() {
        refused(&[("preAlocate", "true")], "did you mean \"preallocate\"?");
        refused(&[("fstype", "ext4")], "did you mean");
        refused(&[("Backend", "local")], "did you mean \"backend\"?");
        refused(&[("preallocate", "yes")], "allowed are true and false");
        refused(&[("uid", "root")], "allowed is the number");
        refused(&[("mountGroupPolicy", "no")], "root and always");
        refused(&[(FS_TYPE, "vfat")], "ext4, xfs, btrfs");
    }

    #[test]
    fn there_are_no_mutable_parameters() {
        let error = Settings::parse(&Map::new(), &Map::from([("iops".into(), "5".into())])).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidArgument);
        assert!(error.message().contains("\"iops\""), "{error}");
    }
}
