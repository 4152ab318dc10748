//! Requests to a node.

use super::{Capability, Map, SizeRange, validate};
use crate::error::Result;
use crate::secrets::Secrets;
use crate::volume::target::VolumeTarget;

request! {
    /// Make a volume ready on this node.
    NodeStage {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The publish context from the controller.
        publish_context: Map => map("publish_context"),
        /// Where the volume is to be mounted once for all its users.
        staging_path: String => path("staging_target_path"),
        /// How the volume will be used.
        capability: Capability => capability(),
        /// The group that is to write to the volume.
        mount_group: Option<u32>,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// The volume context from the creation.
        volume_context: Map => map("volume_context"),
    }
}

request! {
    /// Undo a stage.
    NodeUnstage {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Where it was staged.
        staging_path: String => path("staging_target_path"),
    }
}

request! {
    /// Give a staged volume to a consumer, at a path of its own.
    NodePublish {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The publish context from the controller.
        publish_context: Map => map("publish_context"),
        /// Where it was staged.
        staging_path: String => optional_path("staging_target_path"),
        /// The path for the consumer.
        target_path: String => path("target_path"),
        /// How the volume will be used.
        capability: Capability => capability(),
        /// The group that is to write to the volume.
        mount_group: Option<u32>,
        /// Whether the consumer may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// The volume context from the creation.
        volume_context: Map => map("volume_context"),
    } check |it| {
        validate::apart(&it.staging_path, &it.target_path)?;
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
    }
}

request! {
    /// Publish a volume to a consumer without a stage: for an orchestrator without staging, or the operator.
    NodePublishUnstaged {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The publish context from the controller.
        publish_context: Map => map("publish_context"),
        /// The path for the consumer.
        target_path: String => path("target_path"),
        /// How the volume will be used.
        capability: Capability => capability(),
        /// Whether the consumer may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// The volume context from the creation.
        volume_context: Map => map("volume_context"),
        /// The operator of this node asks: no controller publishes the volume, and a single-node mode may
        /// have several targets, as configured.
        by_operator: bool,
    } check |it| {
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
    }
}

request! {
    /// Take a volume back from a consumer.
    NodeUnpublish {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The path of the consumer.
        target_path: String => path("target_path"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// How full a volume is and how it is doing.
    Stats {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// A path it is staged or published at.
        volume_path: String => known_path("volume_path"),
    }
}

request! {
    /// The health of a volume on this node.
    NodeVolumeHealth {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Where it is published, or was to be; may be empty.
        publish_path: String => optional_known_path("volume_publish_path"),
        /// Where it is staged, or was to be; may be empty.
        staging_path: String => optional_known_path("staging_target_path"),
    }
}

request! {
    /// Let the file system and the device on this node follow a larger volume.
    NodeExpand {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// A path it is staged or published at.
        volume_path: String => known_path("volume_path"),
        /// The least size of the device; zeros for the volume's present size.
        size: SizeRange => size(),
        /// How the volume is used, if known.
        capability: Option<Capability> => optional_capability(),
    }
}
