//! Snapshots: taking, finding, listing and deleting them. They are RBD's own. An ID names the image by its
//! id, so the image may be renamed.

pub(crate) mod cache;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod find;
pub(crate) mod limit;
pub(crate) mod list;

use crate::backend::rbd::context::Context;
use crate::backend::{Deleted, Interrupted, NewSnapshot, Page, Snapshot, SnapshotFilter, Snapshots};
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

impl Snapshots for Context {
    fn create(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
        self.within(call, (&new.source.place, &new.secrets), |pool| create::create(pool, new))
    }

    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        self.within(call, (&id.place, secrets), |pool| delete::delete(pool, id))
    }

    fn finish_deletion(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Interrupted> {
        self.within(call, (&id.place, secrets), |pool| delete::finish_deletion(pool, id))
    }

    fn find(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>> {
        self.within(call, (&id.place, secrets), |pool| find::find(pool, id))
    }

    fn list(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        secrets: &Secrets,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        match filter {
            SnapshotFilter::All => list::list_all(self, call, after, limit),
            SnapshotFilter::Of(volume) => {
                Ok(list::page(list::list_of(self, call, volume, secrets)?, after, limit))
            }
        }
    }
}
