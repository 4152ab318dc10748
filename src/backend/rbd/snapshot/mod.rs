//! Snapshots: taking, finding, listing and deleting them. They are RBD's own; an ID names the image by its
//! id, whatever it is called by now.

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
        create::create(self, call, new)
    }

    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        delete::delete(self, call, id, secrets)
    }

    fn finish_deletion(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Interrupted> {
        delete::finish_deletion(self, call, id, secrets)
    }

    fn find(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>> {
        find::find(self, call, id, secrets)
    }

    fn list(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        secrets: &Secrets,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        list::list(self, call, filter, secrets, after, limit)
    }
}
