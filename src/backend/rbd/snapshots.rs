//! Being written.

use super::Rbd;
use crate::backend::{Begin, Deleted, NewSnapshot, Part, Snapshot, SnapshotFilter};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

fn unfinished() -> Error {
    Error::unimplemented("being written")
}

impl Rbd {
    pub(super) fn take_snapshot(&self, _: &Call, _: &NewSnapshot, _: Begin<'_>) -> Result<Snapshot> {
        Err(unfinished())
    }

    pub(super) fn drop_snapshot(&self, _: &Call, _: &SnapshotId, _: &Secrets) -> Result<Deleted> {
        Err(unfinished())
    }

    pub(super) fn look_up_snapshot(&self, _: &Call, _: &SnapshotId, _: &Secrets) -> Result<Option<Snapshot>> {
        Err(unfinished())
    }

    pub(super) fn snapshots_after(&self, _: &Call, _: &SnapshotFilter, _: &str, _: usize) -> Result<Part<Snapshot>> {
        Err(unfinished())
    }
}
