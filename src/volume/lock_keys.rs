//! The locks of an operation: the keys of its objects, known from the request alone.
//!
//! A key stands for the object itself, not for the text of an ID, and is the same for the controller's and
//! the node's work. An operation on a source and a new object locks both, if the backend needs that. An ID
//! that means nothing here needs no lock: its operation only reports that.

use crate::backend::{NewSnapshot, NewVolume, Origin};
use crate::dispatch::Key;
use crate::ids::{Place, SnapshotId, VolumeId};
use crate::volume::Operations;

/// The resources of a request: the cluster or disk that it works on, and the objects that it locks.
#[derive(Clone, Debug, Default)]
pub struct LockSet {
    /// The volume, snapshot or name that the request is about, as the request spells it; for the log.
    pub subject: String,
    /// The cluster or disk; None if there is nothing to do.
    pub cluster: Option<String>,
    /// The objects.
    pub keys: Vec<Key>,
}

impl LockSet {
    /// The locks of a question about everything: no object. The cluster is set, so that such questions
    /// together cannot occupy every worker either.
    pub fn everything() -> Self {
        Self { cluster: Some("all".to_string()), ..Self::default() }
    }

    /// The locks of a change of a cluster's fences: only these fences, so that a host can be shut out while
    /// volumes of that cluster hang.
    pub fn of_fences(cluster: &str, networks: &str) -> Self {
        let fences = format!("fences of {cluster}");
        Self { subject: networks.to_string(), keys: vec![Key::from(fences.clone())], cluster: Some(fences) }
    }

    /// The locks of a look at all storage. It works beside everything else, but never twice at once: a look
    /// that hangs is left alone.
    pub fn of_storage_health() -> Self {
        let look = "storage health".to_string();
        Self { keys: vec![Key::from(look.clone())], cluster: Some(look), ..Self::default() }
    }

    /// The locks of work on an ID that means nothing here: none.
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
    /// The canonical spelling of a place: an object has one key under all names of its cluster.
    fn canonical(&self, place: &Place) -> Place {
        let backend = self.backends.by_kind(place);
        backend.map_or_else(|| place.clone(), |backend| backend.canonical(place))
    }

    /// The key of this node's record of a volume: the same under every name of the node. The name of a
    /// cluster is a setting, so a remote volume keeps the cluster name that it was used by.
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

    /// The locks of a volume's creation: the volume, and the source if the backend needs that.
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

    /// The locks of taking a snapshot: the snapshot, and the source.
    pub fn locks_of_snapshot_creation(&self, new: &NewSnapshot) -> LockSet {
        let place = self.canonical(&new.source.place);
        let keys = [self.key(&new.source), SnapshotId::lock_key(&place, &new.key)];
        LockSet::of(&new.name, &place, keys)
    }
}
