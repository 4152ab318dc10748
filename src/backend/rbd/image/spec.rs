//! What a request for a volume asks, and whether an image that is there answers it.

use crate::backend::NewVolume;
use crate::backend::creation_record::Placed;
use crate::backend::parameters::formatted_with;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::{ImageWithRecord, with_record_in_making};
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::image::rename::{find_by_own_name, settle_and_find};
use crate::backend::rbd::names::RECORD_KEY;
use crate::backend::rbd::parameters::Settings;
use crate::backend::rbd::tool::ImageInfo;
use crate::backend::size::{BLOCK, Bounds};
use crate::csi::Capability;
use crate::error::{Error, Result};

/// A volume that is to exist, understood.
#[derive(Debug)]
pub(crate) struct CreateSpec<'a> {
    /// As it was asked for.
    pub new: &'a NewVolume,
    /// What its parameters say.
    pub settings: Settings,
    /// What is written down of the request.
    pub record: Record,
}

impl<'a> CreateSpec<'a> {
    /// Understands a request, at the place that topology chose, if it did.
    pub fn new(new: &'a NewVolume, placed: Option<&Placed>) -> Result<Self> {
        let settings = Settings::parse(&new.parameters, &new.mutable_parameters)?.at(placed);
        let record = Record::new(new, &settings, placed.cloned());
        Ok(Self { new, settings, record })
    }

    /// The key of its object.
    pub fn key(&self) -> String {
        self.new.place.key(&self.new.object)
    }

    /// What the image is born with: the record, and the limits.
    pub fn metadata(&self) -> Result<Vec<(&'static str, String)>> {
        let limits = self.settings.limits.iter().filter(|(_, limit)| *limit > 0);
        let limits = limits.map(|(key, limit)| (*key, limit.to_string()));
        Ok([(RECORD_KEY, self.record.text()?)].into_iter().chain(limits).collect())
    }
}

/// What the size of a new volume can be that is made for this file system.
pub(crate) fn bounds<'a>(settings: &Settings, uses: &[Capability], fs_type: Option<&'a str>) -> Bounds<'a> {
    let fs_type = formatted_with(settings.fs_type.as_deref(), uses, fs_type);
    Bounds { smallest: BLOCK, largest: settings.layout.largest_size(), fs_type }
}

/// A look at what was there a while ago: a repeated request then costs one process. For others the attempt to
/// make the volume is the look.
pub(crate) fn find_if_known(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<ImageInfo>> {
    if !pool.memory().records.contains(&spec.key()) {
        return Ok(None);
    }
    find_whole(pool, spec)
}

/// The image of the volume's name, if it has that name for good. A copy may have been renamed half way, also
/// where it was flattened and has no parent that says so.
pub(crate) fn find_whole(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<ImageInfo>> {
    match spec.new.source {
        None => settle_and_find(pool, &spec.new.object),
        Some(_) => find_by_own_name(pool, &spec.new.object),
    }
}

/// The image of a name that was just taken. One that another controller is making or renaming has its name
/// before it can be opened: removed as half made, it would be lost to whom it is promised.
pub(crate) fn find_taken(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<ImageInfo>> {
    let timing = pool.timing();
    let what = format!("image {}, whose name is taken, to be there", spec.new.object);
    pool.call.wait_for(what, 2 * timing.orphan_name_grace, timing.poll, || find_whole(pool, spec))
}

/// Answers a request whose image is there already; finishes it where a killed creation did not.
pub(crate) fn answer_from(pool: &Pool<'_>, spec: &CreateSpec<'_>, info: ImageInfo) -> Result<ImageInfo> {
    let new = spec.new;
    let ImageWithRecord { info, record } = with_record_in_making(pool, &spec.key(), info)?;
    match record {
        Some(present) => refuse_difference(pool, new, &present, &info)?,
        None if new.source.is_some() => {
            return Err(Error::already_exists(format!(
                "image {:?} exists, was not made by cephlet and is no copy of the source: choose another name",
                new.object
            )));
        }
        None if !new.size.admits(info.size) => return Err(size_differs(new, info.size)),
        None => {
            pool.set_metadata(&new.object, RECORD_KEY, &spec.record.text()?)?;
            pool.memory().records.remember(&spec.key(), &info.id, &spec.record);
        }
    }
    Ok(info)
}

fn refuse_difference(pool: &Pool<'_>, new: &NewVolume, present: &Record, info: &ImageInfo) -> Result<()> {
    match present.asked.difference(new, info.size, &|place| pool.context.canonical(place)) {
        None => Ok(()),
        Some(difference) => Err(Error::already_exists(format!(
            "a volume for {:?} exists already as image {} of pool {:?}, but {difference}",
            new.name, info.name, new.place.pool
        ))),
    }
}

fn size_differs(new: &NewVolume, size: u64) -> Error {
    Error::already_exists(format!(
        "image {:?} exists already and has {size} bytes, which is not within {} to {} (0 is no limit)",
        new.object, new.size.required, new.size.limit
    ))
}
