//! Requests with sensible defaults, to be changed field by field.

use std::collections::HashMap;

use cephlet::proto::csi_v1 as wire;
use protobuf::{EnumOrUnknown, MessageField};
use wire::volume_capability::access_mode::Mode;
use wire::volume_capability::{Access_type, AccessMode, BlockVolume, MountVolume};
use wire::volume_content_source::{SnapshotSource, Type, VolumeSource};

use super::MIB;

pub use wire::volume_capability::access_mode::Mode as AccessModeOf;

/// Pairs as a map.
pub fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

/// A file system for one node that writes.
pub fn mount(fs_type: &str) -> wire::VolumeCapability {
    mount_as(fs_type, Mode::SINGLE_NODE_WRITER, &[])
}

/// A file system in this mode with these flags.
pub fn mount_as(fs_type: &str, mode: Mode, flags: &[&str]) -> wire::VolumeCapability {
    let mount_flags = flags.iter().map(ToString::to_string).collect();
    capability(
        Access_type::Mount(MountVolume { fs_type: fs_type.to_string(), mount_flags, ..Default::default() }),
        mode,
    )
}

/// The same file system, shared with a group.
pub fn shared_with(mut capability: wire::VolumeCapability, group: &str) -> wire::VolumeCapability {
    capability.mut_mount().volume_mount_group = group.to_string();
    capability
}

/// A block device for one node that writes.
pub fn block() -> wire::VolumeCapability {
    block_as(Mode::SINGLE_NODE_WRITER)
}

/// A block device in this mode.
pub fn block_as(mode: Mode) -> wire::VolumeCapability {
    capability(Access_type::Block(BlockVolume::default()), mode)
}

fn capability(access: Access_type, mode: Mode) -> wire::VolumeCapability {
    let access_mode = AccessMode { mode: EnumOrUnknown::new(mode), ..Default::default() };
    wire::VolumeCapability {
        access_type: Some(access),
        access_mode: MessageField::some(access_mode),
        ..Default::default()
    }
}

/// A size range in bytes; zeros are "not given".
pub fn range(required: i64, limit: i64) -> MessageField<wire::CapacityRange> {
    MessageField::some(wire::CapacityRange {
        required_bytes: required,
        limit_bytes: limit,
        ..Default::default()
    })
}

/// A volume with an ext4 of 32 MiB.
pub fn volume(name: &str) -> wire::CreateVolumeRequest {
    volume_as(name, 32 * MIB, mount("ext4"))
}

/// A volume of `size` bytes used in this way.
pub fn volume_as(name: &str, size: i64, capability: wire::VolumeCapability) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        name: name.to_string(),
        capacity_range: range(size, 0),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

/// The same request, for a copy of a volume.
pub fn from_volume(mut request: wire::CreateVolumeRequest, volume_id: &str) -> wire::CreateVolumeRequest {
    request.volume_content_source =
        source(Type::Volume(VolumeSource { volume_id: volume_id.to_string(), ..Default::default() }));
    request
}

/// The same request, for a copy of a snapshot.
pub fn from_snapshot(mut request: wire::CreateVolumeRequest, snapshot_id: &str) -> wire::CreateVolumeRequest {
    let snapshot = SnapshotSource { snapshot_id: snapshot_id.to_string(), ..Default::default() };
    request.volume_content_source = source(Type::Snapshot(snapshot));
    request
}

fn source(kind: Type) -> MessageField<wire::VolumeContentSource> {
    MessageField::some(wire::VolumeContentSource { type_: Some(kind), ..Default::default() })
}

/// The deletion of a volume.
pub fn delete(volume_id: &str) -> wire::DeleteVolumeRequest {
    wire::DeleteVolumeRequest { volume_id: volume_id.to_string(), ..Default::default() }
}

/// A volume for a node.
pub fn publish_to(volume_id: &str, node_id: &str) -> wire::ControllerPublishVolumeRequest {
    wire::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_string(),
        node_id: node_id.to_string(),
        volume_capability: MessageField::some(mount("ext4")),
        ..Default::default()
    }
}

/// A volume taken back from a node; from all if the name is empty.
pub fn unpublish_from(volume_id: &str, node_id: &str) -> wire::ControllerUnpublishVolumeRequest {
    wire::ControllerUnpublishVolumeRequest {
        volume_id: volume_id.to_string(),
        node_id: node_id.to_string(),
        ..Default::default()
    }
}

