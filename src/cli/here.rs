//! What this node knows of a volume: where it is published, how full it is, and what is done about it.

use serde::Serialize;

use crate::cli::plugin::Plugin;
use crate::error::{Kind, Result};
use crate::grpc::proto::cephlet_operator_v1::ListHereRequest;
use crate::grpc::proto::csi_v1 as wire;

/// How full a volume is.
#[derive(Debug, Serialize)]
pub struct Usage {
    pub total_bytes: i64,
    pub used_bytes: i64,
    pub available_bytes: i64,
}

/// The target paths of a volume on this node.
pub fn targets(plugin: &dyn Plugin, id: &str) -> Result<Vec<String>> {
    let request = ListHereRequest { volume_id: id.to_string(), ..Default::default() };
    Ok(plugin.ask(&request)?.target_paths)
}

/// What the node says of a published volume; None if the daemon no longer knows it at the path, or serves no
/// node.
pub fn stats(plugin: &dyn Plugin, id: &str, path: &str) -> Result<Option<wire::NodeGetVolumeStatsResponse>> {
    let request = wire::NodeGetVolumeStatsRequest {
        volume_id: id.to_string(),
        volume_path: path.to_string(),
        ..Default::default()
    };
    match plugin.ask(&request) {
        Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unimplemented) => Ok(None),
        reply => reply.map(Some),
    }
}

/// The usage of a volume, if the node reports one.
pub fn usage(stats: wire::NodeGetVolumeStatsResponse) -> Option<Usage> {
    let is_of_bytes =
        |usage: &wire::VolumeUsage| usage.unit.enum_value() == Ok(wire::volume_usage::Unit::BYTES);
    let bytes = stats.usage.into_iter().find(is_of_bytes);
    bytes.map(|it| Usage { total_bytes: it.total, used_bytes: it.used, available_bytes: it.available })
}
