//! Taking, finding and deleting snapshots.

use crate::backend::{Deleted, NewSnapshot, Snapshot};
use crate::call::Call;
use crate::csi::METADATA;
use crate::error::{Error, Result};
use crate::ids;
use crate::volume::Volumes;
use crate::volume::intent::{Operation, WriteIntentFor};
use crate::volume::request::{CreateSnapshot, SnapshotById};

impl Volumes {
    /// Takes the snapshot, or answers with the one that the same request took before.
    pub fn create_snapshot(&self, call: &Call, request: &CreateSnapshot) -> Result<Snapshot> {
        let (source, backend) = self.volume(&request.source_volume_id)?;
        if let Some(unknown) = request.parameters.keys().find(|key| !key.starts_with(METADATA)) {
            return Err(Error::invalid(format!(
                "snapshots of {} volumes know no parameter {unknown:?}",
                backend.name()
            )));
        }
        let digits = ids::snapshot_digits(&self.instance, &request.name);
        let new =
            NewSnapshot { source, digits, name: request.name.clone(), secrets: request.secrets.clone() };
        let snapshot = self.with_intent(Operation::CreateSnapshot, |begin| {
            backend.create_snapshot(call, &new, &|| begin(&new.name))
        })?;
        self.clear_intent(Operation::DeleteSnapshot, &snapshot.id.to_string())?;
        Ok(snapshot)
    }

    /// Deletes a snapshot that nobody uses. An ID that was never given means a snapshot that is absent.
    pub fn delete_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Deleted> {
        self.with_intent(Operation::DeleteSnapshot, |begin| self.delete_snapshot_begun(call, request, begin))
    }

    /// The same for one whose intent is written by `begin`.
    pub(crate) fn delete_snapshot_begun(
        &self,
        call: &Call,
        request: &SnapshotById,
        begin: WriteIntentFor<'_>,
    ) -> Result<Deleted> {
        let Ok((id, backend)) = self.snapshot(&request.snapshot_id) else { return Ok(Deleted::Absent) };
        begin(&request.snapshot_id)?;
        backend.delete_snapshot(call, &id, &request.secrets)
    }

    /// One snapshot.
    pub fn get_snapshot(&self, call: &Call, request: &SnapshotById) -> Result<Snapshot> {
        let (id, backend) = self.snapshot(&request.snapshot_id)?;
        let snapshot = backend.find_snapshot(call, &id, &request.secrets)?;
        snapshot.ok_or_else(|| Error::not_found(format!("there is no snapshot {:?}", request.snapshot_id)))
    }
}
