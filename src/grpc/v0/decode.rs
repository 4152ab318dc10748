//! From CSI 0.1 messages to requests. Fields with another name than in v1 are checked here, so that an error
//! names the right field; the requests themselves check the rest.

use std::collections::HashMap;

use protobuf::MessageField;

use crate::error::{Error, Result};
use crate::grpc::fields;
use crate::grpc::proto::csi as wire;
use crate::secrets::Secrets;
use crate::volume::request::validate;
use crate::volume::request::{Access, Capability, Map, SizeRange};

/// The versions that are served: major, minor, patch.
pub const VERSIONS: [(u32, u32, u32); 1] = [(0, 1, 0)];

/// Refuses a request whose version is missing or not served.
pub fn version(version: &MessageField<wire::Version>) -> Result<()> {
    let text = |(major, minor, patch): (u32, u32, u32)| format!("{major}.{minor}.{patch}");
    let refusal = match version.as_ref().map(|version| (version.major, version.minor, version.patch)) {
        Some(asked) if VERSIONS.contains(&asked) => return Ok(()),
        Some(asked) => format!("version {} is not supported", text(asked)),
        None => "version is missing: it is a required field".to_string(),
    };
    let supported: Vec<String> = VERSIONS.map(text).into();
    Err(Error::invalid(format!("{refusal}; supported versions: {}", supported.join(", "))))
}

/// A map in the order of its keys, within its limit.
pub fn map(field: &str, pairs: HashMap<String, String>) -> Result<Map> {
    let map = pairs.into_iter().collect();
    validate::map(field, &map).map(|()| map)
}

/// The secrets of this protocol, hidden from here on. An error does not even repeat a malformed key, which
/// may be a misplaced value.
pub fn credentials(pairs: HashMap<String, String>) -> Result<Secrets> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if pairs.keys().any(|key| key.is_empty() || !key.bytes().all(allowed)) {
        return Err(Error::invalid(
            "user_credentials has a key that is not made of letters, digits, '-', '_' and '.'",
        ));
    }
    let secrets = pairs.into_iter().collect();
    validate::secrets("user_credentials", &secrets).map(|()| secrets)
}

/// A node's ID, which has no limit of its own here.
pub fn node_id(text: String) -> Result<String> {
    validate::optional_text("node_id", &text).map(|()| text)
}

/// A size range. It may be missing; if it is there, it must have at least one of its fields.
pub fn size(range: &MessageField<wire::CapacityRange>) -> Result<SizeRange> {
    let Some(range) = range.as_ref() else { return Ok(SizeRange::default()) };
    if range.required_bytes == 0 && range.limit_bytes == 0 {
        return Err(Error::invalid(
            "capacity_range has neither required_bytes nor limit_bytes: one of them is required",
        ));
    }
    Ok(SizeRange { required: range.required_bytes, limit: range.limit_bytes })
}

/// A required capability.
pub fn capability(capability: MessageField<wire::VolumeCapability>) -> Result<Capability> {
    let missing = || Error::invalid("volume_capability is missing: it is a required field");
    one_capability("volume_capability", capability.into_option().ok_or_else(missing)?)
}

/// A list of capabilities.
pub fn capabilities(capabilities: Vec<wire::VolumeCapability>) -> Result<Vec<Capability>> {
    capabilities.into_iter().map(|capability| one_capability("volume_capabilities", capability)).collect()
}

fn one_capability(field: &str, capability: wire::VolumeCapability) -> Result<Capability> {
    use wire::volume_capability::Access_type;
    let access = capability.access_type.map(|access| match access {
        Access_type::Block(_) => Access::Block,
        Access_type::Mount(mount) => Access::mount(mount.fs_type, &mount.mount_flags),
    });
    fields::capability(field, access, capability.access_mode.mode)
}

/// The largest number of entries in a page.
pub fn max_entries(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
