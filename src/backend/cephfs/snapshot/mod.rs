//! Snapshots of volumes. A snapshot outlives its volume: the subvolume is retained for it, without data of
//! its own, until the last snapshot is gone.

mod create;
mod delete;
mod find;

use crate::backend::cephfs::context::{Context, Fs, may_exist};
use crate::backend::{Deleted, NewSnapshot, Page, Snapshot, SnapshotFilter, Snapshots};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::SnapshotId;
use crate::secrets::Secrets;

pub(super) use self::delete::{finish, remove_unfinished};
pub(super) use self::find::{existing, is_whole};

impl Snapshots for Context {
    fn create(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
        let id = &new.source;
        if !may_exist(&id.place, &id.object) {
            return Err(Error::not_found(format!("there is no volume {id}")));
        }
        let taken = self.within(call, (&id.place, &new.secrets), |fs| create::create(fs, new));
        taken.map_err(|error| error.context(format_args!("take snapshot {:?} of volume {id}", new.name)))
    }

    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        let (what, delete) = (Some(format_args!("snapshot {id}")), |fs: &Fs<'_>| delete::delete(fs, id));
        let deleted = self.unless_removed(call, (&id.place, &id.source, secrets), what, delete);
        let deleted = deleted.map_err(|error| error.context(format_args!("delete snapshot {id}")))?;
        Ok(deleted.unwrap_or(Deleted::Absent))
    }

    fn find(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Option<Snapshot>> {
        let found = self.unless_removed(call, (&id.place, &id.source, secrets), None, |fs| {
            let found = find::find(fs, &id.source, &id.snapshot)?;
            Ok(found.map(|entry| find::snapshot(fs, &id.source, &id.snapshot, &entry)))
        });
        found.map(Option::flatten)
    }

    fn list(
        &self,
        call: &Call,
        filter: &SnapshotFilter,
        _secrets: &Secrets,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        find::list(self, call, filter, (after, limit))
    }
}
