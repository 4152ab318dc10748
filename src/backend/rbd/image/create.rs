//! Making a volume, from nothing or as a copy.
//!
//! Requests of the same name meet at one image, whichever controller they come through: the cluster lets only
//! one of them make it, and the others answer from what they find.

use crate::backend::Volume;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::clone::create_copy;
use crate::backend::rbd::image::find::with_record;
use crate::backend::rbd::image::layout;
use crate::backend::rbd::image::spec::{
    CreateSpec, answer_from, bounds, find_if_known, find_taken, find_whole, replaced, take_name,
};
use crate::backend::rbd::tool::{ImageInfo, MadeImage, NewImage};
use crate::error::Result;
use crate::ids::VolumeId;

/// Makes the volume at its place, or finds the one that the same request made there.
pub(crate) fn create(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Volume> {
    let info = match (find_if_known(pool, spec)?, &spec.new.source) {
        (Some(known), _) => answer_from(pool, spec, known),
        (None, None) => create_blank(pool, spec),
        (None, Some((_, origin))) => create_copy(pool, spec, origin),
    };
    made(pool, spec, info?)
}

/// The volume that the same request made at its place, if it is there.
pub(crate) fn find_made(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<Volume>> {
    let found = find_whole(pool, spec)?;
    found.map(|info| made(pool, spec, answer_from(pool, spec, info)?)).transpose()
}

/// The volume that an image is.
fn made(pool: &Pool<'_>, spec: &CreateSpec<'_>, info: ImageInfo) -> Result<Volume> {
    let (place, object) = (spec.new.place.clone(), spec.new.object.clone());
    pool.memory().locations.note(&place);
    // The image's record is remembered by now. It may say more than this request, for example a file system
    // taken over from a source.
    let found = with_record(pool, &spec.key(), info)?;
    Ok(found.volume(&VolumeId { place, object, incarnation: None }, pool.plugin()))
}

/// Makes an image with its record in one step, or finds the one that the same request made.
fn create_blank(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<ImageInfo> {
    let bounds = bounds(&spec.settings, &spec.new.capabilities, spec.record.asked.fs_type.as_deref());
    let size = bounds.of_new(&spec.new.size, None)?;
    let metadata = spec.metadata()?;
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let layout = layout::of_new(pool, &spec.settings.layout)?;
    let image = NewImage { name: &spec.new.object, size, layout: &layout, metadata: &metadata };
    let create = || {
        let info = match pool.create(&image)? {
            MadeImage::Taken => return Ok(None),
            MadeImage::New(Some(info)) => *info,
            MadeImage::New(None) => find_taken(pool, spec)?.ok_or_else(replaced)?,
        };
        pool.memory().records.remember(&spec.key(), &info.id, &spec.record);
        Ok(Some(info))
    };
    take_name(pool, spec, create, |winner| winner)
}
