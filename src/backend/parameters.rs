//! Common to the parameters of all backends: values that several backends know, the file system, and the
//! refusal of unknown parameters.

use std::fmt::Display;

use crate::csi::{
    Access, Capability, DEFAULT_FILE_SYSTEM, FILE_SYSTEMS, Map, OLD_FILE_SYSTEMS, is_file_system,
};
use crate::error::{Error, Result};
use crate::spelling;
use crate::sys::owner::{Owner, Sharing, parse_id, parse_mode};

/// The parameters about the root of a volume's file system. A node finds them in the context of the volume or
/// of its publication.
const ROOT: [&str; 4] = ["uid", "gid", "mode", "mountGroupPolicy"];

/// The key by which a publish context says that the volume is read-only.
pub(super) const READ_ONLY: &str = "readOnly";

/// What the parameters say about the root of a volume's file system. On a block volume they have no effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootSettings {
    /// What a new file system gets.
    pub owner: Owner,
    /// Whether a mount group gets everything below the root, too.
    shares_all: bool,
}

impl RootSettings {
    /// Whether a parameter is about the root.
    pub fn is_about(key: &str) -> bool {
        ROOT.contains(&key)
    }

    /// Takes in a parameter about the root; others are passed over.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "uid" => self.owner.uid = Some(id_in(key, value)?),
            "gid" => self.owner.gid = Some(id_in(key, value)?),
            "mode" => {
                let allowed = "allowed are permissions in octal, for example 0770";
                let mode = parse_mode(value).ok_or_else(|| refused(key, value, allowed))?;
                self.owner.mode = Some(mode);
            }
            "mountGroupPolicy" => {
                self.shares_all = match value {
                    "root" => false,
                    "always" => true,
                    _ => return Err(refused(key, value, "allowed are root and always")),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the parameters in a context.
    pub fn of_context(context: &Map) -> Result<Self> {
        let mut settings = Self::default();
        context.iter().try_for_each(|(key, value)| settings.set(key, value))?;
        Ok(settings)
    }

    /// How a mount group shares the volume.
    pub fn sharing(&self, gid: u32) -> Sharing {
        Sharing { gid, recursive: self.shares_all }
    }
}

/// The parameters about the root, for a context.
pub(super) fn about_root(parameters: &Map) -> Map {
    let is_meant = |key: &String| RootSettings::is_about(key);
    parameters
        .iter()
        .filter(|(key, _)| is_meant(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn id_in(key: &str, value: &str) -> Result<u32> {
    let allowed = || format!("allowed is the number of a user or group, from 0 to {}", u32::MAX - 1);
    parse_id(value).ok_or_else(|| refused(key, value, allowed()))
}

/// Whether a publish context says that the volume is read-only.
pub(super) fn is_read_only(context: &Map) -> Result<bool> {
    match context.get(READ_ONLY).map_or("", String::as_str) {
        "" | "false" => Ok(false),
        "true" => Ok(true),
        other => Err(Error::invalid(format!(
            "the publish context has {READ_ONLY} {other:?}: allowed are true and false"
        ))),
    }
}

/// Reads a parameter that is true or false.
pub(super) fn parse_bool(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| refused(key, value, "allowed are true and false"))
}

/// The refusal of a value, with what is `allowed`.
pub(super) fn refused(key: &str, value: &str, allowed: impl Display) -> Error {
    Error::invalid(format!("the parameter {key:?} is {value:?}: {allowed}"))
}

/// Reads a parameter that names a file system; an empty value names none.
pub(super) fn parse_file_system(key: &str, value: &str) -> Result<Option<String>> {
    match value {
        "" => Ok(None),
        _ if is_file_system(value) => Ok(Some(value.to_string())),
        _ => Err(refused(key, value, allowed())),
    }
}

/// The file system of a new volume: that of its parameter, else the one that its uses name.
pub(super) fn fs_type_for(parameter: Option<&str>, uses: &[Capability]) -> Option<String> {
    parameter.or_else(|| uses.iter().find_map(Capability::fs_type)).map(str::to_string)
}

/// The file system that a volume made for `made_for` will be formatted with, as far as its parameter and its
/// uses tell; None for a volume that is only used as a block device.
pub(super) fn formatted_with<'a>(
    parameter: Option<&str>,
    uses: &[Capability],
    made_for: Option<&'a str>,
) -> Option<&'a str> {
    let is_mounted = uses.iter().any(|capability| matches!(capability.access, Access::Mount { .. }));
    (is_mounted || parameter.is_some()).then(|| made_for.unwrap_or(DEFAULT_FILE_SYSTEM))
}

/// The refusal of a copy whose file system differs from that of its source.
pub(super) fn other_file_system(present: &str, asked: &str) -> Error {
    Error::invalid(format!(
        "its source has the file system {present}, {asked} was asked for: a copy has that of its source; ask \
         for {present}, or name none"
    ))
}

/// Refuses a use with a file system that no node can mount.
pub(super) fn check_file_system(capability: &Capability) -> Result<()> {
    match capability.fs_type() {
        Some(fs_type) if !is_file_system(fs_type) => {
            Err(Error::invalid(format!("the file system {fs_type:?} is not possible: {}", allowed())))
        }
        _ => Ok(()),
    }
}

fn allowed() -> String {
    format!(
        "allowed are {}, and {} for a volume that has such a file system already",
        FILE_SYSTEMS.join(", "),
        OLD_FILE_SYSTEMS.join(" and ")
    )
}

/// The refusal of a name that `backend` does not know. `kind` is "parameter" or "mutable parameter".
pub(super) fn unknown(kind: &str, key: &str, backend: &str, known: &[&str]) -> Error {
    Error::invalid(format!(
        "the {kind} {key:?} is unknown to the {backend} backend: {}",
        did_you_mean(key, known)
    ))
}

/// The known name nearest to a wrong one, and all known names.
pub(super) fn did_you_mean(wrong: &str, known: &[&str]) -> String {
    let nearest = spelling::nearest(wrong, known.iter().copied());
    format!("did you mean {nearest:?}? (known are {})", known.join(", "))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn map(pairs: &[(&str, &str)]) -> Map {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn the_root_is_described_by_parameters_or_a_context() {
        let all = map(&[
            ("fsType", "xfs"),
            ("uid", "65534"),
            ("gid", "0"),
            ("mode", "0770"),
            ("mountGroupPolicy", "always"),
        ]);
        let settings = RootSettings::of_context(&all).unwrap();
        assert_eq!(settings.owner, Owner { uid: Some(65534), gid: Some(0), mode: Some(0o770) });
        assert_eq!(settings.sharing(5), Sharing { gid: 5, recursive: true });
        assert_eq!(RootSettings::of_context(&about_root(&all)).unwrap(), settings);
        assert!(!about_root(&all).contains_key("fsType"));
        let default = RootSettings::of_context(&map(&[("mountGroupPolicy", "root")])).unwrap();
        assert_eq!(default, RootSettings::default());
        assert!(default.owner.is_none() && !default.sharing(5).recursive);
    }

    #[test]
    fn wrong_values_are_refused_with_those_that_are_allowed() {
        for (key, value, said) in [
            ("uid", "nobody", "4294967294"),
            ("uid", "-1", "uid"),
            ("gid", "4294967295", "gid"),
            ("mode", "rwx", "0770"),
            ("mode", "", "mode"),
            ("mountGroupPolicy", "recursive", "root and always"),
        ] {
            let error = RootSettings::of_context(&map(&[(key, value)])).unwrap_err();
            assert_eq!(error.kind(), Kind::InvalidArgument);
            assert!(error.message().contains(said), "{error}");
        }
    }
}
