//! Snapshots, which cephlet does not offer for CephFS yet.

use crate::backend::cephfs::context::Context;
use crate::backend::{Deleted, NewSnapshot, Page, Snapshot, SnapshotFilter, Snapshots};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

impl Snapshots for Context {
    fn create(&self, _call: &Call, _new: &NewSnapshot) -> Result<Snapshot> {
        Err(Error::unimplemented("snapshots of CephFS volumes are not offered by this release"))
    }

    fn delete(&self, _call: &Call, _id: &SnapshotId, _secrets: &Secrets) -> Result<Deleted> {
        Ok(Deleted::Absent)
    }

    fn find(&self, _call: &Call, _id: &SnapshotId, _secrets: &Secrets) -> Result<Option<Snapshot>> {
        Ok(None)
    }

    fn list(
        &self,
        _call: &Call,
        _filter: &SnapshotFilter,
        _secrets: &Secrets,
        _after: &str,
        _limit: usize,
    ) -> Result<Page<Snapshot>> {
        Ok(Page { entries: Vec::new(), next: None })
    }
}
