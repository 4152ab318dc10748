//! What is written beside an image: how it was asked for and by which incarnation it is known. JSON, one value a file.
//!
//! The length of an image is the truth about its size; the record keeps the size last promised, so that an image that was cut
//! off is noticed.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::{NewVolume, Publication};
use crate::error::{Error, Result};
use crate::terms::{Access, CONTEXT_KEY, Capability, Map, Mode, SizeRange, Source};

/// The only version there is. A higher one was written by a later release, and is not guessed at.
pub(super) const VERSION: u32 = 1;

/// How a volume was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct VolumeRecord {
    pub version: u32,
    pub name: String,
    pub required: u64,
    pub limit: u64,
    pub capabilities: Vec<Use>,
    pub parameters: Map,
    pub mutable_parameters: Map,
    pub source: Option<Origin>,
    /// The file system it is for: as the parameters say, else the capabilities, else the source.
    pub fs_type: Option<String>,
    pub incarnation: String,
    pub created: Time,
    pub size: u64,
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
    pub capability: Use,
    pub read_only: bool,
}

/// A point in time, since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Time {
    pub seconds: u64,
    pub nanoseconds: u32,
}

/// The source of a volume, as the request said it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Origin {
    Snapshot(String),
    Volume(String),
}

/// A capability.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Use {
    /// None for a block device.
    mount: Option<Mount>,
    #[serde(with = "RecordedMode")]
    mode: Mode,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Mount {
    fs_type: String,
    flags: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode", rename_all = "snake_case")]
enum RecordedMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
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

impl From<&Capability> for Use {
    fn from(capability: &Capability) -> Self {
        let mount = match &capability.access {
            Access::Block => None,
            Access::Mount { fs_type, flags } => Some(Mount { fs_type: fs_type.clone(), flags: flags.clone() }),
        };
        Self { mount, mode: capability.mode }
    }
}

impl fmt::Display for Use {
    /// Without the flags themselves, which the specification counts as sensitive.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.mount {
            None => write!(f, "a block device for {:?}", self.mode),
            Some(Mount { fs_type, flags }) => {
                write!(f, "a file system (type {fs_type:?}, {} mount flags) for {:?}", flags.len(), self.mode)
            }
        }
    }
}

impl From<&Source> for Origin {
    fn from(source: &Source) -> Self {
        match source {
            Source::Snapshot(id) => Self::Snapshot(id.clone()),
            Source::Volume(id) => Self::Volume(id.clone()),
        }
    }
}

impl From<&Origin> for Source {
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Snapshot(id) => Self::Snapshot(id.clone()),
            Origin::Volume(id) => Self::Volume(id.clone()),
        }
    }
}

impl VolumeRecord {
    pub fn new(new: &NewVolume, incarnation: String, size: u64, fs_type: Option<String>) -> Self {
        Self {
            version: VERSION,
            name: new.name.clone(),
            fs_type,
            required: new.size.required,
            limit: new.size.limit,
            capabilities: new.capabilities.iter().map(Use::from).collect(),
            parameters: new.parameters.clone(),
            mutable_parameters: new.mutable_parameters.clone(),
            source: new.source.as_ref().map(|(source, _)| Origin::from(source)),
            incarnation,
            created: Time::now(),
            size,
        }
    }

    /// What every node needs to know of the volume.
    pub fn context(&self) -> Map {
        self.fs_type.iter().map(|fs_type| (CONTEXT_KEY.to_string(), fs_type.clone())).collect()
    }

    /// What `new` asks otherwise than the request that made this volume of `size` bytes by now; None if it is the same request.
    /// Another range is no difference as long as the volume satisfies it.
    pub fn difference(&self, new: &NewVolume, size: u64) -> Option<String> {
        let source = new.source.as_ref().map(|(source, _)| Origin::from(source));
        let same_range = SizeRange { required: self.required, limit: self.limit } == new.size;
        if self.name != new.name {
            return Some(format!("it was made by a request named {:?}, not {:?}: choose another name", self.name, new.name));
        }
        if self.source != source {
            return Some(format!("its source is {:?}, not {source:?}", self.source));
        }
        if let Some(difference) = map_difference("parameter", &self.parameters, &new.parameters) {
            return Some(difference);
        }
        if let Some(difference) = map_difference("mutable parameter", &self.mutable_parameters, &new.mutable_parameters) {
            return Some(difference);
        }
        (!same_range && !new.size.admits(size)).then(|| {
            format!("it has {size} bytes, which is not within {} to {} (0 is no limit)", new.size.required, new.size.limit)
        })
    }
}

fn map_difference(what: &str, was: &Map, is: &Map) -> Option<String> {
    let key = was.keys().chain(is.keys()).find(|key| was.get(*key) != is.get(*key))?;
    let show = |map: &Map| map.get(key).map_or_else(|| "not set".to_string(), |value| format!("{value:?}"));
    Some(format!("its {what} {key:?} is {}, not {}", show(was), show(is)))
}

impl PublishRecord {
    pub fn new(publication: &Publication) -> Self {
        let Publication { node, capability, read_only } = publication;
        Self { version: VERSION, node: node.clone(), capability: Use::from(capability), read_only: *read_only }
    }

    /// What `wanted` asks otherwise than this publication; None if it is the same.
    pub fn difference(&self, wanted: &Self) -> Option<String> {
        if self.node != wanted.node {
            return Some(format!("to node {:?}", self.node));
        }
        if self.read_only != wanted.read_only {
            return Some(format!("with readonly = {}", self.read_only));
        }
        (self.capability != wanted.capability).then(|| format!("as {}, not as {}", self.capability, wanted.capability))
    }
}

/// The bytes of a record.
pub(super) fn to_bytes(record: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(record).map_err(|error| Error::internal(format!("a record cannot be written: {error}")))
}

/// A record from its bytes, or what is wrong with them.
pub(super) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error| format!("is damaged: {error}");
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version != VERSION {
        return Err(format!("has version {version}, this release knows {VERSION} only: install the release that wrote it"));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}
