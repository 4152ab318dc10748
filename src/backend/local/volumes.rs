//! Volumes: making, finding, listing, expanding and deleting them.

use std::fs::Metadata;

use super::Local;
use super::copy::SourceImage;
use super::files::failed;
use super::find::{self, Found};
use super::image::{self, FreeSpace, allocated};
use super::parameters::{self, Settings};
use super::record::{Time, VolumeRecord};
use super::store::{Draft, RECORD, Shelf, list_key, random_digits};
use crate::backend::creation_record::{CreationRequest, Unknown, VERSION, to_bytes};
use crate::backend::parameters::{formatted_with, fs_type_for};
use crate::backend::{
    Backend, Capacity, Deleted, Deletion, Named, NewVolume, Origin, Page, RecordDeletion, Unlisted, Volume,
    Volumes,
};
use crate::csi::{Capability, Map, SizeRange};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

impl Local {
    /// Makes the volume under its final name; None if another process has just made it.
    fn make_volume(&self, call: &Call, new: &NewVolume, settings: &Settings) -> Result<Option<Found>> {
        let source = new.source.as_ref().map(|(_, origin)| self.source_of(origin)).transpose()?;
        let (size, fs_type) = self.size_and_file_system(new, settings, source.as_ref())?;
        let record = VolumeRecord {
            version: VERSION,
            asked: CreationRequest::new(new, fs_type),
            incarnation: random_digits()?,
            created: Time::now(),
            size,
            unknown: Unknown::new(),
        };
        let draft = Draft::begin(&self.pending)?;
        let image = match &source {
            Some(source) => self.copy(call, source, &draft)?,
            None => draft.make_image()?,
        };
        let path = draft.image_path();
        let shares = self.reflink && source.is_some();
        image::finish((&image, &path), size, (settings.preallocate, shares), &self.pending)?;
        draft.seal(&image, &to_bytes(&record)?)?;
        let stat = image.metadata().map_err(failed("look at", &path))?;
        let found = Found { record: Ok(record), published: Ok(None), image: Some(stat) };
        Ok(draft.finish(&self.volumes, &new.object)?.then_some(found))
    }

    /// The size of a new volume and the file system that it is for: that of its parameters, else that of its
    /// uses, else that of its source.
    fn size_and_file_system(
        &self,
        new: &NewVolume,
        settings: &Settings,
        source: Option<&SourceImage>,
    ) -> Result<(u64, Option<String>)> {
        let asked = fs_type_for(settings.fs_type.as_deref(), &new.capabilities);
        if let (Some(source), Some(asked)) = (source, &asked) {
            source.refuse_other_file_system(asked)?;
        }
        let fs_type = asked.or_else(|| source?.fs_type.clone());
        let formatted_with =
            formatted_with(settings.fs_type.as_deref(), &new.capabilities, fs_type.as_deref());
        let bounds = FreeSpace::of(&self.volumes)?.bounds(formatted_with);
        Ok((bounds.of_new(&new.size, source.map(|source| source.size))?, fs_type))
    }

    /// Answers a request whose volume exists already.
    fn same_volume(&self, new: &NewVolume, found: &Found) -> Result<Volume> {
        let record = found.record.as_ref().map_err(|wrong| {
            Error::internal(format!(
                "volume {:?} cannot be compared with the request: {wrong}; restore or remove it",
                new.name
            ))
        })?;
        if let Some(difference) = record.asked.difference(new, found.size(), &|place| self.canonical(place)) {
            return Err(Error::already_exists(format!(
                "a volume for {:?} exists already as {}, but {difference}",
                new.name,
                self.volume_id(&new.object, Some(record.incarnation.clone()))
            )));
        }
        Ok(self.describe(&new.object, found, FreeSpace::of(&self.volumes)?))
    }

