//! Requests to a node.

use super::{Capability, Map, SizeRange, validate};
use crate::error::Result;
use crate::secrets::Secrets;
use crate::volume::target::VolumeTarget;

request! {
    /// Make a volume ready on this node.
    NodeStage {
        /// The volume.
        volume: VolumeTarget,
        /// The publish context from the controller.
        publish_context: Map,
        /// Where the volume is to be mounted once for all its users.
        staging_path: String,
        /// How the volume will be used.
        capability: Capability,
        /// The group that is to write to the volume.
        mount_group: Option<u32>,
        /// Credentials.
        secrets: Secrets,
        /// The volume context from the creation.
        volume_context: Map,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::path("staging_target_path", &it.staging_path)?;
        validate::capability(&it.capability)?;
        validate::map("publish_context", &it.publish_context)?;
        validate::map("volume_context", &it.volume_context)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Undo a stage.
    NodeUnstage {
        /// The volume.
        volume: VolumeTarget,
        /// Where it was staged.
        staging_path: String,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::path("staging_target_path", &it.staging_path)?;
    }
}

request! {
    /// Give a staged volume to a consumer, at a path of its own.
    NodePublish {
        /// The volume.
        volume: VolumeTarget,
        /// The publish context from the controller.
        publish_context: Map,
        /// Where it was staged.
        staging_path: String,
        /// The path for the consumer.
        target_path: String,
        /// How the volume will be used.
        capability: Capability,
        /// The group that is to write to the volume.
        mount_group: Option<u32>,
        /// Whether the consumer may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets,
        /// The volume context from the creation.
        volume_context: Map,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::path("target_path", &it.target_path)?;
        validate::optional_path("staging_target_path", &it.staging_path)?;
        validate::apart(&it.staging_path, &it.target_path)?;
        validate::capability(&it.capability)?;
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
        validate::map("publish_context", &it.publish_context)?;
        validate::map("volume_context", &it.volume_context)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Publish a volume to a consumer without a stage: for an orchestrator without staging, or the operator.
    NodePublishUnstaged {
        /// The volume.
        volume: VolumeTarget,
        /// The publish context from the controller.
        publish_context: Map,
        /// The path for the consumer.
        target_path: String,
        /// How the volume will be used.
        capability: Capability,
        /// Whether the consumer may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets,
        /// The volume context from the creation.
        volume_context: Map,
        /// The operator of this node asks: no controller publishes the volume, and a single-node mode may
        /// have several targets, as configured.
        by_operator: bool,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::path("target_path", &it.target_path)?;
        validate::capability(&it.capability)?;
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
        validate::map("publish_context", &it.publish_context)?;
        validate::map("volume_context", &it.volume_context)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Take a volume back from a consumer.
    NodeUnpublish {
        /// The volume.
        volume: VolumeTarget,
        /// The path of the consumer.
        target_path: String,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::path("target_path", &it.target_path)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// How full a volume is and how it is doing.
    Stats {
        /// The volume.
        volume: VolumeTarget,
        /// A path it is staged or published at.
        volume_path: String,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::known_path("volume_path", &it.volume_path)?;
    }
}

request! {
    /// The health of a volume on this node.
    NodeVolumeHealth {
        /// The volume.
        volume: VolumeTarget,
        /// Where it is published, or was to be; may be empty.
        publish_path: String,
        /// Where it is staged, or was to be; may be empty.
        staging_path: String,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        for (field, path) in [("volume_publish_path", &it.publish_path), ("staging_target_path", &it.staging_path)] {
            if !path.is_empty() {
                validate::known_path(field, path)?;
            }
        }
    }
}

request! {
    /// Let the file system and the device on this node follow a larger volume.
    NodeExpand {
        /// The volume.
        volume: VolumeTarget,
        /// A path it is staged or published at.
        volume_path: String,
        /// The least size of the device; zeros for the volume's present size.
        size: SizeRange,
        /// How the volume is used, if known.
        capability: Option<Capability>,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::known_path("volume_path", &it.volume_path)?;
        validate::size(&it.size)?;
        it.capability.as_ref().map_or(Ok(()), validate::capability)?;
    }
}
