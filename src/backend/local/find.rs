//! Finds volumes and snapshots in the directory, by ID or by name.

use std::fs::Metadata;

use super::Local;
use super::files::is_name;
use super::image::{FreeSpace, allocated};
use super::parameters::Settings;
use super::record::{PublishRecord, SnapshotRecord, VolumeRecord};
use super::store::PUBLISHED;
use crate::backend::parameters::about_root;
use crate::backend::{Condition, Fault, Reason, Volume};
use crate::csi::Map;
use crate::error::{Error, Result};
use crate::ids::{self, SnapshotId, VolumeId};

/// The prefix of snapshot directories.
const SNAPSHOT_PREFIX: &str = "csi-snap-";

/// The directory of a snapshot whose ID has this `KEY-R`.
pub(super) fn snapshot_object(key_and_drawn: &str) -> String {
    format!("{SNAPSHOT_PREFIX}{key_and_drawn}")
}

/// The `KEY-R` in the name of a snapshot directory.
pub(super) fn in_snapshot(object: &str) -> Option<&str> {
    object.strip_prefix(SNAPSHOT_PREFIX).filter(|rest| ids::key_of_drawn(rest).is_some())
}

/// The state of a volume's directory. For an unreadable part it has a text that says so.
#[derive(Debug)]
pub(super) struct Found {
    pub record: Result<VolumeRecord, String>,
    pub published: Result<Option<PublishRecord>, String>,
    /// None if the image is missing.
    pub image: Option<Metadata>,
}

impl Found {
    /// The volume's size in bytes: the length of its image, which is authoritative, or the recorded size if
    /// the image is missing.
    pub fn size(&self) -> u64 {
        let recorded = || self.record.as_ref().map_or(0, |record| record.size);
        self.image.as_ref().map_or_else(recorded, Metadata::len)
    }

    pub fn preallocate(&self) -> bool {
        let settings = |record: &VolumeRecord| Settings::parse(&record.asked.parameters, &Map::new()).ok();
        self.record.as_ref().ok().and_then(settings).is_some_and(|settings| settings.preallocate)
    }

    fn trouble(&self, space: FreeSpace) -> Condition {
        let (stat, record) = match (&self.record, &self.image, &self.published) {
            // First: of a directory that cannot be read nothing is known, its image neither.
            (Err(wrong), ..) => return Some(Fault::new(Reason::RecordUnreadable, wrong)),
            (_, None, _) => return Some(Reason::ImageMissing.into()),
            (.., Err(wrong)) => return Some(Fault::new(Reason::RecordUnreadable, wrong)),
            (Ok(record), Some(stat), Ok(_)) => (stat, record),
        };
        if stat.len() < record.size {
            let detail = format!("its image was cut off: it has {} of {} bytes", stat.len(), record.size);
            return Some(Fault::new(Reason::ImageCutOff, detail));
        }
        let promised = stat.len().saturating_sub(allocated(stat));
        (space.free < promised.min(space.total / 20)).then(|| {
            let detail = format!(
                "the file system of local volumes is nearly full: {} bytes are free, {promised} more are \
                 promised to this volume; \
                 free space there, or its next write may fail",
                space.free
            );
            Fault::new(Reason::DiskNearlyFull, detail)
        })
    }

    pub fn unreadable(error: &Error) -> Self {
        Self { record: Err(error.to_string()), published: Ok(None), image: None }
    }
}

impl Local {
    /// The volume that an ID means; None if there is none. An ID with an incarnation cannot be compared with
    /// an unreadable record: that is an error, not an absence.
    pub(super) fn look_up(&self, id: &VolumeId) -> Result<Option<Found>> {
        if !self.is_own(&id.place) || !is_name(&id.object) {
            return Ok(None);
        }
        let Some(found) = self.look(&id.object)? else { return Ok(None) };
        match &found.record {
            Ok(record) => Ok(id.means(&record.incarnation).then_some(found)),
            Err(_) if id.incarnation.is_none() => Ok(Some(found)),
            Err(wrong) => Err(Error::internal(format!(
                "volume {id}: {wrong}; restore it, or use the volume by its ID without incarnation: {}",
                id.key()
            ))),
        }
    }

    /// The volume that an ID means, or NOT_FOUND.
    pub(super) fn existing(&self, id: &VolumeId) -> Result<Found> {
        self.look_up(id)?.ok_or_else(|| {
            Error::not_found(format!("volume {id} does not exist: check the ID, or create it again"))
        })
    }

    /// The state of the directory of this name; None if there is none.
    pub(super) fn look(&self, object: &str) -> Result<Option<Found>> {
        let Some(record) = self.volumes.record(object)? else { return Ok(None) };
        let published = self.volumes.read(object, PUBLISHED)?;
        let published = published.map(|read| read.map(|record| self.named_now(record))).transpose();
        Ok(Some(Found { record, published, image: self.volumes.stat_image(object)? }))
    }

    /// The record with the present name of this node.
    pub(super) fn named_now(&self, record: PublishRecord) -> PublishRecord {
        match self.node.has(&record.node) {
            true => PublishRecord { node: self.node.current().to_string(), ..record },
            false => record,
        }
    }

    /// The volume as reported to the orchestrator.
    pub(super) fn describe(&self, object: &str, found: &Found, space: FreeSpace) -> Volume {
        let record = found.record.as_ref().ok();
        let context = record.map(|record| record.asked.context());
        let published = found.published.as_ref().ok().and_then(Option::as_ref);
        Volume {
            id: self.volume_id(object, record.map(|record| record.incarnation.clone())),
            name: record.map(|record| record.asked.name.clone()),
            size: found.size(),
            context: context.unwrap_or_default(),
            fs_type: record.and_then(|record| record.asked.fs_type.clone()),
            root: record.map(|record| about_root(&record.asked.parameters)).unwrap_or_default(),
            source: record.and_then(|record| record.asked.source.clone()),
            topology: vec![self.segment()],
            published: published.map(|record| record.node.clone()).into_iter().collect(),
            read_only: None,
            condition: Some(found.trouble(space)),
            replication: None,
        }
    }

    pub(super) fn volume_id(&self, object: &str, incarnation: Option<String>) -> VolumeId {
        VolumeId { place: self.own_place(), object: object.to_string(), incarnation }
    }

    pub(super) fn snapshot_record(&self, object: &str) -> Result<Option<SnapshotRecord>> {
        self.snapshots.record(object)?.transpose().map_err(|wrong| {
            Error::internal(format!(
                "{wrong}; restore it, or remove the directory if the snapshot is not needed"
            ))
        })
    }

    /// The record of the snapshot that an ID means; None if there is none.
    pub(super) fn record_of_snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRecord>> {
        if !self.is_own(&id.place) {
            return Ok(None);
        }
        let record = self.snapshot_record(&snapshot_object(&id.snapshot))?;
        Ok(record.filter(|record| record.source_incarnation == id.source))
    }
}
