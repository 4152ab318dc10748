//! Finding the image that an ID means, and its record.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::backend::Volume;
use crate::backend::parameters::about_root;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::layout;
use crate::backend::rbd::image::record::Record;
use crate::backend::rbd::names::{self, RECORD_KEY};
use crate::backend::rbd::tool::{ImageInfo, ImageRef};
use crate::backend::size::LARGEST;
use crate::csi::Map;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;

/// An image and the record of its creation request.
#[derive(Clone, Debug)]
pub(crate) struct ImageWithRecord {
    pub info: ImageInfo,
    /// None for an image that was made by hand.
    pub record: Option<Record>,
}

/// The image that an ID means; None if there is none, if it has another incarnation, or if it is no volume.
pub(crate) fn find_volume(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<ImageInfo>> {
    if names::is_internal(&id.object) {
        return Ok(None);
    }
    let Some(info) = pool.info(ImageRef::Name(&id.object))? else { return Ok(None) };
    // An ID with the other cluster's name means only a mirrored image: any other of this name is not meant.
    let is_here = id.place.cluster == pool.at.access.cluster.name;
    if id.incarnation.is_none() && !is_here && info.mirroring.is_none() {
        return Ok(None);
    }
    if id.means(&info.id) {
        return Ok(Some(info));
    }
    // A mirrored image has an id of its own. The first id is in its record.
    let found = with_record(pool, info)?;
    let first = found.record.and_then(|record| record.first_id);
    Ok(first.is_some_and(|first| id.means(&first)).then_some(found.info))
}

/// The image that an ID means, or NOT_FOUND.
pub(crate) fn existing_volume(pool: &Pool<'_>, id: &VolumeId) -> Result<ImageInfo> {
    names::refuse_internal(id)?;
    if let Some(info) = find_volume(pool, id)? {
        return Ok(info);
    }
    refuse_absent_in_resync(pool, id)?;
    Err(Error::not_found(format!("volume {id} does not exist: check the ID, or create it again")))
}

/// Refuses to treat a volume as gone while, as far as this daemon knows, it is being copied anew.
pub(crate) fn refuse_absent_in_resync(pool: &Pool<'_>, id: &VolumeId) -> Result<()> {
    match pool.memory().resyncs.0.contains(&pool.key_of(&id.object)) {
        true => Err(Error::unavailable(format!(
            "volume {id} is being copied anew from its primary, and is not there for some seconds: try again"
        ))),
        false => Ok(()),
    }
}

/// The image with its record, which is read once and then remembered: it changes only when a mirrored image
/// is given its first id.
pub(crate) fn with_record(pool: &Pool<'_>, info: ImageInfo) -> Result<ImageWithRecord> {
    let (records, key) = (&pool.memory().records, pool.key_of(&info.name));
    let remembered = records.get(&key, &info.id);
    if let Some(record) = remembered.filter(|it| info.mirroring.is_none() || it.first_id.is_some()) {
        return Ok(ImageWithRecord { info, record: Some(record) });
    }
    let Some(text) = pool.metadata(&info.name, RECORD_KEY)? else {
        return Ok(ImageWithRecord { info, record: None });
    };
    let record =
        Record::parse(&text).map_err(|wrong| wrong.context(format_args!("image {:?}", info.name)))?;
    records.remember(&key, &info.id, &record);
    Ok(ImageWithRecord { info, record: Some(record) })
}

/// The same for a list: a record that cannot be read does not hide the image.
pub(crate) fn with_readable_record(pool: &Pool<'_>, info: ImageInfo) -> Result<ImageWithRecord> {
    with_record(pool, info.clone()).or_else(|error| match error.kind() {
        Kind::Internal => {
            log::warn!("{error}");
            Ok(ImageWithRecord { info, record: None })
        }
        _ => Err(error),
    })
}

/// The name in the request that made a volume.
pub(crate) fn name(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<String>> {
    let record = pool.metadata(&id.object, RECORD_KEY)?.and_then(|text| Record::parse(&text).ok());
    if let (Some(record), Some(image)) = (&record, &id.incarnation) {
        pool.memory().records.remember(&pool.key_of(&id.object), image, record);
    }
    Ok(record.map(|record| record.asked.name))
}

/// [`with_record`] for an image that another controller may have made a moment ago: gives that controller
/// the time to write the record.
pub(crate) fn with_record_in_making(pool: &Pool<'_>, info: ImageInfo) -> Result<ImageWithRecord> {
    let timing = pool.timing();
    let age = SystemTime::now().duration_since(info.created).unwrap_or_default();
    if age > timing.record_grace {
        return with_record(pool, info);
    }
    let what = format!("another controller to write the record of image {}", info.name);
    let found = pool.call.wait_for(what, timing.record_grace, timing.poll, || {
        let found = with_record(pool, info.clone())?;
        Ok(found.record.is_some().then_some(found))
    })?;
    Ok(found.unwrap_or(ImageWithRecord { info, record: None }))
}

/// An image of which only its name and its id are known.
pub(crate) fn unknown(name: &str, id: &str) -> ImageInfo {
    ImageInfo {
        name: name.to_string(),
        id: id.to_string(),
        size: 0,
        largest: LARGEST,
        snapshots: 0,
        features: BTreeSet::new(),
        created: UNIX_EPOCH,
        parent: None,
        mirroring: None,
    }
}

/// What was known of a volume a while ago: the id of its image, and its record.
pub(crate) fn last_known(pool: &Pool<'_>, id: &VolumeId) -> Option<(String, Record)> {
    let (image, record) = pool.memory().records.last(&pool.key_of(&id.object))?;
    let is_meant = id.means(&image) || record.first_id.as_ref().is_some_and(|first| id.means(first));
    is_meant.then_some((image, record))
}

impl ImageWithRecord {
    /// The volume as the orchestrator sees it. An ID with an incarnation keeps its caller's form; an ID
    /// without one belongs to a new volume or comes from an operator. `plugin` is the plugin's name.
    pub fn volume(&self, id: &VolumeId, plugin: &str) -> Volume {
        let asked = self.record.as_ref().map(|record| &record.asked);
        let placed = self.record.as_ref().and_then(|record| record.placed.as_ref());
        let incarnation = id.incarnation.clone().unwrap_or_else(|| self.info.id.clone());
        Volume {
            id: VolumeId { incarnation: Some(incarnation), ..id.clone() },
            name: asked.map(|asked| asked.name.clone()),
            size: self.info.size,
            // Everything a node must know is in the ID or in the publish context. So a list, which sees no
            // records, says the same of a volume as its creation.
            context: Map::new(),
            fs_type: asked.and_then(|asked| asked.fs_type.clone()),
            root: asked.map(|asked| about_root(&asked.parameters)).unwrap_or_default(),
            source: asked.and_then(|asked| asked.source.clone()),
            topology: placed.map(|placed| placed.domains.accessible(plugin)).unwrap_or_default(),
            published: Vec::new(),
            read_only: layout::why_read_only(id, &self.info.features),
            condition: None,
            replication: None,
        }
    }
}
