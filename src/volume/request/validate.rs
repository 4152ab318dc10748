//! The specification's rules for single fields ("Size Limits", "Required vs. Optional Fields"). An error
//! names the field.

use std::path::{Component, Path};

use crate::csi::{FS_TYPE, is_file_system};
use crate::error::{Error, Result};
use crate::secrets::Secrets;
use crate::volume::Target;
use crate::volume::request::{Access, Capability, Map, SizeRange, Source, TopologyRequirement};

/// The limit of strings in bytes, unless the specification says otherwise.
const MAX_TEXT: usize = 128;
/// The limit of a node's ID.
const MAX_NODE_ID: usize = 256;
/// The limit of all keys and values of a map together, and of all mount flags together, in bytes.
const MAX_MAP: usize = 4096;
/// The limit of a path with its final NUL (limits.h, PATH_MAX).
const MAX_PATH: usize = 4096;
/// The limit of sizes: they travel as signed 64-bit numbers.
const MAX_SIZE: u64 = i64::MAX as u64;

fn missing(field: &str) -> Error {
    Error::invalid(format!("{field} is missing: it is a required field"))
}

fn too_long(field: &str, length: usize, limit: usize) -> Error {
    Error::invalid(format!("{field} is {length} bytes long, at most {limit} are allowed"))
}

fn text_within(field: &str, text: &str, limit: usize) -> Result<()> {
    if text.len() > limit {
        return Err(too_long(field, text.len(), limit));
    }
    Ok(())
}

/// A required name: present, not too long, without control characters.
pub fn name(field: &str, text: &str) -> Result<()> {
    id(field, text)?;
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{field} contains a control character: {text:?}")));
    }
    Ok(())
}

/// A required ID: present and not too long. Its meaning is only looked up later.
pub fn id(field: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(missing(field));
    }
    optional_text(field, text)
}

/// A required ID, of an object that was looked up by it.
pub fn target<I>(field: &str, target: &Target<I>) -> Result<()> {
    id(field, &target.text)
}

/// A string that may be empty.
pub fn optional_text(field: &str, text: &str) -> Result<()> {
    text_within(field, text, MAX_TEXT)
}

/// A required node ID.
pub fn node_id(field: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(missing(field));
    }
    optional_node_id(field, text)
}

/// A node ID that may be empty.
pub fn optional_node_id(field: &str, text: &str) -> Result<()> {
    text_within(field, text, MAX_NODE_ID)
}

/// A map: all keys and values together within the limit.
pub fn map(field: &str, pairs: &Map) -> Result<()> {
    let length = pairs.iter().map(|(key, value)| key.len() + value.len()).sum();
    if length > MAX_MAP {
        return Err(too_long(field, length, MAX_MAP));
    }
    Ok(())
}

/// A parameter that is one of these words; the first is the default.
pub fn choice<'a>(parameters: &'a Map, key: &str, words: &[&'a str]) -> Result<&'a str> {
    match parameters.get(key).map(String::as_str) {
        None | Some("") => Ok(words[0]),
        Some(word) if words.contains(&word) => Ok(word),
        Some(other) => Err(Error::invalid(format!(
            "the parameter {key:?} is {other:?}: allowed are {}",
            words.join(" and ")
        ))),
    }
}

/// A map that may be left out.
pub fn optional_map(field: &str, pairs: &Option<Map>) -> Result<()> {
    pairs.as_ref().map_or(Ok(()), |pairs| map(field, pairs))
}

/// Secrets: within the limit of a map. Their content is never part of a message.
pub fn secrets(field: &str, secrets: &Secrets) -> Result<()> {
    if secrets.size() > MAX_MAP {
        return Err(too_long(field, secrets.size(), MAX_MAP));
    }
    Ok(())
}

/// A required path: absolute, no `..` or `.`, no NUL, within PATH_MAX.
pub fn path(field: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(missing(field));
    }
    if text.len() >= MAX_PATH {
        return Err(too_long(field, text.len(), MAX_PATH - 1));
    }
    let plain = |component: Component<'_>| matches!(component, Component::RootDir | Component::Normal(_));
    let dotted = text.split('/').any(|part| part == "." || part == "..");
    if text.contains('\0') || dotted || !text.starts_with('/') || !Path::new(text).components().all(plain) {
        return Err(Error::invalid(format!(
            "{field} must be an absolute path without '.', '..' and NUL, not {text:?}"
        )));
    }
    if text.bytes().all(|byte| byte == b'/') {
        return Err(Error::invalid(format!("{field} must not be the root directory")));
    }
    Ok(())
}

