//! What an operation locks while it runs: the keys of its objects, known from the request alone.
//!
//! The key is the object itself, never the text of an ID, and the same for the controller's and the node's
//! work. An operation on a source and a new object locks both, where the backend needs that. An ID that means
//! nothing here needs no lock: its operation only says so.

use crate::backend::{NewSnapshot, NewVolume, Origin};
use crate::dispatch::Key;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::volume::Operations;

/// What a request occupies: the cluster or disk it works on, and the objects it locks.
#[derive(Clone, Debug, Default)]
pub struct LockSet {
    /// The volume, snapshot or name that it is about, as the request calls it; for the log.
    pub subject: String,
    /// The cluster or disk; None where there is nothing to do.
    pub cluster: Option<String>,
    /// The objects.
    pub keys: Vec<Key>,
}

impl LockSet {
    /// What a question about everything locks: no object; but together such questions may not occupy every
    /// worker either.
    pub fn everything() -> Self {
        Self { cluster: Some("all".to_string()), ..Self::default() }
    }

    /// What a change of a cluster's fences locks: these alone, so that a host can be shut out while volumes
    /// of that cluster hang.
    pub fn of_fences(cluster: &str, networks: &str) -> Self {
        let fences = format!("fences of {cluster}");
        Self { subject: networks.to_string(), keys: vec![Key::from(fences.clone())], cluster: Some(fences) }
    }

    /// What work on something locks that means nothing here.
    pub(super) fn nothing(subject: &str) -> Self {
        Self { subject: subject.to_string(), ..Self::default() }
    }

    pub(super) fn of(subject: &str, place: &Place, keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            subject: subject.to_string(),
            cluster: Some(format!("{}:{}", place.backend, place.cluster)),
            keys: keys.into_iter().map(Key::from).collect(),
        }
    }
}

impl Operations {
    /// A place in its one spelling: an object has one key, under whatever name its cluster comes.
    fn canonical(&self, place: &Place) -> Place {
        let backend = self.backends.by_kind(place);
        backend.map_or_else(|| place.clone(), |backend| backend.canonical(place))
    }

    /// What this node's records of a volume are kept under: the same under every name of the node. The name
    /// of a cluster is a setting, so what is remote is kept under the name that it was used by.
    pub(super) fn record_key(&self, id: &VolumeId) -> String {
        match self.backends.by_kind(&id.place) {
            Some(backend) if !backend.traits().is_remote => backend.canonical(&id.place).key(&id.object),
            _ => id.key(),
        }
    }

    /// The key of a volume's lock.
    pub(super) fn key(&self, id: &VolumeId) -> String {
        self.canonical(&id.place).lock_key(&id.object)
    }

    /// The key of a snapshot's lock.
    pub(super) fn snapshot_key(&self, id: &SnapshotId) -> String {
        SnapshotId::lock_key(&self.canonical(&id.place), id.name_key())
    }

    /// What the creation of a volume locks: the volume, and the source unless its backend does without.
    pub fn locks_of_creation(&self, new: &NewVolume) -> LockSet {
        let backend = self.backends.by_kind(&new.place);
        let is_locked = backend.is_none_or(|backend| backend.volumes().locks_sources());
        let source = new.source.iter().filter(|_| is_locked).map(|(_, origin)| match origin {
            Origin::Volume(id) => self.key(id),
            Origin::Snapshot(id) => self.snapshot_key(id),
        });
        let place = self.canonical(&new.place);
        LockSet::of(&new.name, &place, source.chain([place.lock_key(&new.object)]))
    }

    /// What the taking of a snapshot locks: the snapshot, and the source.
    pub fn locks_of_snapshot_creation(&self, new: &NewSnapshot) -> LockSet {
        let place = self.canonical(&new.source.place);
        let keys = [self.key(&new.source), SnapshotId::lock_key(&place, &new.key)];
        LockSet::of(&new.name, &place, keys)
    }
}
