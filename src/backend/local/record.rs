//! What is written beside an image: how it was asked for and by which incarnation it is known. JSON, one
//! value a file.
//!
//! The length of an image is the truth about its size; the record keeps the size last promised, so that an
//! image that was cut off is noticed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::backend::creation_record::{CreationRequest, Unknown, VERSION};
use crate::backend::{NewVolume, Publication, PublishedBy};
use crate::csi::Capability;

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    pub version: u32,
    /// How it was asked for. The file system is that of the parameters, else of the capabilities, else of the
    /// source.
    pub asked: CreationRequest,
    pub incarnation: String,
    pub created: Time,
    pub size: u64,
    /// What this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// How a snapshot was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SnapshotRecord {
    pub version: u32,
    pub name: String,
    /// The source's ID, with its incarnation.
    pub source: String,
    pub source_incarnation: String,
    /// The file system the source was for.
    pub fs_type: Option<String>,
    pub size: u64,
    pub created: Time,
}

/// Which node a volume was given to, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PublishRecord {
    pub version: u32,
    pub node: String,
    pub capability: Capability,
    pub read_only: bool,
    /// The node has published it to itself, and unpublishes it.
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

impl VolumeRecord {
    pub fn new(new: &NewVolume, incarnation: String, size: u64, fs_type: Option<String>) -> Self {
        Self {
            version: VERSION,
            asked: CreationRequest::new(new, fs_type),
            incarnation,
            created: Time::now(),
            size,
            unknown: Unknown::new(),
        }
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

    /// What `wanted` asks otherwise than this publication; None if both ask the same. Publishers are not
    /// compared.
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
