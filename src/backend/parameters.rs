//! What the parameters of all backends have in common: values that several know, the file system, and how
//! what nobody knows is refused.

use crate::csi::{Access, Capability, FILE_SYSTEMS, OLD_FILE_SYSTEMS};
use crate::error::{Error, Result};
use crate::spelling;

/// Reads a parameter that is true or false.
pub(super) fn parse_bool(key: &str, value: &str) -> Result<bool> {
    value.parse().map_err(|_| {
        Error::invalid(format!("the parameter {key:?} is {value:?}: allowed are true and false"))
    })
}

/// Reads a parameter that names a file system; empty is none.
pub(super) fn parse_file_system(key: &str, value: &str) -> Result<Option<String>> {
    match value {
        "" => Ok(None),
        _ if is_known(value) => Ok(Some(value.to_string())),
        _ => Err(Error::invalid(format!("the parameter {key:?} is {value:?}: {}", allowed()))),
    }
}

/// The file system that a volume will be mounted as, where one of its uses says so.
pub(super) fn file_system_of(uses: &[Capability]) -> Option<String> {
    uses.iter().find_map(|capability| match &capability.access {
        Access::Mount { fs_type, .. } if !fs_type.is_empty() => Some(fs_type.clone()),
        _ => None,
    })
}

/// Refuses a use as a file system that no node can mount.
pub(super) fn check_file_system(capability: &Capability) -> Result<()> {
    match &capability.access {
        Access::Mount { fs_type, .. } if !fs_type.is_empty() && !is_known(fs_type) => {
            Err(Error::invalid(format!("the file system {fs_type:?} is not possible: {}", allowed())))
        }
        _ => Ok(()),
    }
}

fn is_known(fs_type: &str) -> bool {
    FILE_SYSTEMS.contains(&fs_type) || OLD_FILE_SYSTEMS.contains(&fs_type)
}

fn allowed() -> String {
    format!(
        "allowed are {}, and {} for a volume that has such a file system already",
        FILE_SYSTEMS.join(", "),
        OLD_FILE_SYSTEMS.join(" and ")
    )
}

/// The refusal of a name that the `backend` does not know. `kind` is "parameter" or "mutable parameter".
pub(super) fn unknown(kind: &str, key: &str, backend: &str, known: &[&str]) -> Error {
    Error::invalid(format!(
        "the {kind} {key:?} is unknown to the {backend} backend: {}",
        did_you_mean(key, known)
    ))
}

/// The known name nearest to a wrong one, and all that there are.
pub(super) fn did_you_mean(wrong: &str, known: &[&str]) -> String {
    let nearest = spelling::nearest(wrong, known.iter().copied());
    format!("did you mean {nearest:?}? (known are {})", known.join(", "))
}
