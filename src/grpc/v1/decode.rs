//! From CSI v1 messages to requests. The requests themselves check the limits of the specification.

use std::collections::HashMap;

use protobuf::MessageField;

use crate::error::{Error, Result};
use crate::grpc::fields;
use crate::grpc::proto::csi_v1 as wire;
use crate::secrets::Secrets;
use crate::sys::owner::parse_id;
use crate::volume::request::{Access, Capability, Map, SizeRange, Source, TopologyRequirement};

/// A map in the order of its keys.
pub fn map(pairs: HashMap<String, String>) -> Map {
    pairs.into_iter().collect()
}

/// Secrets, hidden from here on.
pub fn secrets(pairs: HashMap<String, String>) -> Secrets {
    pairs.into_iter().collect()
}

/// A size range; a missing one sets no limits.
pub fn size(range: &MessageField<wire::CapacityRange>) -> Result<SizeRange> {
    let Some(range) = range.as_ref() else { return Ok(SizeRange::default()) };
    let bytes = |field: &str, value: i64| {
        u64::try_from(value)
            .map_err(|_| Error::invalid(format!("capacity_range.{field} is negative: {value}")))
    };
    Ok(SizeRange {
        required: bytes("required_bytes", range.required_bytes)?,
        limit: bytes("limit_bytes", range.limit_bytes)?,
    })
}

/// A required capability.
pub fn capability(capability: MessageField<wire::VolumeCapability>) -> Result<Capability> {
    let missing = || Error::invalid("volume_capability is missing: it is a required field");
    optional_capability(capability)?.ok_or_else(missing)
}

/// A capability that may be left out.
pub fn optional_capability(capability: MessageField<wire::VolumeCapability>) -> Result<Option<Capability>> {
    capability.into_option().map(|capability| one_capability("volume_capability", capability)).transpose()
}

/// A list of capabilities.
pub fn capabilities(capabilities: Vec<wire::VolumeCapability>) -> Result<Vec<Capability>> {
    capabilities.into_iter().map(|capability| one_capability("volume_capabilities", capability)).collect()
}

fn one_capability(field: &str, capability: wire::VolumeCapability) -> Result<Capability> {
    use wire::volume_capability::Access_type;
    mount_group(&capability)?;
    let access = match capability.access_type {
        Some(Access_type::Mount(mount)) => Some(Access::mount(mount.fs_type, &mount.mount_flags)),
        Some(Access_type::Block(_)) => Some(Access::Block),
        None => None,
    };
    fields::capability(field, access, capability.access_mode.mode)
}

/// The group that is to write to a volume on a node, if there is one. To other requests it does not matter.
pub fn mount_group(capability: &wire::VolumeCapability) -> Result<Option<u32>> {
    let group = match &capability.access_type {
        Some(wire::volume_capability::Access_type::Mount(mount)) => mount.volume_mount_group.as_str(),
        _ => "",
    };
    match (group, parse_id(group)) {
        ("", _) => Ok(None),
        (_, None) => Err(Error::invalid(format!(
            "volume_mount_group is {group:?}: allowed is the number of a group, from 0 to {}",
            u32::MAX - 1
        ))),
        (_, gid) => Ok(gid),
    }
}

/// A content source that may be left out.
pub fn source(source: MessageField<wire::VolumeContentSource>) -> Result<Option<Source>> {
    use wire::volume_content_source::Type;
    let Some(source) = source.into_option() else { return Ok(None) };
    match source.type_ {
        Some(Type::Snapshot(snapshot)) => Ok(Some(Source::Snapshot(snapshot.snapshot_id))),
        Some(Type::Volume(volume)) => Ok(Some(Source::Volume(volume.volume_id))),
        None => Err(Error::invalid(
            "volume_content_source has neither snapshot nor volume: one of them is required",
        )),
    }
}

/// A topology requirement that may be left out.
pub fn topology(requirement: MessageField<wire::TopologyRequirement>) -> TopologyRequirement {
    let requirement = requirement.into_option().unwrap_or_default();
    let segments = |topologies: Vec<wire::Topology>| {
        topologies.into_iter().map(|topology| map(topology.segments)).collect()
    };
    TopologyRequirement {
        requisite: segments(requirement.requisite),
        preferred: segments(requirement.preferred),
    }
}

/// The largest number of entries in a page.
pub fn max_entries(number: i32) -> Result<usize> {
    usize::try_from(number).map_err(|_| Error::invalid(format!("max_entries is negative: {number}")))
}
