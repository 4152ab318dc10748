//! Making a volume, from nothing or as a copy.
//!
//! Requests of the same name meet at one image, whichever controller they come through: the cluster lets only
//! one of them make it, and the others answer from what they find.

use crate::backend::Volume;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::clone::create_copy;
use crate::backend::rbd::image::find::{ImageWithRecord, with_record};
use crate::backend::rbd::image::layout;
use crate::backend::rbd::image::spec::{
    CreateSpec, answer_from, bounds, find_taken, find_whole, replaced, take_name,
};
use crate::backend::rbd::tool::{MadeImage, NewImage};
use crate::error::{Kind, Result};
use crate::ids::VolumeId;

/// Refusals to copy a source that do not count if the volume is there.
const REFUSALS: [Kind; 5] =
    [Kind::NotFound, Kind::OutOfRange, Kind::NoSpace, Kind::InvalidArgument, Kind::Precondition];

/// Makes the volume in this pool, or finds the one that the same request made there.
pub(crate) fn create(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Volume> {
    // A repeated request to this daemon costs one process. For others, the attempt to make the volume is the
    // look for it.
    let is_known = pool.memory().records.contains(&spec.key());
    let known = if is_known { find_whole(pool, spec)? } else { None };
    let made = match (known, &spec.new.source) {
        (Some(known), _) => answer_from(pool, spec, known),
        (None, None) => create_blank(pool, spec),
        (None, Some((_, origin))) => create_copy(pool, spec, origin).or_else(|refusal| {
            // Since this request was first answered, the source may be deleted or grown, or have more
            // snapshots; or another source is asked for.
            let found = if REFUSALS.contains(&refusal.kind()) { find_whole(pool, spec)? } else { None };
            found.map_or(Err(refusal), |info| answer_from(pool, spec, info))
        }),
    };
    Ok(volume(pool, spec, &made?))
}

/// The volume that the same request made in this pool, if it is there.
pub(crate) fn find_made(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<Option<Volume>> {
    let Some(info) = find_whole(pool, spec)? else { return Ok(None) };
    Ok(Some(volume(pool, spec, &answer_from(pool, spec, info)?)))
}

/// The volume that an image is. Its record may say more than this request, for example a file system taken
/// over from a source.
fn volume(pool: &Pool<'_>, spec: &CreateSpec<'_>, made: &ImageWithRecord) -> Volume {
    let (place, object) = (spec.new.place.clone(), spec.new.object.clone());
    pool.memory().locations.note(&place);
    made.volume(&VolumeId { place, object, incarnation: None }, pool.plugin())
}

/// Makes an image with its record in one step, or finds the one that the same request made.
fn create_blank(pool: &Pool<'_>, spec: &CreateSpec<'_>) -> Result<ImageWithRecord> {
    let bounds = bounds(&spec.settings, &spec.new.capabilities, spec.record.asked.fs_type.as_deref());
    let size = bounds.of_new(&spec.new.size, None)?;
    let metadata = spec.metadata()?;
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let layout = layout::of_new(pool, &spec.settings.layout)?;
    let image = NewImage { name: &spec.new.object, size, layout: &layout, metadata: &metadata };
    take_name(pool, spec, || {
        let info = match pool.create(&image)? {
            MadeImage::Taken => return Ok(None),
            MadeImage::New(Some(info)) => *info,
            MadeImage::New(None) => find_taken(pool, spec)?.ok_or_else(replaced)?,
        };
        pool.memory().records.remember(&spec.key(), &info.id, &spec.record);
        with_record(pool, info).map(Some)
    })
}
