//! Deleting a volume.

use crate::backend::{Backend, Deleted, Deletion};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Operations;
use crate::volume::intent::{Operation, WriteIntentFor};
use crate::volume::request::DeleteVolume;

impl Operations {
    /// Deletes a volume that nobody uses. An ID that was never given means a volume that is absent.
    pub fn delete(&self, call: &Call, request: &DeleteVolume) -> Result<Deleted> {
        // What a crash interrupts is finished under the same terms.
        let operation = match request.snapshots_may_outlive {
            true => Operation::DeleteVolume,
            false => Operation::DeleteVolumeStrict,
        };
        self.with_intent(operation, |write| self.delete_with(call, request, write))
    }

    fn delete_with(&self, call: &Call, request: &DeleteVolume, write: WriteIntentFor<'_>) -> Result<Deleted> {
        let Ok((named, backend)) = self.volume(&request.volume_id) else { return Ok(Deleted::Absent) };
        let DeleteVolume { snapshots_may_outlive, secrets, .. } = request;
        let Some(id) = backend.volumes().resolve(call, &named, secrets)? else {
            self.forget_pending(&named)?;
            return Ok(Deleted::Absent);
        };
        self.ensure_unused_here(call, backend.as_ref(), &id, secrets)?;
        let deletion = Deletion { id: &id, snapshots_may_outlive: *snapshots_may_outlive, secrets };
        let begin = || match id.incarnation {
            Some(_) => write(&id.to_string()),
            // After a crash the intent could hit what was put there by hand later.
            None => Ok(()),
        };
        let outcome = backend.volumes().delete(call, &deletion, &begin)?;
        // A crash may have come between an earlier deletion and this.
        self.forget_pending(&id)?;
        Ok(outcome)
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
