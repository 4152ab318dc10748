//! Deleting a volume.

use std::cell::RefCell;

use crate::backend::{Deleted, Deletion};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;
use crate::volume::Volumes;
use crate::volume::intent::{Operation, WriteIntentFor};
use crate::volume::request::DeleteVolume;

impl Volumes {
    /// Deletes a volume that nobody uses. An ID that was never given means a volume that is absent.
    pub fn delete(&self, call: &Call, request: &DeleteVolume) -> Result<Deleted> {
        // What a crash interrupts is finished under the same terms.
        let operation = if request.snapshots_may_outlive {
            Operation::DeleteVolume
        } else {
            Operation::DeleteVolumeStrict
        };
        self.with_intent(operation, |begin| self.delete_begun(call, request, begin))
    }

    /// The same for one whose intent is written by `begin`.
    pub(crate) fn delete_begun(
        &self,
        call: &Call,
        request: &DeleteVolume,
        begin: WriteIntentFor<'_>,
    ) -> Result<Deleted> {
        let Ok((named, backend)) = self.volume(&request.volume_id) else { return Ok(Deleted::Absent) };
        let DeleteVolume { snapshots_may_outlive, secrets, .. } = request;
        let deletion = Deletion { id: &named, snapshots_may_outlive: *snapshots_may_outlive, secrets };
        let meant = RefCell::new(named.clone());
        let outcome = backend.delete(call, &deletion, &|id| {
            self.refuse_used_here(call, id, secrets)?;
            meant.replace(id.clone());
            // Without an incarnation the intent could, after a crash, hit what was put there by hand later.
            if id.incarnation.is_some() { begin(&id.to_string()) } else { Ok(()) }
        })?;
        // A crash may have come between an earlier deletion and this.
        self.forget_mark(&meant.into_inner())?;
        Ok(outcome)
    }

    fn refuse_used_here(&self, call: &Call, id: &VolumeId, secrets: &Secrets) -> Result<()> {
        let Some(record) = self.node_record(id)? else { return Ok(()) };
        let Some(record) = self.still_in_use(call, id, record, secrets, |_| false)? else { return Ok(()) };
        let paths = record.paths().collect::<Vec<_>>().join(", ");
        Err(Error::precondition(format!(
            "volume {id} is in use on this node at {paths}: unpublish and unstage it first"
        )))
    }
}
