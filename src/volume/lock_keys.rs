//! What an operation holds while it runs: the keys of its objects, known from the request alone.
//!
//! The key is the object itself, never the text of an ID, and the same for the controller's and the node's
//! work. An operation on a source and a new object holds both. An ID that means nothing here needs no lock:
//! its operation only says so.

use crate::error::Result;
use crate::ids::{self, SnapshotId, VolumeId};
use crate::locks::Key;
use crate::volume::Volumes;
use crate::volume::request::{CreateSnapshot, CreateVolume, Source};

/// What a request occupies: the cluster or disk it works on, and the objects it holds.
#[derive(Debug, Default)]
pub struct Hold {
    /// The cluster or disk; None where there is nothing to do.
    pub cluster: Option<String>,
    /// The objects.
    pub keys: Vec<Key>,
}

impl Hold {
    /// What a question about everything holds: no object; but together such questions may not occupy every
    /// worker either.
    pub fn everything() -> Self {
        Self { cluster: Some("all".to_string()), keys: Vec::new() }
    }

    fn of(place: &ids::Place, keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            cluster: Some(format!("{}:{}", place.backend, place.cluster)),
            keys: keys.into_iter().map(Key::from).collect(),
        }
    }
}

impl Volumes {
    /// What work on one volume holds.
    pub fn hold_volume(&self, id: &str) -> Hold {
        self.volume_here(id).map(|(id, _)| Hold::of(&id.place, [id.key()])).unwrap_or_default()
    }

    /// What a controller's work on one volume holds. A volume that only another node's controller can reach
    /// is refused.
    pub fn hold_own_volume(&self, id: &str) -> Result<Hold> {
        self.refuse_another_nodes(id, VolumeId::parse(id).map(|id| id.place).as_ref())?;
        Ok(self.hold_volume(id))
    }

    /// What a controller's work on one snapshot holds. A snapshot that only another node's controller can
    /// reach is refused.
    pub fn hold_own_snapshot(&self, id: &str) -> Result<Hold> {
        self.refuse_another_nodes(id, SnapshotId::parse(id).map(|id| id.place).as_ref())?;
        Ok(self.snapshot(id).map(|(id, _)| Hold::of(&id.place, [id.key()])).unwrap_or_default())
    }

    /// What the creation of a volume holds: the volume of that name, and the source.
    pub fn hold_creation(&self, request: &CreateVolume) -> Result<Hold> {
        let backend = self.backends.for_parameters(&request.parameters)?;
        let place = backend.placement(&request.parameters, &request.mutable_parameters, &request.topology)?;
        let volume = place.key(&ids::volume_object(&self.instance, &request.name));
        let source = match &request.source {
            None => None,
            Some(Source::Volume(id)) => Some(self.hold_own_volume(id)?),
            Some(Source::Snapshot(id)) => Some(self.hold_own_snapshot(id)?),
        };
        let mut hold = Hold::of(&place, [volume]);
        hold.keys.extend(source.into_iter().flat_map(|source| source.keys));
        Ok(hold)
    }

    /// What the taking of a snapshot holds: the snapshot of that name, and the source.
    pub fn hold_snapshot_creation(&self, request: &CreateSnapshot) -> Result<Hold> {
        let mut hold = self.hold_own_volume(&request.source_volume_id)?;
        if let Ok((source, _)) = self.volume(&request.source_volume_id) {
            let digits = ids::snapshot_digits(&self.instance, &request.name);
            hold.keys.push(Key::from(ids::snapshot_key(&source.place, &digits)));
        }
        Ok(hold)
    }
}