    fn source_of(&self, origin: &Origin) -> Result<SourceImage> {
        let (mut source, fs_type) = match origin {
            Origin::Snapshot(id) => {
                let absent = || Error::not_found(format!("snapshot {id}, the source, does not exist"));
                let record = self.record_of_snapshot(id)?.ok_or_else(absent)?;
                let object = find::snapshot_object(&id.snapshot);
                (self.open_source(&self.snapshots, &object, format!("snapshot {id}"))?, record.fs_type)
            }
            Origin::Volume(id) => {
                let found = self.existing(id).map_err(|error| error.context("the source"))?;
                let fs_type = found.record.ok().and_then(|record| record.asked.fs_type);
                (self.open_source(&self.volumes, &id.object, format!("volume {id}"))?, fs_type)
            }
        };
        source.fs_type = fs_type;
        Ok(source)
    }

    fn refuse_published(&self, id: &VolumeId, found: &Found) -> Result<()> {
        match &found.published {
            Ok(None) => Ok(()),
            Ok(Some(record)) => Err(Error::precondition(format!(
                "volume {id} cannot be deleted: it is published to node {0:?}; unpublish it first (where \
                 no orchestrator does, `cephlet volume reclaim {id} {0}`)",
                record.node
            ))),
            Err(wrong) => Err(Error::precondition(format!(
                "volume {id} cannot be deleted: {wrong}; unpublish it first"
            ))),
        }
    }

    fn refuse_attached(&self, id: &VolumeId) -> Result<()> {
        let Some(device) = self.loops.find(&self.volumes.image_path(&id.object))? else { return Ok(()) };
        Err(Error::precondition(format!(
            "volume {id} cannot be deleted: it is {}; unstage it first",
            self.users_of(&device)?
        )))
    }

    fn grow_image(&self, call: &Call, id: &VolumeId, range: &SizeRange, found: &Found) -> Result<u64> {
        let missing =
            || Error::precondition("its image is missing: restore it from a backup, or delete the volume");
        let present = found.image.as_ref().map(Metadata::len).ok_or_else(missing)?;
        let size = FreeSpace::of(&self.volumes)?.bounds(None).of_expanded(range, present)?;
        if size > present {
            call.enter_step(format!("expanding from {present} to {size} bytes"));
            let image = self.volumes.open_image(&id.object, true)?.ok_or_else(missing)?;
            let path = self.volumes.image_path(&id.object);
            image::grow(&image, &path, size, found.preallocate(), &self.volumes)?;
        }
        Ok(size)
    }

    /// How many more bytes the objects of a shelf may still take.
    pub(super) fn promised(&self, shelf: &Shelf) -> Result<u64> {
        let mut promised: u64 = 0;
        for name in shelf.names()? {
            if let Some(stat) = shelf.stat_image(&name)? {
                promised = promised.saturating_add(stat.len().saturating_sub(allocated(&stat)));
            }
        }
        Ok(promised)
    }
}

impl Volumes for Local {
    fn resolve(&self, _call: &Call, id: &VolumeId, _secrets: &Secrets) -> Result<Option<VolumeId>> {
        if id.incarnation.is_some() {
            return Ok(Some(id.clone()));
        }
        let incarnation = |found: Found| found.record.ok().map(|record| record.incarnation);
        Ok(self.look_up(id)?.map(|found| self.volume_id(&id.object, incarnation(found))))
    }

    fn named(&self, call: &Call, name: &Named<'_>) -> Result<Vec<VolumeId>> {
        Settings::parse(name.parameters, &Map::new())?;
        Ok(self.resolve(call, &self.volume_id(name.object, None), &Secrets::default())?.into_iter().collect())
    }

    fn create(&self, call: &Call, new: &NewVolume) -> Result<Volume> {
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
        if let Some(found) = self.look(&new.object)? {
            return self.same_volume(new, &found);
        }
        if let Some(made) = self
            .make_volume(call, new, &settings)
            .map_err(|error| error.context(format_args!("create volume {:?}", new.name)))?
        {
            return Ok(self.describe(&new.object, &made, FreeSpace::of(&self.volumes)?));
        }
        // Another process has made the volume meanwhile, and perhaps not synced it yet.
        self.volumes.sync()?;
        match self.look(&new.object)? {
            Some(found) => self.same_volume(new, &found),
            None => Err(Error::unavailable(format!(
                "volume {:?} was deleted while it was created: try again",
                new.name
            ))),
        }
    }

