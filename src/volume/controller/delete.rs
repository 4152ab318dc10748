//! Deleting a volume.

use crate::backend::{Backend, Deleted, Deletion};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::deletion::Deleting;
use crate::volume::request::DeleteVolume;

impl Operations {
    /// Deletes an unused volume. An ID that was never given out means an absent volume.
    pub fn delete(&self, call: &Call, request: &DeleteVolume) -> Result<Deleted> {
        let Some((named, backend)) = request.volume.find()? else { return Ok(Deleted::Absent) };
        let DeleteVolume { snapshots_may_outlive, ref secrets, .. } = *request;
        let Some(id) = backend.volumes().resolve(call, named, secrets)? else { return Ok(Deleted::Absent) };
        self.ensure_unused_here(call, backend, &id, secrets)?;
        let deletion = Deletion { id: &id, snapshots_may_outlive, secrets };
        let deleting = Deleting::Volume(id.clone());
        self.with_deletion(backend, deleting, |record| backend.volumes().delete(call, &deletion, record))
    }

    /// Refuses a volume that is in use on this node, unless it was deleted elsewhere meanwhile.
    fn ensure_unused_here(
        &self,
        call: &Call,
        backend: &dyn Backend,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<()> {
        let volume = self.on_node(call, id, backend)?;
        let Some(record) = volume.record() else { return Ok(()) };
        let Some(record) = self.release_if_unused(&volume, record, secrets, |_| false)? else {
            return Ok(());
        };
        if backend.volumes().find(call, id, secrets)?.is_none() {
            return Ok(());
        }
        let paths = record.paths().collect::<Vec<_>>().join(", ");
        Err(Error::precondition(format!(
            "volume {id} is in use on this node at {paths}: unpublish and unstage it first"
        )))
    }
}
