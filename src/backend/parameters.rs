//! Common to the parameters of all backends: values that several backends know, the file system, and the
//! refusal of unknown parameters.

use crate::csi::{Access, Capability, DEFAULT_FILE_SYSTEM, FILE_SYSTEMS, OLD_FILE_SYSTEMS, is_file_system};
use crate::error::{Error, Result};
use crate::spelling;

/// Reads a parameter that is true or false.
pub(super) fn parse_bool(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| {
        Error::invalid(format!("the parameter {key:?} is {value:?}: allowed are true and false"))
    })
}

/// Reads a parameter that names a file system; an empty value names none.
pub(super) fn parse_file_system(key: &str, value: &str) -> Result<Option<String>> {
    match value {
        "" => Ok(None),
        _ if is_file_system(value) => Ok(Some(value.to_string())),
        _ => Err(Error::invalid(format!("the parameter {key:?} is {value:?}: {}", allowed()))),
    }
}

/// The file system that a volume will be mounted as, if one of its uses names it.
pub(super) fn file_system_of(uses: &[Capability]) -> Option<String> {
    uses.iter().find_map(Capability::fs_type).map(str::to_string)
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
