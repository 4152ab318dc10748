//! Snapshots: full copies that depend on no other object.

use super::Local;
use super::find::{in_snapshot, snapshot_object};
use super::record::{SnapshotRecord, Time};
use super::store::{Draft, RECORD, list_key};
use crate::backend::creation_record::{VERSION, to_bytes};
use crate::backend::{Deleted, NewSnapshot, Page, Snapshot, SnapshotFilter, Snapshots};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::{self, SnapshotId, VolumeId};
use crate::secrets::Secrets;

impl Snapshots for Local {
    fn create(&self, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
        if let Some(answer) = self.taken_before(new)? {
            return Ok(answer);
        }
        let object = snapshot_object(&format!("{}-{}", new.key, ids::draw()?));
        let found = self.existing(&new.source)?;
        let (incarnation, fs_type) = match found.record {
            Ok(record) => (record.incarnation, record.asked.fs_type),
            Err(wrong) => {
                return Err(Error::precondition(format!("no snapshot of volume {}: {wrong}", new.source)));
            }
        };
        let source = VolumeId { incarnation: Some(incarnation.clone()), ..new.source.clone() };
        let draft = Draft::begin(&self.pending)?;
        let opened = self.open_source(&self.volumes, &source.object, format!("volume {source}"))?;
        let record = SnapshotRecord {
            version: VERSION,
            name: new.name.clone(),
            source: source.to_string(),
            source_incarnation: incarnation,
            fs_type,
            size: opened.size,
            created: Time::now(),
        };
        let image = self
            .copy(call, &opened, &draft)
            .map_err(|error| error.context(format_args!("take snapshot {:?}", new.name)))?;
        draft.seal(&image, &to_bytes(&record)?)?;
        match draft.finish(&self.snapshots, &object)? {
            true => self.describe_snapshot(&object, &record),
            false => Err(Error::unavailable(format!(
                "{object} is there already, though its name was just drawn: try again"
            ))),
        }
    }

    fn delete(&self, call: &Call, id: &SnapshotId, secrets: &Secrets) -> Result<Deleted> {
        if self.find(call, id, secrets)?.is_none() {
            return Ok(Deleted::Absent);
        }
        let object = snapshot_object(&id.snapshot);
        self.snapshots.retire(&object, &format!("snapshot {id}"), &self.pending)?;
        Ok(Deleted::Gone)
    }

    fn find(&self, _call: &Call, id: &SnapshotId, _secrets: &Secrets) -> Result<Option<Snapshot>> {
        let describe = |record| self.describe_snapshot(&snapshot_object(&id.snapshot), &record);
        self.record_of_snapshot(id)?.map(describe).transpose()
    }

    /// With a filter the records decide, so they are read until the page is full.
    fn list(
        &self,
        _call: &Call,
        filter: &SnapshotFilter,
        _secrets: &Secrets,
        after: &str,
        limit: usize,
    ) -> Result<Page<Snapshot>> {
        let names = self.snapshots.page(after, 0, |name| in_snapshot(name).is_some())?.0;
        let mut entries = Vec::new();
        for (at, name) in names.iter().enumerate() {
            // An unreadable snapshot must not hide the others; a snapshot that has vanished is left out.
            let snapshot = match self
                .snapshot_record(name)
                .and_then(|record| record.map(|it| self.describe_snapshot(name, &it)).transpose())
            {
                Ok(snapshot) => snapshot,
                Err(error) => {
                    log::warn!("left out of the list of snapshots: {error}");
                    None
                }
            };
            entries.extend(snapshot.filter(|snapshot| self.selects(filter, snapshot)));
            if limit != 0 && entries.len() == limit && at + 1 < names.len() {
                return Ok(Page { entries, next: Some(list_key(name)) });
            }
        }
        Ok(Page { entries, next: None })
    }
}

impl Local {
    /// The snapshot of an earlier request with this name. One daemon serves the controller here, with one
    /// request for a name at a time, so no other is taken meanwhile.
    fn taken_before(&self, new: &NewSnapshot) -> Result<Option<Snapshot>> {
        let is_meant = |name: &str| in_snapshot(name).and_then(ids::key_of_drawn) == Some(&new.key);
        let (names, _) = self.snapshots.page("", 0, is_meant)?;
        let Some(object) = names.first() else { return Ok(None) };
        let record = self.snapshot_record(object)?;
        record.map(|record| self.same_snapshot(new, object, &record)).transpose()
    }

    /// Answers a request whose snapshot exists already.
    fn same_snapshot(&self, new: &NewSnapshot, object: &str, record: &SnapshotRecord) -> Result<Snapshot> {
        let snapshot = self.describe_snapshot(object, record)?;
        if record.name != new.name {
            return Err(Error::already_exists(format!(
                "snapshot {} exists already and was taken by a request named {:?}, not {:?}: choose another \
                 name",
                snapshot.id, record.name, new.name
            )));
        }
        if !self.is_same_object(&snapshot.source, &new.source)
            || !new.source.means(&record.source_incarnation)
        {
            return Err(Error::already_exists(format!(
                "a snapshot named {:?} exists already as {}, but its source is volume {}, not {}: choose \
                 another name",
                new.name, snapshot.id, snapshot.source, new.source
            )));
        }
        Ok(snapshot)
    }

    fn describe_snapshot(&self, object: &str, record: &SnapshotRecord) -> Result<Snapshot> {
        let damaged = || {
            let path = self.snapshots.path.join(object).join(RECORD);
            Error::internal(format!(
                "{} is damaged: its source {:?} is no volume's ID",
                path.display(),
                record.source
            ))
        };
        let key_and_drawn = in_snapshot(object).ok_or_else(damaged)?;
        // The record has the name that the node had then.
        let source = VolumeId::parse(&record.source).ok_or_else(damaged)?;
        Ok(Snapshot {
            id: SnapshotId {
                place: self.own_place(),
                object: None,
                source: record.source_incarnation.clone(),
                snapshot: key_and_drawn.to_string(),
            },
            source: self.volume_id(&source.object, source.incarnation),
            size: record.size,
            created: record.created.to_system(),
            topology: vec![self.segment()],
        })
    }

    fn selects(&self, filter: &SnapshotFilter, snapshot: &Snapshot) -> bool {
        match filter {
            SnapshotFilter::All => true,
            SnapshotFilter::Of(volume) => {
                let incarnation = snapshot.source.incarnation.as_deref().unwrap_or_default();
                self.is_same_object(&snapshot.source, volume) && volume.means(incarnation)
            }
        }
    }
}