/// A question whether a volume can be used in this way.
pub fn validate(
    volume_id: &str,
    capability: wire::VolumeCapability,
) -> wire::ValidateVolumeCapabilitiesRequest {
    wire::ValidateVolumeCapabilitiesRequest {
        volume_id: volume_id.to_string(),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

/// A page of volumes.
pub fn page(max_entries: i32, token: &str) -> wire::ListVolumesRequest {
    wire::ListVolumesRequest { max_entries, starting_token: token.to_string(), ..Default::default() }
}

/// A page of snapshots.
pub fn snapshot_page(max_entries: i32, token: &str) -> wire::ListSnapshotsRequest {
    wire::ListSnapshotsRequest { max_entries, starting_token: token.to_string(), ..Default::default() }
}

/// A snapshot of a volume.
pub fn snapshot(name: &str, source: &str) -> wire::CreateSnapshotRequest {
    wire::CreateSnapshotRequest {
        name: name.to_string(),
        source_volume_id: source.to_string(),
        ..Default::default()
    }
}

/// The deletion of a snapshot.
pub fn delete_snapshot(snapshot_id: &str) -> wire::DeleteSnapshotRequest {
    wire::DeleteSnapshotRequest { snapshot_id: snapshot_id.to_string(), ..Default::default() }
}

/// A look at a snapshot.
pub fn get_snapshot(snapshot_id: &str) -> wire::GetSnapshotRequest {
    wire::GetSnapshotRequest { snapshot_id: snapshot_id.to_string(), ..Default::default() }
}

/// A larger volume.
pub fn expand(volume_id: &str, size: i64) -> wire::ControllerExpandVolumeRequest {
    wire::ControllerExpandVolumeRequest {
        volume_id: volume_id.to_string(),
        capacity_range: range(size, 0),
        ..Default::default()
    }
}

/// A look at a volume.
pub fn get(volume_id: &str) -> wire::ControllerGetVolumeRequest {
    wire::ControllerGetVolumeRequest { volume_id: volume_id.to_string(), ..Default::default() }
}

/// The health of a volume, as the controller sees it.
pub fn health(volume_id: &str) -> wire::ControllerGetVolumeHealthRequest {
    wire::ControllerGetVolumeHealthRequest { volume_id: volume_id.to_string(), ..Default::default() }
}

/// Other settings for a volume.
pub fn modify(volume_id: &str, pairs: &[(&str, &str)]) -> wire::ControllerModifyVolumeRequest {
    wire::ControllerModifyVolumeRequest {
        volume_id: volume_id.to_string(),
        mutable_parameters: map(pairs),
        ..Default::default()
    }
}

/// A volume made ready on the node.
pub fn stage(
    volume_id: &str,
    path: &str,
    capability: wire::VolumeCapability,
) -> wire::NodeStageVolumeRequest {
    wire::NodeStageVolumeRequest {
        volume_id: volume_id.to_string(),
        staging_target_path: path.to_string(),
        volume_capability: MessageField::some(capability),
        ..Default::default()
    }
}

/// The opposite.
pub fn unstage(volume_id: &str, path: &str) -> wire::NodeUnstageVolumeRequest {
    wire::NodeUnstageVolumeRequest {
        volume_id: volume_id.to_string(),
        staging_target_path: path.to_string(),
        ..Default::default()
    }
}

/// A staged volume given to a consumer.
pub fn publish(
    volume_id: &str,
    staging: &str,
    target: &str,
    capability: wire::VolumeCapability,
) -> wire::NodePublishVolumeRequest {
    wire::NodePublishVolumeRequest {
        volume_id: volume_id.to_string(),
        staging_target_path: staging.to_string(),
        target_path: target.to_string(),
        volume_capability: MessageField::some(capability),
        ..Default::default()
    }
}

/// The opposite.
pub fn unpublish(volume_id: &str, target: &str) -> wire::NodeUnpublishVolumeRequest {
    wire::NodeUnpublishVolumeRequest {
        volume_id: volume_id.to_string(),
        target_path: target.to_string(),
        ..Default::default()
    }
}

/// How full a volume is.
pub fn stats(volume_id: &str, path: &str) -> wire::NodeGetVolumeStatsRequest {
    wire::NodeGetVolumeStatsRequest {
        volume_id: volume_id.to_string(),
        volume_path: path.to_string(),
        ..Default::default()
    }
}

/// A file system that follows its volume.
pub fn node_expand(volume_id: &str, path: &str) -> wire::NodeExpandVolumeRequest {
    wire::NodeExpandVolumeRequest {
        volume_id: volume_id.to_string(),
        volume_path: path.to_string(),
        ..Default::default()
    }
}