/// A required path that is only looked up among a volume's staging paths and targets: a path of another form
/// is not found.
pub fn known_path(field: &str, text: &str) -> Result<()> {
    if text.is_empty() {
        return Err(missing(field));
    }
    text_within(field, text, MAX_PATH - 1)
}

/// The same for a path that may be left out.
pub fn optional_known_path(field: &str, text: &str) -> Result<()> {
    if text.is_empty() { Ok(()) } else { known_path(field, text) }
}

/// A target that is neither the staging path nor below it: it would be taken for the staging path, or be made
/// inside the volume.
pub fn apart(staging: &str, target: &str) -> Result<()> {
    if staging.is_empty() || !Path::new(target).starts_with(staging) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "target_path {target:?} must not be staging_target_path or below it ({staging:?}): use another path"
    )))
}

/// A path that may be left out.
pub fn optional_path(field: &str, text: &str) -> Result<()> {
    if text.is_empty() { Ok(()) } else { path(field, text) }
}

/// A size range: in range and not contradicting itself.
pub fn size(range: &SizeRange) -> Result<()> {
    let SizeRange { required, limit } = *range;
    if required > MAX_SIZE || limit > MAX_SIZE {
        return Err(Error::out_of_range(format!(
            "capacity_range: {required} to {limit} bytes is more than any volume can have"
        )));
    }
    if limit != 0 && limit < required {
        return Err(Error::invalid(format!(
            "capacity_range: limit_bytes ({limit}) is less than required_bytes ({required})"
        )));
    }
    Ok(())
}

/// A required size range.
pub fn wanted_size(range: &SizeRange) -> Result<()> {
    if *range == SizeRange::default() {
        return Err(missing("capacity_range"));
    }
    size(range)
}

/// Capabilities: at least one, each well-formed.
pub fn capabilities(all: &[Capability]) -> Result<()> {
    if all.is_empty() {
        return Err(missing("volume_capabilities"));
    }
    any_capabilities(all)
}

/// Capabilities, perhaps none: each well-formed.
pub fn any_capabilities(all: &[Capability]) -> Result<()> {
    all.iter().try_for_each(capability)
}

/// A capability that may be left out.
pub fn optional_capability(one: &Option<Capability>) -> Result<()> {
    one.as_ref().map_or(Ok(()), capability)
}

/// One capability: file system and flags within their limits, and no contradiction about writing.
pub fn capability(capability: &Capability) -> Result<()> {
    let Access::Mount { fs_type, flags } = &capability.access else { return Ok(()) };
    optional_text("fs_type", fs_type)?;
    let length = flags.iter().map(String::len).sum();
    if length > MAX_MAP {
        return Err(too_long("mount_flags", length, MAX_MAP));
    }
    if flags.iter().any(|flag| flag.is_empty() || flag.contains(['\0', '\n'])) {
        return Err(Error::invalid("mount_flags contains an empty flag or one with a control character"));
    }
    if flags.iter().any(|flag| flag.matches('"').count() % 2 == 1) {
        return Err(Error::invalid("mount_flags contains a flag with a double quote that is not closed"));
    }
    let has = |wanted: &str| flags.iter().any(|flag| flag == wanted);
    if has("ro") && has("rw") {
        return Err(Error::invalid("mount_flags contains both ro and rw: remove one of them"));
    }
    writes_as_asked("access_mode", capability, capability.mode.is_read_only())
}

