//! Deleting a volume.

use crate::backend::{Deleted, Volume};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::volume::requests::DeleteVolume;
use crate::volume::{Operation, Volumes};

impl Volumes {
    /// Deletes a volume that nobody uses. An ID that was never given means a volume that is absent.
    pub fn delete(&self, call: &Call, request: &DeleteVolume) -> Result<Deleted> {
        let Ok((named, backend)) = self.volume(&request.volume_id) else { return Ok(Deleted::Absent) };
        // An ID without incarnation is resolved first: the intent must never hit a later object of the same name.
        let Some(Volume { id, .. }) = backend.find(call, &named, &request.secrets)? else {
            // A crash may have come between the deletion and this.
            self.forget_mark(&named)?;
            return Ok(Deleted::Absent);
        };
        if let Some(record) = self.node_record(&id)? {
            let paths = record.paths().collect::<Vec<_>>().join(", ");
            return Err(Error::precondition(format!(
                "volume {} is in use on this node at {paths}: unpublish and unstage it first",
                id
            )));
        }
        let outcome = self.intending(Operation::DeleteVolume, &id.to_string(), |begin| {
            // Without an incarnation the intent could, after a crash, hit what was put there by hand later.
            if id.incarnation.is_some() {
                begin()?;
            }
            backend.delete(call, &id, &request.secrets)
        })?;
        self.forget_mark(&id)?;
        Ok(outcome)
    }
}
