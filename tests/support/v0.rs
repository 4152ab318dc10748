//! A client that speaks CSI 0.1, and its requests with sensible defaults, to be changed field by field.

use std::path::Path;

use cephlet::proto::{Rpc, csi as wire};
use protobuf::{EnumOrUnknown, MessageField};
use wire::volume_capability::{Access_type, AccessMode, BlockVolume, MountVolume};

use super::client::{Answer, ask, rpcs};
use super::{Daemon, MIB, PATIENCE};

pub use wire::volume_capability::access_mode::Mode;

/// A connection of its own to a socket.
pub struct Client {
    channel: grpcio::Channel,
}

rpcs! {
    get_supported_versions: GetSupportedVersionsRequest,
    get_plugin_info: GetPluginInfoRequest,
    create_volume: CreateVolumeRequest,
    delete_volume: DeleteVolumeRequest,
    controller_publish_volume: ControllerPublishVolumeRequest,
    controller_unpublish_volume: ControllerUnpublishVolumeRequest,
    validate_volume_capabilities: ValidateVolumeCapabilitiesRequest,
    list_volumes: ListVolumesRequest,
    get_capacity: GetCapacityRequest,
    controller_probe: ControllerProbeRequest,
    controller_get_capabilities: ControllerGetCapabilitiesRequest,
    node_publish_volume: NodePublishVolumeRequest,
    node_unpublish_volume: NodeUnpublishVolumeRequest,
    get_node_id: GetNodeIDRequest,
    node_probe: NodeProbeRequest,
    node_get_capabilities: NodeGetCapabilitiesRequest,
}

impl Client {
    /// Connects to a daemon.
    pub fn of(daemon: &Daemon) -> Self {
        Self::connect(&daemon.path("csi.sock"))
    }

    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> Self {
        Self { channel: super::Client::connect(path).channel }
    }

    /// Creates a volume; gives it.
    pub fn create(&self, request: &wire::CreateVolumeRequest) -> Answer<wire::VolumeInfo> {
        self.create_volume(request)
            .map(|reply| reply.volume_info.into_option().expect("the reply has a volume"))
    }

    /// All volumes, on one page.
    #[track_caller]
    pub fn list(&self) -> Vec<wire::VolumeInfo> {
        let entries = self.list_volumes(&page(0, "")).expect("list").entries;
        entries
            .into_iter()
            .map(|entry| entry.volume_info.into_option().expect("an entry has a volume"))
            .collect()
    }

    /// Publishes a volume to this node as the orchestrator does: the target is there before.
    pub fn publish(&self, request: &wire::NodePublishVolumeRequest) -> Answer<()> {
        std::fs::create_dir_all(&request.target_path).expect("make the target");
        self.node_publish_volume(request).map(drop)
    }
}

/// The version that is served.
pub fn version() -> MessageField<wire::Version> {
    version_of(0, 1, 0)
}

/// Any version.
pub fn version_of(major: u32, minor: u32, patch: u32) -> MessageField<wire::Version> {
    MessageField::some(wire::Version { major, minor, patch, ..Default::default() })
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
pub fn range(required: u64, limit: u64) -> MessageField<wire::CapacityRange> {
    MessageField::some(wire::CapacityRange {
        required_bytes: required,
        limit_bytes: limit,
        ..Default::default()
    })
}

/// Mebibytes in bytes, as this protocol has them.
pub const fn mib(count: u64) -> u64 {
    count * MIB as u64
}

/// A volume with an ext4 of 32 MiB.
pub fn volume(name: &str) -> wire::CreateVolumeRequest {
    volume_as(name, mib(32), mount("ext4"))
}

/// A volume of `size` bytes used in this way.
pub fn volume_as(name: &str, size: u64, capability: wire::VolumeCapability) -> wire::CreateVolumeRequest {
    wire::CreateVolumeRequest {
        version: version(),
        name: name.to_string(),
        capacity_range: range(size, 0),
        volume_capabilities: vec![capability],
        ..Default::default()
    }
}

/// The deletion of a volume.
pub fn delete(volume_id: &str) -> wire::DeleteVolumeRequest {
    wire::DeleteVolumeRequest { version: version(), volume_id: volume_id.to_string(), ..Default::default() }
}

/// A volume for a node.
pub fn publish_to(
    volume_id: &str,
    node_id: &str,
    capability: wire::VolumeCapability,
) -> wire::ControllerPublishVolumeRequest {
    wire::ControllerPublishVolumeRequest {
        version: version(),
        volume_id: volume_id.to_string(),
        node_id: node_id.to_string(),
        volume_capability: MessageField::some(capability),
        ..Default::default()
    }
}

/// A volume taken back from a node; from all if the name is empty.
pub fn unpublish_from(volume_id: &str, node_id: &str) -> wire::ControllerUnpublishVolumeRequest {
    let (volume_id, node_id) = (volume_id.to_string(), node_id.to_string());
    wire::ControllerUnpublishVolumeRequest { version: version(), volume_id, node_id, ..Default::default() }
}

/// A question whether a volume can be used in these ways.
pub fn validate(
    volume_id: &str,
    capabilities: &[wire::VolumeCapability],
) -> wire::ValidateVolumeCapabilitiesRequest {
    wire::ValidateVolumeCapabilitiesRequest {
        version: version(),
        volume_id: volume_id.to_string(),
        volume_capabilities: capabilities.to_vec(),
        ..Default::default()
    }
}

/// A page of volumes.
pub fn page(max_entries: u32, token: &str) -> wire::ListVolumesRequest {
    wire::ListVolumesRequest {
        version: version(),
        max_entries,
        starting_token: token.to_string(),
        ..Default::default()
    }
}

/// A question how much room there is.
pub fn capacity() -> wire::GetCapacityRequest {
    wire::GetCapacityRequest { version: version(), ..Default::default() }
}

/// A volume given to a consumer.
pub fn publish(
    volume_id: &str,
    target: &str,
    capability: wire::VolumeCapability,
) -> wire::NodePublishVolumeRequest {
    wire::NodePublishVolumeRequest {
        version: version(),
        volume_id: volume_id.to_string(),
        target_path: target.to_string(),
        volume_capability: MessageField::some(capability),
        ..Default::default()
    }
}

/// The opposite.
pub fn unpublish(volume_id: &str, target: &str) -> wire::NodeUnpublishVolumeRequest {
    let (volume_id, target_path) = (volume_id.to_string(), target.to_string());
    wire::NodeUnpublishVolumeRequest { version: version(), volume_id, target_path, ..Default::default() }
}
