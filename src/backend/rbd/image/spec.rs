//! What a request for a volume asks, and whether an existing image answers it.

use crate::backend::NewVolume;
use crate::backend::creation_record::Placed;
use crate::backend::parameters::formatted_with;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{ImageWithRecord, with_record_in_making};
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::image::remove::{is_large, remove_bare_name};
use crate::backend::rbd::image::rename::settle;
use crate::backend::rbd::names::RECORD_KEY;
use crate::backend::rbd::parameters::Settings;
use crate::backend::rbd::tool::{EXCLUSIVE_LOCK, ImageInfo, ImageRef};
use crate::backend::size::{BLOCK, Bounds};
use crate::csi::Capability;
use crate::error::{Error, Result};
use crate::ids::Place;

/// A request for a volume, with its parameters parsed.
#[derive(Debug)]
pub(crate) struct CreateSpec<'a> {
    /// The request.
    pub new: &'a NewVolume,
    /// What its parameters say.
    pub settings: Settings,
    /// The record of the request.
    pub record: Record,
}

impl<'a> CreateSpec<'a> {
    /// Parses a request, whose parameters must suit the intended use of the volume.
    pub fn new(new: &'a NewVolume) -> Result<Self> {
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?;
        let features = settings.layout.features.as_ref();
        let is_lockless = features.is_some_and(|features| !features.contains(EXCLUSIVE_LOCK));
        if let Some(writer) = new.capabilities.iter().find(|it| is_lockless && !it.mode.is_read_only()) {
            return Err(Error::invalid(format!(
                "the parameter \"imageFeatures\" lacks {EXCLUSIVE_LOCK}, without which no node may write to the \
                 image, and the access mode {:?} writes: add {EXCLUSIVE_LOCK}, or ask for a mode that only reads",
                writer.mode
            )));
        }
        let record = Record::new(new, &settings, None);
        Ok(Self { new, settings, record })
    }

    /// The request `new`, which is this one at the place that topology chose.
    pub fn placed<'b>(&self, new: &'b NewVolume, placed: &Placed) -> CreateSpec<'b> {
        let settings = self.settings.clone().at(Some(placed));
        let record = Record::new(new, &settings, Some(placed.clone()));
        CreateSpec { new, settings, record }
    }

    /// The key of its object.
    pub fn key(&self) -> String {
        self.new.place.key(&self.new.object)
    }

    /// The metadata of the new image: the record, and the limits.
    pub fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        let limits = self.settings.limits.iter().filter(|(_, limit)| *limit > 0);
        let limits = limits.map(|(key, limit)| (*key, limit.to_string()));
        Ok([(RECORD_KEY, self.record.text()?)].into_iter().chain(limits).collect())
    }
}

/// The possible sizes of a new volume for this file system.
pub(crate) fn bounds<'a>(settings: &Settings, uses: &[Capability], fs_type: Option<&'a str>) -> Bounds<'a> {
    let fs_type = formatted_with(settings.fs_type.as_deref(), uses, fs_type);
    Bounds { smallest: BLOCK, largest: settings.layout.largest_size(), fs_type }
}

/// The image of the volume's name, if that is its own name. The image is looked up by its id if the name may
/// be a second one: a copy is renamed when it is whole (a flattened one has no parent that shows it to be a
/// copy), a large image or one with snapshots when it is deleted, and so is every image of a pool that moves
/// removed images to the trash. The memory does not replace that look: another controller may have been
/// killed since.
pub(crate) fn find_whole(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<ImageInfo>> {
    let Some(info) = pool.info(ImageRef::Name(&spec.new.object))? else { return Ok(None) };
    let may_be_renamed =
        spec.new.source.is_some() || is_large(&info) || info.snapshots > 0 || info.parent.is_some();
    if may_be_renamed || pool.options()?.trashes_removed { settle(pool, info) } else { Ok(Some(info)) }
}

/// The image of a name that was just taken. An image that another controller is making or renaming has its
/// name before it can be opened. If it were removed as half made, the caller it is promised to would lose it.
pub(crate) fn find_taken(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<ImageInfo>> {
    let timing = pool.timing();
    let what = format!("image {}, whose name is taken, to be there", spec.new.object);
    pool.call.wait_for(what, 2 * timing.orphan_name_grace, timing.poll, || find_whole(pool, spec))
}

/// Gives the volume's name to an image by `take`, which returns None if the name is taken. Then the image
/// that has it is the outcome, if it answers the request. A name that a killed creation has left without an
/// image is removed, and `take` is called once more.
pub(crate) fn take_name(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    mut take: impl FnMut() -> Result<Option<ImageWithRecord>>,
) -> Result<ImageWithRecord> {
    for is_cleared in [false, true] {
        if let Some(taken) = take()? {
            return Ok(taken);
        }
        if let Some(winner) = find_taken(pool, spec)? {
            return answer_from(pool, spec, winner);
        }
        if !is_cleared {
            remove_bare_name(pool, &spec.new.object)?;
        }
    }
    Err(replaced())
}

/// The refusal of a name that other controllers take and free.
pub(crate) fn replaced() -> Error {
    Error::unavailable("other controllers made and deleted it during this call: try again")
}

/// Answers a request whose image exists already; finishes the image if a killed creation did not.
pub(crate) fn answer_from(
    pool: &Pool<'_>,
    spec: &CreateSpec<'_>,
    info: ImageInfo,
) -> Result<ImageWithRecord> {
    let new = spec.new;
    let mut found = with_record_in_making(pool, info)?;
    let info = &found.info;
    match &found.record {
        Some(present) => {
            let canonical = |place: &Place| pool.context.canonical(place);
            if let Some(difference) = present.asked.difference(new, info.size, &canonical) {
                return Err(Error::already_exists(format!(
                    "a volume for {:?} exists already as image {} of pool {:?}, but {difference}",
                    new.name, info.name, new.place.pool
                )));
            }
        }
        None if new.source.is_some() => {
            return Err(Error::already_exists(format!(
                "image {:?} exists, was not made by cephlet and is no copy of the source: choose another name",
                new.object
            )));
        }
        None if !new.size.admits(info.size) => {
            return Err(Error::already_exists(format!(
                "image {:?} exists already and has {} bytes, which is not within {} to {} (0 is no limit)",
                new.object, info.size, new.size.required, new.size.limit
            )));
        }
        None => {
            // The record is the last: an image that has it is whole.
            for (key, value) in spec.metadata()?.iter().rev() {
                pool.set_metadata(&new.object, key, value)?;
            }
            pool.memory().records.remember(&spec.key(), &info.id, &spec.record);
            found.record = Some(spec.record.clone());
        }
    }
    Ok(found)
}
