//! From what the operations answer to CSI v1 messages.

use std::time::{SystemTime, UNIX_EPOCH};

use protobuf::well_known_types::timestamp::Timestamp;
use protobuf::{EnumOrUnknown, MessageField};

use crate::backend::{Condition, Fault, Replicated, Snapshot, Volume};
use crate::csi::ROLE_KEY;
use crate::grpc::proto::csi_v1 as wire;
use crate::sys::statfs::Amount;
use crate::volume::Usage;
use crate::volume::request::{Access, Capability, Map, Source};

/// A size in bytes as messages have it. Larger sizes are refused long before.
pub fn bytes(size: u64) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// A volume.
pub fn volume(volume: Volume) -> wire::Volume {
    let role = volume.replication.map(|it| (ROLE_KEY.to_string(), it.role.word().to_string()));
    wire::Volume {
        capacity_bytes: bytes(volume.size),
        volume_id: volume.id.to_string(),
        volume_context: volume.context.into_iter().chain(role).collect(),
        content_source: volume.source.map(source).into(),
        accessible_topology: volume.topology.into_iter().map(topology).collect(),
        ..Default::default()
    }
}

fn source(source: Source) -> wire::VolumeContentSource {
    use wire::volume_content_source::{SnapshotSource, Type, VolumeSource};
    let source = match source {
        Source::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id, ..Default::default() }),
        Source::Volume(volume_id) => Type::Volume(VolumeSource { volume_id, ..Default::default() }),
    };
    wire::VolumeContentSource { type_: Some(source), ..Default::default() }
}

/// A place in the topology.
pub fn topology(segments: Map) -> wire::Topology {
    wire::Topology { segments: segments.into_iter().collect(), ..Default::default() }
}

/// A volume of a list.
pub fn volume_entry(mut found: Volume) -> wire::list_volumes_response::Entry {
    use wire::list_volumes_response::{Entry, VolumeStatus};
    let status = MessageField::some(VolumeStatus {
        published_node_ids: std::mem::take(&mut found.published),
        volume_condition: listed_condition(found.condition.take()),
        ..Default::default()
    });
    Entry { volume: MessageField::some(volume(found)), status, ..Default::default() }
}

/// A volume that was looked at.
pub fn volume_with_status(mut found: Volume) -> wire::ControllerGetVolumeResponse {
    use wire::controller_get_volume_response::VolumeStatus;
    let status = MessageField::some(VolumeStatus {
        published_node_ids: std::mem::take(&mut found.published),
        volume_condition: condition(found.condition.take().flatten(), found.replication.as_ref()),
        ..Default::default()
    });
    wire::ControllerGetVolumeResponse {
        volume: MessageField::some(volume(found)),
        status,
        ..Default::default()
    }
}

/// The condition of a volume.
pub fn condition(
    condition: Condition,
    replication: Option<&Replicated>,
) -> MessageField<wire::VolumeCondition> {
    let abnormal = condition.is_some();
    let message = condition.map_or_else(|| "the volume is well".to_string(), |fault| fault.to_string());
    let message = match replication {
        Some(Replicated { role, state: Some(state) }) => format!("{message}; {}, {state}", role.word()),
        _ => message,
    };
    MessageField::some(wire::VolumeCondition { abnormal, message, ..Default::default() })
}

/// The condition of a volume in a list, if it is known.
fn listed_condition(known: Option<Condition>) -> MessageField<wire::VolumeCondition> {
    match known {
        Some(known) => condition(known, None),
        None => MessageField::some(wire::VolumeCondition {
            message: "a list does not look at the volume: ask for it by ControllerGetVolume".to_string(),
            ..Default::default()
        }),
    }
}

/// The health of a volume.
pub fn health(volume_id: String, condition: Condition) -> wire::VolumeHealth {
    let entry = |Fault { reason, detail }| wire::volume_health::VolumeHealthEntry {
        status: EnumOrUnknown::from_i32(reason.status().number),
        reason: reason.word().to_string(),
        message: detail,
        ..Default::default()
    };
    wire::VolumeHealth {
        volume_id,
        health_statuses: condition.into_iter().map(entry).collect(),
        ..Default::default()
    }
}

