//! The record of a request, stored as JSON beside the object that it made, so that every controller answers a
//! repeated request the same way.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::backend::NewVolume;
use crate::backend::parameters::about_root;
use crate::csi::{Access, CONTEXT_KEY, Capability, Map, SizeRange, Source};
use crate::error::{Error, Result};
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::topology::Domains;

/// The only version there is. A later release wrote a higher one, whose meaning is not guessed.
pub const VERSION: u32 = 1;

/// Fields of a later release in a record: a rewritten record keeps them.
pub type Unknown = serde_json::Map<String, serde_json::Value>;

/// The request that made a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreationRequest {
    /// The name in the request.
    pub name: String,
    /// The least size in bytes.
    pub required: u64,
    /// The greatest size in bytes; zero is no limit.
    pub limit: u64,
    /// How the volume is to be used.
    pub capabilities: Vec<Capability>,
    /// The parameters of the request.
    pub parameters: Map,
    /// Those parameters of the request that a later request may have changed.
    pub mutable_parameters: Map,
    /// The source that the volume is a copy of.
    pub source: Option<Source>,
    /// The file system that the volume is for.
    pub fs_type: Option<String>,
    /// Fields that this release does not know.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What topology chose for a volume, besides its pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The domains from which the volume is reachable; none means everywhere.
    #[serde(default, skip_serializing_if = "Domains::is_empty")]
    pub domains: Domains,
    /// The pool for the volume's data, if its pool has one assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_pool: Option<String>,
}

impl CreationRequest {
    /// The record of the request `new`, for this file system.
    pub fn new(new: &NewVolume, fs_type: Option<String>) -> Self {
        Self {
            name: new.name.clone(),
            fs_type,
            required: new.size.required,
            limit: new.size.limit,
            capabilities: new.capabilities.iter().map(Capability::without_flags).collect(),
            parameters: new.parameters.clone(),
            mutable_parameters: new.mutable_parameters.clone(),
            source: new.source.as_ref().map(|(source, _)| source.clone()),
            unknown: Unknown::new(),
        }
    }

    /// The part that every node needs to know.
    pub fn context(&self) -> Map {
        let fs_type = self.fs_type.iter().map(|fs_type| (CONTEXT_KEY.to_string(), fs_type.clone()));
        fs_type.chain(about_root(&self.parameters)).collect()
    }

    /// The file system that the volume is mounted as, if it is mounted and the file system is known.
    pub fn mounted_as(&self) -> Option<&str> {
        self.fs_type.as_deref().filter(|_| self.capabilities.iter().any(|it| it.access != Access::Block))
    }

    /// How `new` differs from the request that made this volume, which has `size` bytes by now; None if it is
    /// the same request. A different range is no difference as long as the volume satisfies it, nor is a
    /// different name for the place of the source: `canonical` gives the one spelling of a place.
    pub fn difference(
        &self,
        new: &NewVolume,
        size: u64,
        canonical: &dyn Fn(&Place) -> Place,
    ) -> Option<String> {
        let source = new.source.as_ref().map(|(source, _)| source.clone());
        let fs_type = self.fs_type.as_deref();
        let other = new.capabilities.iter().find_map(|it| it.other_file_system(fs_type));
        let same_range = SizeRange { required: self.required, limit: self.limit } == new.size;
        if self.name != new.name {
            return Some(format!(
                "it was made by a request named {:?}, not {:?}: choose another name",
                self.name, new.name
            ));
        }
        if !is_same_source(self.source.as_ref(), source.as_ref(), canonical) {
            return Some(format!("its source is {:?}, not {source:?}", self.source));
        }
        if let Some(difference) = map_difference("parameter", &self.parameters, &new.parameters) {
            return Some(difference);
        }
        if let Some(difference) =
            map_difference("mutable parameter", &self.mutable_parameters, &new.mutable_parameters)
        {
            return Some(difference);
        }
        if let (Some(fs_type), Some(other)) = (fs_type, other) {
            return Some(format!("it was made for {fs_type}, not {other}"));
        }
        (!same_range && !new.size.admits(size)).then(|| {
            format!(
                "it has {size} bytes, which is not within {} to {} (0 is no limit)",
                new.size.required, new.size.limit
            )
        })
    }
}

/// Whether two requests name the same source.
fn is_same_source(was: Option<&Source>, is: Option<&Source>, canonical: &dyn Fn(&Place) -> Place) -> bool {
    let snapshot = |text| SnapshotId::parse(text).map(|id| SnapshotId { place: canonical(&id.place), ..id });
    let volume = |text| VolumeId::parse(text).map(|id| VolumeId { place: canonical(&id.place), ..id });
    match (was, is) {
        _ if was == is => true,
        (Some(Source::Snapshot(was)), Some(Source::Snapshot(is))) => {
            snapshot(was).zip(snapshot(is)).is_some_and(|(was, is)| was == is)
        }
        (Some(Source::Volume(was)), Some(Source::Volume(is))) => {
            volume(was).zip(volume(is)).is_some_and(|(was, is)| was == is)
        }
        _ => false,
    }
}

fn map_difference(what: &str, was: &Map, is: &Map) -> Option<String> {
    let key = was.keys().chain(is.keys()).find(|key| was.get(*key) != is.get(*key))?;
    let show = |map: &Map| map.get(key).map_or_else(|| "not set".to_string(), |value| format!("{value:?}"));
    Some(format!("its {what} {key:?} is {}, not {}", show(was), show(is)))
}

/// The bytes of a record.
pub fn to_bytes(record: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(record)
        .map_err(|error| Error::internal(format!("a record cannot be written: {error}")))
}

/// Reads a record, perhaps of a later version.
///
/// # Errors
/// Precondition: a later cephlet wrote it, so the object is in use and must not be changed. Internal: it is
/// damaged.
pub fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error| Error::internal(format!("it is damaged: {error}"));
    let Version { version } = serde_json::from_slice(bytes).map_err(damaged)?;
    if version > VERSION {
        return Err(Error::precondition(format!(
            "a later cephlet wrote it (version {version}, this one knows {VERSION}): run that release"
        )));
    }
    serde_json::from_slice(bytes).map_err(damaged)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::backend::rbd::tests::wanted;
    use crate::csi::Mode;

    /// More users may read an image's metadata than may learn the volume's mount flags.
    #[test]
    fn mount_flags_are_not_written_down() {
        let access = Access::Mount { fs_type: "xfs".into(), flags: vec!["context=secret".into()] };
        let capability = Capability { access, mode: Mode::SingleNodeWriter };
        let mut new = wanted("a", 1 << 20, None);
        new.capabilities = vec![capability.clone()];
        let text = to_bytes(&CreationRequest::new(&new, None)).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("xfs") && !text.contains("secret"), "UNSAFE: {text}");
        let kept = to_bytes(&capability).unwrap();
        assert!(String::from_utf8(kept).unwrap().contains("secret"), "a publication is compared with them");
    }
}