/// Refuses the mount flag `rw` if `field` (`true`, or an access mode for readers) allows only reading. (`ro`
/// with any `field` is allowed, and means a use that only reads.)
pub fn writes_as_asked(field: &str, capability: &Capability, read_only: bool) -> Result<()> {
    match &capability.access {
        Access::Mount { flags, .. } if read_only && flags.iter().any(|flag| flag == "rw") => {
            Err(Error::invalid(format!(
                "mount_flags contains rw, but {field} allows only reading: remove rw, or ask for writing"
            )))
        }
        _ => Ok(()),
    }
}

/// Capabilities and parameters that one volume can have together: a volume has one file system.
pub fn one_file_system(capabilities: &[Capability], parameters: &Map) -> Result<()> {
    let parameter = parameters.get(FS_TYPE).map(String::as_str);
    let all = parameter.into_iter().chain(capabilities.iter().filter_map(Capability::fs_type));
    // A file system that no volume can have is refused by name later.
    let mut all = all.filter(|fs_type| is_file_system(fs_type));
    let Some(first) = all.next() else { return Ok(()) };
    match all.find(|other| *other != first) {
        None => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "volume_capabilities and parameters ask for {first:?} and {other:?}: a volume has one file system"
        ))),
    }
}

/// A content source: its ID present and not too long.
pub fn source(source: &Option<Source>) -> Result<()> {
    match source {
        None => Ok(()),
        Some(Source::Snapshot(snapshot)) => id("volume_content_source.snapshot.snapshot_id", snapshot),
        Some(Source::Volume(volume)) => id("volume_content_source.volume.volume_id", volume),
    }
}

/// A topology requirement: every segment map within its limits.
pub fn topology(requirement: &TopologyRequirement) -> Result<()> {
    let TopologyRequirement { requisite, preferred } = requirement;
    requisite.iter().chain(preferred).try_for_each(|segments| map("accessibility_requirements", segments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn refused(result: Result<()>, part: &str) {
        match result {
            Err(error) => {
                assert_eq!(error.kind(), Kind::InvalidArgument);
                assert!(error.message().contains(part), "{error} should mention {part}");
            }
            Ok(()) => panic!("accepted, should have mentioned {part}"),
        }
    }

    #[test]
    fn text_is_bounded_to_the_byte() {
        assert!(id("volume_id", &"x".repeat(128)).is_ok());
        refused(id("volume_id", &"x".repeat(129)), "129 bytes");
        refused(id("volume_id", ""), "volume_id is missing");
        refused(name("name", "a\u{7}b"), "control character");
        assert!(node_id("node_id", &"x".repeat(256)).is_ok());
        refused(node_id("node_id", &"x".repeat(257)), "node_id");
    }

    #[test]
    fn maps_are_bounded_over_all_pairs() {
        let pair = |length| Map::from([("k".to_string(), "v".repeat(length))]);
        assert!(map("parameters", &pair(4095)).is_ok());
        refused(map("parameters", &pair(4096)), "parameters");
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        assert!(path("target_path", "/var/lib/[0]/x").is_ok());
        for bad in ["relative", "./x", "/a/../b", "/a/./b", "/..", "/", "//", "/a\0b"] {
            refused(path("target_path", bad), "target_path");
        }
        refused(path("target_path", &format!("/{}", "x".repeat(4095))), "4096 bytes");
        assert!(optional_path("staging_target_path", "").is_ok());
    }

    #[test]
    fn sizes_must_not_contradict_themselves() {
        let range = |required, limit| SizeRange { required, limit };
        assert!(size(&range(0, 0)).is_ok() && size(&range(5, 5)).is_ok() && size(&range(5, 0)).is_ok());
        refused(size(&range(6, 5)), "limit_bytes");
        refused(wanted_size(&range(0, 0)), "capacity_range is missing");
        assert_eq!(size(&range(u64::MAX, 0)).map_err(|error| error.kind()), Err(Kind::OutOfRange));
    }
}