/// A fault of the storage.
pub fn storage_health(fault: Fault) -> wire::node_get_storage_health_response::StorageBackendHealth {
    wire::node_get_storage_health_response::StorageBackendHealth {
        status: EnumOrUnknown::from_i32(fault.reason.status().number),
        reason: fault.reason.word().to_string(),
        message: fault.detail,
        ..Default::default()
    }
}

/// A snapshot. It is ready as soon as it exists.
pub fn snapshot(snapshot: Snapshot) -> wire::Snapshot {
    wire::Snapshot {
        size_bytes: bytes(snapshot.size),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.source.to_string(),
        creation_time: MessageField::some(timestamp(snapshot.created)),
        ready_to_use: true,
        accessible_topology: snapshot.topology.into_iter().map(topology).collect(),
        ..Default::default()
    }
}

/// A snapshot of a list.
pub fn snapshot_entry(found: Snapshot) -> wire::list_snapshots_response::Entry {
    wire::list_snapshots_response::Entry {
        snapshot: MessageField::some(snapshot(found)),
        ..Default::default()
    }
}

/// A point in time.
pub fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0), ..Default::default() }
}

/// A capability, as it was asked for.
pub fn capability(capability: &Capability) -> wire::VolumeCapability {
    use wire::volume_capability::{Access_type, AccessMode, BlockVolume, MountVolume};
    let access = match &capability.access {
        Access::Block => Access_type::Block(BlockVolume::default()),
        Access::Mount { fs_type, flags } => Access_type::Mount(MountVolume {
            fs_type: fs_type.clone(),
            mount_flags: flags.clone(),
            ..Default::default()
        }),
    };
    let mode = EnumOrUnknown::from_i32(capability.mode.number());
    wire::VolumeCapability {
        access_type: Some(access),
        access_mode: MessageField::some(AccessMode { mode, ..Default::default() }),
        ..Default::default()
    }
}

/// How full a volume is: bytes, and inodes where they are counted.
pub fn usage(usage: &Usage) -> Vec<wire::VolumeUsage> {
    use wire::volume_usage::Unit;
    let entry = |unit: Unit, amount: &Amount| wire::VolumeUsage {
        available: bytes(amount.available),
        total: bytes(amount.total),
        used: bytes(amount.used),
        unit: EnumOrUnknown::new(unit),
        ..Default::default()
    };
    let inodes = usage.inodes.as_ref().map(|amount| entry(Unit::INODES, amount));
    [entry(Unit::BYTES, &usage.bytes)].into_iter().chain(inodes).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::Reason;

    #[test]
    fn every_reason_is_sent_with_its_status_of_the_interface() {
        for reason in Reason::ALL {
            let status = if reason.status().word.starts_with("STORAGE_") {
                let sent = storage_health((*reason).into());
                assert_eq!((sent.reason.as_str(), sent.message.as_str()), (reason.word(), reason.sentence()));
                format!("{:?}", sent.status.enum_value().unwrap())
            } else {
                let sent = health("v".into(), Some((*reason).into()));
                let [entry] = sent.health_statuses.as_slice() else { panic!("one entry: {sent:?}") };
                assert_eq!((sent.volume_id.as_str(), entry.reason.as_str()), ("v", reason.word()));
                format!("{:?}", entry.status.enum_value().unwrap())
            };
            assert_eq!(status, reason.status().word);
        }
        assert!(health("v".into(), None).health_statuses.is_empty());
    }

    #[test]
    fn older_orchestrators_get_the_reason_with_the_message() {
        let told = condition(Some(Fault::new(Reason::PoolFull, "no room")), None);
        assert_eq!((told.abnormal, told.message.as_str()), (true, "PoolFull: no room"));
        assert!(!condition(None, None).abnormal);
    }
}
