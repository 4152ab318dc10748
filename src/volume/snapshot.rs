//! Taking, finding and deleting snapshots.

use crate::backend::{Deleted, NewSnapshot, Snapshot};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids;
use crate::terms::METADATA;
use crate::volume::requests::{CreateSnapshot, SnapshotById};
use crate::volume::{Operation, Volumes};

impl Volumes {
    /// Takes the snapshot, or answers with the one that the same request took before.
    pub fn create_snapshot(&self, call: &Call, request: CreateSnapshot) -> Result<Snapshot> {
        let (source, backend) = self.volume(&request.source_volume_id)?;
        if let Some(unknown) = request.parameters.keys().find(|key| !key.starts_with(METADATA)) {
            return Err(Error::invalid(format!("snapshots of {} volumes know no parameter {unknown:?}", backend.name())));
        }
        let digits = ids::snapshot_digits(&self.instance, &request.name);
        let new = NewSnapshot { source, digits, name: request.name, secrets: request.secrets };
        self.intending(Operation::CreateSnapshot, |begin| backend.create_snapshot(call, &new, &|| begin(&new.name)))
    }

    /// Deletes a snapshot that nobody uses. An ID that was never given means a snapshot that is absent.
    pub fn delete_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Deleted> {
        let Ok((id, backend)) = self.snapshot(&request.snapshot_id) else { return Ok(Deleted::Absent) };
        self.intending(Operation::DeleteSnapshot, |begin| {
            begin(&request.snapshot_id)?;
            backend.delete_snapshot(call, &id, &request.secrets)
        })
    }

    /// One snapshot.
    pub fn get_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Snapshot> {
        let (id, backend) = self.snapshot(&request.snapshot_id)?;
        let snapshot = backend.find_snapshot(call, &id, &request.secrets)?;
        snapshot.ok_or_else(|| Error::not_found(format!("there is no snapshot {:?}", request.snapshot_id)))
    }
}
