//! Requests to the controller.

use super::{Capability, Map, SizeRange, Source, TopologyRequirement, validate};
use crate::error::Result;
use crate::secrets::Secrets;
use crate::volume::target::{SnapshotTarget, VolumeTarget};

request! {
    /// Make a volume, or find the one that this request made before.
    CreateVolume {
        /// The name that identifies a repeated request.
        name: String => name("name"),
        /// Every way in which the volume is to be used; at least one.
        capabilities: Vec<Capability> => capabilities(),
        /// The requested size.
        size: SizeRange => size(),
        /// Backend-specific settings.
        parameters: Map => map("parameters"),
        /// Backend-specific settings that may be changed later.
        mutable_parameters: Map => map("mutable_parameters"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// The source to copy, if any.
        source: Option<Source> => source(),
        /// Where the volume must be reachable.
        topology: TopologyRequirement => topology(),
    } check |it| {
        validate::one_file_system(&it.capabilities, &it.parameters)?;
    }
}

request! {
    /// Find a volume, or a snapshot of it, by name.
    FindNamed {
        /// The name of a volume, or its ID; for a snapshot `VOLUME@NAME`, or its ID.
        text: String => name("text"),
        /// Whether a snapshot is meant.
        is_snapshot: bool,
        /// Where the volume is.
        parameters: Map => map("parameters"),
    }
}

request! {
    /// Delete a volume; a volume that is gone counts as deleted.
    DeleteVolume {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Whether its snapshots may outlive it, with the storage that they share with it.
        snapshots_may_outlive: bool,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// Let a node use a volume.
    ControllerPublish {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The node.
        node_id: String => node_id("node_id"),
        /// How the volume will be used.
        capability: Capability => capability(),
        /// Whether the node may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// The volume context from the creation.
        volume_context: Map => map("volume_context"),
    } check |it| {
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
    }
}

request! {
    /// Take a volume back from a node, or from all nodes.
    ControllerUnpublish {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The node; empty for all.
        node_id: String => optional_node_id("node_id"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// Whether a volume can be used as described.
    Validate {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Every way in which the volume is to be used; at least one.
        capabilities: Vec<Capability> => capabilities(),
        /// The volume context from the creation.
        volume_context: Map => map("volume_context"),
        /// The parameters of its creation.
        parameters: Map => map("parameters"),
        /// The mutable parameters of its creation or of a later change.
        mutable_parameters: Map => map("mutable_parameters"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// One page of a list.
    PageRequest {
        /// The most entries; zero is no limit.
        max_entries: usize,
        /// Where the previous page ended; empty for the first page.
        token: String => optional_text("starting_token"),
    }
}

request! {
    /// One page of the snapshots, of all or of one volume, or one snapshot.
    ListSnapshots {
        /// The page.
        page: PageRequest,
        /// Only snapshots of this volume; empty for all.
        source_volume_id: String => optional_text("source_volume_id"),
        /// Only this snapshot; empty for all.
        snapshot_id: String => optional_text("snapshot_id"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// How much room is left for new volumes.
    GetCapacity {
        /// Volumes used in these ways.
        capabilities: Vec<Capability> => any_capabilities(),
        /// Volumes with these settings.
        parameters: Map => map("parameters"),
        /// Volumes reachable from here; None for anywhere.
        topology: Option<Map> => optional_map("accessible_topology"),
    } check |it| {
        validate::one_file_system(&it.capabilities, &it.parameters)?;
    }
}

request! {
    /// Take a snapshot, or find the one that this request took before.
    CreateSnapshot {
        /// The volume to copy.
        source_volume_id: String => id("source_volume_id"),
        /// The name that identifies a repeated request.
        name: String => name("name"),
        /// Backend-specific settings.
        parameters: Map => map("parameters"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
        /// From where volumes made of it must be reachable.
        topology: TopologyRequirement => topology(),
    }
}

request! {
    /// One snapshot by its ID: to delete it or to look at it.
    SnapshotById {
        /// The snapshot.
        snapshot: SnapshotTarget => target("snapshot_id"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// Make a volume larger.
    Expand {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The requested size.
        size: SizeRange => wanted_size(),
        /// How the volume is used, if known.
        capability: Option<Capability> => optional_capability(),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// One volume, as the controller sees it.
    GetVolume {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// One page of the volumes that are not well.
    ListHealth {
        /// The page.
        page: PageRequest,
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}

request! {
    /// Change settings of a volume.
    Modify {
        /// The volume.
        volume: VolumeTarget => target("volume_id"),
        /// The new settings.
        mutable_parameters: Map => map("mutable_parameters"),
        /// Credentials.
        secrets: Secrets => secrets("secrets"),
    }
}
