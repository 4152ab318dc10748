//! Deleting a volume.

use crate::backend::{Backend, Deleted, Deletion};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::deletion::{BeginDeletion, Deleting};
use crate::volume::request::DeleteVolume;

impl Operations {
    /// Deletes a volume that nobody uses. An ID that was never given means a volume that is absent.
    pub fn delete(&self, call: &Call, request: &DeleteVolume) -> Result<Deleted> {
        let Ok((named, backend)) = self.volume(&request.volume_id) else { return Ok(Deleted::Absent) };
        let backend = backend.as_ref();
        self.with_deletion(call, backend, |begin| self.delete_with(call, (&named, backend), request, begin))
    }

    fn delete_with(
        &self,
        call: &Call,
        (named, backend): (&VolumeId, &dyn Backend),
        request: &DeleteVolume,
        begin: BeginDeletion<'_>,
    ) -> Result<Deleted> {
        let DeleteVolume { snapshots_may_outlive, secrets, .. } = request;
        let snapshots_may_outlive = *snapshots_may_outlive;
        let Some(id) = backend.volumes().resolve(call, named, secrets)? else { return Ok(Deleted::Absent) };
        self.ensure_unused_here(call, backend, &id, secrets)?;
        let deletion = Deletion { id: &id, snapshots_may_outlive, secrets };
        backend.volumes().delete(call, &deletion, &|| match id.incarnation {
            // A crash is followed by the same deletion, under the same terms.
            Some(_) => begin(Deleting::Volume { id: id.clone(), snapshots_may_outlive }),
            // After a crash the entry could mean an image that was made by hand later.
            None => Ok(()),
        })
    }

    /// Refuses a volume that is in use on this node, unless it was deleted elsewhere meanwhile.
    fn ensure_unused_here(
        &self,
        call: &Call,
        backend: &dyn Backend,
        id: &VolumeId,
        secrets: &Secrets,
    ) -> Result<()> {
        let Some(record) = self.node_record(id)? else { return Ok(()) };
        let volume = self.look_on_node(call, id)?;
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
