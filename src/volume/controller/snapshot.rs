//! Taking, finding and deleting snapshots.

use crate::backend::{Deleted, NewSnapshot, Snapshot};
use crate::csi::METADATA;
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids;
use crate::volume::Operations;
use crate::volume::deletion::Deleting;
use crate::volume::request::{CreateSnapshot, SnapshotById};

impl Operations {
    /// The snapshot that a request asks for.
    pub fn plan_snapshot(&self, request: CreateSnapshot) -> Result<NewSnapshot> {
        let source = self.controller_volume(request.source_volume_id);
        let (source, backend) = source.get()?;
        if let Some(unknown) = request.parameters.keys().find(|key| !key.starts_with(METADATA)) {
            return Err(Error::invalid(format!(
                "snapshots of {} volumes know no parameter {unknown:?}",
                backend.name()
            )));
        }
        let key = ids::snapshot_key(&self.instance, &request.name);
        Ok(NewSnapshot { source: source.clone(), key, name: request.name, secrets: request.secrets })
    }

    /// Takes the snapshot, or answers with the one that the same request took before.
    pub fn create_snapshot(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
        let backend = self.backend_of(&new.source.place)?;
        backend.snapshots().create(call, new)
    }

    /// Deletes an unused snapshot. An ID that was never given out means an absent snapshot.
    pub fn delete_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Deleted> {
        let Some((id, backend)) = request.snapshot.find()? else { return Ok(Deleted::Absent) };
        self.with_deletion(backend, Deleting::Snapshot(id.clone()), |record| {
            record()?;
            backend.snapshots().delete(call, id, &request.secrets)
        })
    }

    /// One snapshot.
    pub fn get_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Snapshot> {
        let (id, backend) = request.snapshot.get()?;
        let snapshot = backend.snapshots().find(call, id, &request.secrets)?;
        snapshot.ok_or_else(|| request.snapshot.absent())
    }
}