    /// Snapshots are copies of their own: none of them keeps storage of the volume.
    fn delete(&self, _call: &Call, deletion: &Deletion<'_>, _: RecordDeletion<'_>) -> Result<Deleted> {
        let id = deletion.id;
        let Some(found) = self.look_up(id)? else { return Ok(Deleted::Absent) };
        self.refuse_published(id, &found)?;
        self.refuse_attached(id)?;
        self.volumes.retire(&id.object, &format!("volume {id}"), &self.pending)?;
        Ok(Deleted::Gone)
    }

    fn find(&self, _call: &Call, id: &VolumeId, _secrets: &Secrets) -> Result<Option<Volume>> {
        let Some(found) = self.look_up(id)? else { return Ok(None) };
        Ok(Some(self.describe(&id.object, &found, FreeSpace::of(&self.volumes)?)))
    }

    fn list(
        &self,
        _call: &Call,
        (after, limit): (&str, usize),
        _unlisted: Unlisted<'_>,
    ) -> Result<Page<Volume>> {
        // A directory put here by hand may have a name that fits no ID: such a volume could not be used.
        let fits = |name: &str| self.volume_id(name, None).fits();
        let (names, more) = self.volumes.page(after, limit, fits)?;
        let next = names.last().filter(|_| more).map(|name| list_key(name));
        let space = FreeSpace::of(&self.volumes)?;
        let mut entries = Vec::with_capacity(names.len());
        for name in &names {
            // A volume that has vanished is left out; an unreadable volume must not hide the others.
            match self.look(name) {
                Ok(None) => {}
                Ok(Some(found)) => entries.push(self.describe(name, &found, space)),
                Err(error) => entries.push(self.describe(name, &Found::unreadable(&error), space)),
            }
        }
        Ok(Page { entries, next })
    }

    fn list_key(&self, id: &VolumeId) -> String {
        list_key(&id.object)
    }

    fn capacity(&self, _: &Call, parameters: &Map, uses: &[Capability], _: Option<&Map>) -> Result<Capacity> {
        let settings = Settings::parse(parameters, &Map::new())?;
        let fs_type = fs_type_for(settings.fs_type.as_deref(), uses);
        let formatted_with = formatted_with(settings.fs_type.as_deref(), uses, fs_type.as_deref());
        let space = FreeSpace::of(&self.volumes)?;
        let promised = self.promised(&self.volumes)?.saturating_add(self.promised(&self.snapshots)?);
        Ok(Capacity {
            available: space.free.saturating_sub(promised),
            largest: space.largest(),
            smallest: space.bounds(formatted_with).least(),
        })
    }

    /// The image is expanded first: after a crash before the record is written, the image is longer than
    /// recorded, which is allowed, and the repeated request writes the record.
    fn expand(&self, call: &Call, id: &VolumeId, range: &SizeRange, _secrets: &Secrets) -> Result<u64> {
        let found = self.existing(id)?;
        let size = self
            .grow_image(call, id, range, &found)
            .map_err(|error| error.context(format_args!("expand volume {id}")))?;
        if let Ok(record) = found.record
            && record.size < size
        {
            let record = to_bytes(&VolumeRecord { size, ..record })?;
            self.volumes
                .replace(&id.object, RECORD, &record)
                .map_err(|error| error.context(format_args!("expand volume {id}")))?;
        }
        Ok(size)
    }

    fn modify(&self, _call: &Call, id: &VolumeId, parameters: &Map, _secrets: &Secrets) -> Result<()> {
        self.existing(id)?;
        parameters::refuse_mutable(parameters)
    }
}
