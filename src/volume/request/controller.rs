//! Requests to the controller.

use super::{Capability, Map, SizeRange, Source, TopologyRequirement, validate};
use crate::error::Result;
use crate::secrets::Secrets;
use crate::volume::target::{SnapshotTarget, VolumeTarget};

request! {
    /// Make a volume, or find the one that this request made before.
    CreateVolume {
        /// The name that identifies a repeated request.
        name: String,
        /// The requested size.
        size: SizeRange,
        /// Every way in which the volume is to be used; at least one.
        capabilities: Vec<Capability>,
        /// Backend-specific settings.
        parameters: Map,
        /// Backend-specific settings that may be changed later.
        mutable_parameters: Map,
        /// Credentials.
        secrets: Secrets,
        /// The source to copy, if any.
        source: Option<Source>,
        /// Where the volume must be reachable.
        topology: TopologyRequirement,
    } check |it| {
        validate::name("name", &it.name)?;
        validate::capabilities(&it.capabilities)?;
        validate::size(&it.size)?;
        validate::map("parameters", &it.parameters)?;
        validate::map("mutable_parameters", &it.mutable_parameters)?;
        validate::one_file_system(&it.capabilities, &it.parameters)?;
        validate::secrets("secrets", &it.secrets)?;
        validate::source(it.source.as_ref())?;
        validate::topology(&it.topology)?;
    }
}

request! {
    /// Find a volume, or a snapshot of it, by name.
    FindNamed {
        /// The name of a volume, or its ID; for a snapshot `VOLUME@NAME`, or its ID.
        text: String,
        /// Whether a snapshot is meant.
        is_snapshot: bool,
        /// Where the volume is.
        parameters: Map,
    } check |it| {
        validate::name("text", &it.text)?;
        validate::map("parameters", &it.parameters)?;
    }
}

request! {
    /// Delete a volume; a volume that is gone counts as deleted.
    DeleteVolume {
        /// The volume.
        volume: VolumeTarget,
        /// Whether its snapshots may outlive it, with the storage that they share with it.
        snapshots_may_outlive: bool,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Let a node use a volume.
    ControllerPublish {
        /// The volume.
        volume: VolumeTarget,
        /// The node.
        node_id: String,
        /// How the volume will be used.
        capability: Capability,
        /// Whether the node may only read.
        read_only: bool,
        /// Credentials.
        secrets: Secrets,
        /// The volume context from the creation.
        volume_context: Map,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::node_id("node_id", &it.node_id)?;
        validate::capability(&it.capability)?;
        validate::writes_as_asked("readonly", &it.capability, it.read_only)?;
        validate::secrets("secrets", &it.secrets)?;
        validate::map("volume_context", &it.volume_context)?;
    }
}

request! {
    /// Take a volume back from a node, or from all nodes.
    ControllerUnpublish {
        /// The volume.
        volume: VolumeTarget,
        /// The node; empty for all.
        node_id: String,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::optional_node_id("node_id", &it.node_id)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Whether a volume can be used as described.
    Validate {
        /// The volume.
        volume: VolumeTarget,
        /// Every way in which the volume is to be used; at least one.
        capabilities: Vec<Capability>,
        /// The volume context from the creation.
        volume_context: Map,
        /// The parameters of its creation.
        parameters: Map,
        /// The mutable parameters of its creation or of a later change.
        mutable_parameters: Map,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::capabilities(&it.capabilities)?;
        validate::map("volume_context", &it.volume_context)?;
        validate::map("parameters", &it.parameters)?;
        validate::map("mutable_parameters", &it.mutable_parameters)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// One page of a list.
    PageRequest {
        /// The most entries; zero is no limit.
        max_entries: usize,
        /// Where the previous page ended; empty for the first page.
        token: String,
    } check |it| {
        validate::optional_text("starting_token", &it.token)?;
    }
}

request! {
    /// One page of the snapshots, of all or of one volume, or one snapshot.
    ListSnapshots {
        /// The page.
        page: PageRequest,
        /// Only snapshots of this volume; empty for all.
        source_volume_id: String,
        /// Only this snapshot; empty for all.
        snapshot_id: String,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::optional_text("source_volume_id", &it.source_volume_id)?;
        validate::optional_text("snapshot_id", &it.snapshot_id)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// How much room is left for new volumes.
    GetCapacity {
        /// Volumes used in these ways.
        capabilities: Vec<Capability>,
        /// Volumes with these settings.
        parameters: Map,
        /// Volumes reachable from here; None for anywhere.
        topology: Option<Map>,
    } check |it| {
        it.capabilities.iter().try_for_each(validate::capability)?;
        validate::map("parameters", &it.parameters)?;
        validate::one_file_system(&it.capabilities, &it.parameters)?;
        it.topology.as_ref().map_or(Ok(()), |segments| validate::map("accessible_topology", segments))?;
    }
}

request! {
    /// Take a snapshot, or find the one that this request took before.
    CreateSnapshot {
        /// The volume to copy.
        source_volume_id: String,
        /// The name that identifies a repeated request.
        name: String,
        /// Backend-specific settings.
        parameters: Map,
        /// Credentials.
        secrets: Secrets,
        /// From where volumes made of it must be reachable.
        topology: TopologyRequirement,
    } check |it| {
        validate::id("source_volume_id", &it.source_volume_id)?;
        validate::name("name", &it.name)?;
        validate::topology(&it.topology)?;
        validate::map("parameters", &it.parameters)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// One snapshot by its ID: to delete it or to look at it.
    SnapshotById {
        /// The snapshot.
        snapshot: SnapshotTarget,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("snapshot_id", &it.snapshot.text)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Make a volume larger.
    Expand {
        /// The volume.
        volume: VolumeTarget,
        /// The requested size.
        size: SizeRange,
        /// How the volume is used, if known.
        capability: Option<Capability>,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::wanted_size(&it.size)?;
        it.capability.as_ref().map_or(Ok(()), validate::capability)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// One volume, as the controller sees it.
    GetVolume {
        /// The volume.
        volume: VolumeTarget,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// One page of the volumes that are not well.
    ListHealth {
        /// The page.
        page: PageRequest,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::secrets("secrets", &it.secrets)?;
    }
}

request! {
    /// Change settings of a volume.
    Modify {
        /// The volume.
        volume: VolumeTarget,
        /// The new settings.
        mutable_parameters: Map,
        /// Credentials.
        secrets: Secrets,
    } check |it| {
        validate::id("volume_id", &it.volume.text)?;
        validate::map("mutable_parameters", &it.mutable_parameters)?;
        validate::secrets("secrets", &it.secrets)?;
    }
}
