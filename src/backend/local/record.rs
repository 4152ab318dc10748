//! The records beside an image: the request that made it, and its incarnation. JSON, one value a file.
//!
//! The length of an image is authoritative for its size; the record keeps the size last promised, so that a
//! truncated image is noticed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::backend::creation_record::{CreationRequest, Unknown, VERSION};
use crate::backend::{Publication, PublishedBy};
use crate::csi::Capability;

/// The record of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    pub version: u32,
    /// The request. Its file system is that of the parameters, else of the capabilities, else of the source.
    pub asked: CreationRequest,
    pub incarnation: String,
    pub created: Time,
    pub size: u64,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The record of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    pub version: u32,
    pub name: String,
    /// The source's ID, with its incarnation.
    pub source: String,
    pub source_incarnation: String,
    /// The file system that the source was made for.
    pub fs_type: Option<String>,
    pub size: u64,
    pub created: Time,
}

/// The node that a volume is published to, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PublishRecord {
    pub version: u32,
    pub node: String,
    pub capability: Capability,
    pub read_only: bool,
    /// The node has published the volume to itself, and unpublishes it.
    pub by_node: bool,
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Time {
    pub seconds: u64,
    pub nanoseconds: u32,
}

impl Time {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { seconds: since.as_secs(), nanoseconds: since.subsec_nanos() }
    }

    pub fn to_system(self) -> SystemTime {
        UNIX_EPOCH + Duration::new(self.seconds, self.nanoseconds)
    }
}

impl PublishRecord {
    pub fn new(publication: &Publication, by: PublishedBy) -> Self {
        let Publication { node, capability, read_only } = publication;
        Self {
            version: VERSION,
            node: node.clone(),
            capability: capability.clone(),
            read_only: *read_only,
            by_node: by == PublishedBy::Node,
        }
    }

    /// How `wanted` differs from this publication; None if they are equal. Publishers are not compared.
    pub fn difference(&self, wanted: &Self) -> Option<String> {
        if self.node != wanted.node {
            return Some(format!("to node {:?}", self.node));
        }
        if self.read_only != wanted.read_only {
            return Some(format!("with readonly = {}", self.read_only));
        }
        (self.capability != wanted.capability)
            .then(|| format!("as {}, not as {}", self.capability, wanted.capability))
    }
}
