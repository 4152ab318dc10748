//! Images with two names. `rbd rename` makes the new name, changes the pool's directory and removes the old
//! name. A killed rename leaves both names, and each opens the image. The image's own name is the one that
//! the directory has for its id. `rbd rm` of the other name destroys the image and says that there was none,
//! so such a name is removed by `rados rm rbd_id.NAME`.
//!
//! Copies are renamed when they are whole, and deleted volumes when they are [retained](super::retain).

use crate::backend::Rename;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::remove::{remove_for_good, remove_left_over};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Removed, Renamed};
use crate::error::{Error, Result};

/// The image of this name, if the name is its own. It is looked up by its id in any case: an image that was
/// to be deleted, and was renamed half way, may have lost its snapshots since.
pub(crate) fn find_by_own_name(pool: &Pool<'_>, name: &str) -> Result<Option<ImageInfo>> {
    pool.info(ImageRef::Name(name))?.map_or(Ok(None), |info| settle(pool, info))
}

/// The image, if the name by which it was found is its own. A second name is removed once it is certain that
/// no controller is renaming the image.
pub(crate) fn settle(pool: &Pool<'_>, info: ImageInfo) -> Result<Option<ImageInfo>> {
    let timing = pool.timing();
    let what = format!("certainty that no controller is renaming image {} ({})", info.name, info.id);
    let has_own_name = pool.call.wait_for(what, timing.orphan_name_grace, timing.poll, || {
        if pool.info(ImageRef::Id(&info.id))?.is_some_and(|now| now.name == info.name) {
            return Ok(Some(true));
        }
        // The rename, or a removal, may have ended.
        let now = pool.info(ImageRef::Name(&info.name))?;
        Ok(now.is_none_or(|now| now.id != info.id).then_some(false))
    })?;
    match has_own_name {
        Some(has_own_name) => Ok(has_own_name.then_some(info)),
        None => remove_second_name(pool, &info).map(|()| None),
    }
}

/// Gives a copy its final name. The rename stays on record until it is known how far it came: if it is
/// killed, the temporary name may be left, and no list shows it.
pub(crate) fn rename_copy(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Renamed> {
    let (from, image) = (info.name.clone(), info.id.clone());
    pool.context.renames.begin(&pool.place(), &Rename { from, to: name.to_string(), image })?;
    let renamed = ensure_renamed(pool, info, name)?;
    pool.context.renames.end(&pool.place(), &info.name);
    Ok(renamed)
}

/// Settles a recorded rename: removes the name that the directory does not have. Returns whether the image
/// still has its temporary name.
pub(crate) fn settle_rename(pool: &Pool<'_>, rename: &Rename) -> Result<bool> {
    let Rename { from, to, image } = rename;
    if let Some(second) = pool.info(ImageRef::Name(to))?.filter(|found| found.id == *image) {
        settle(pool, second)?;
    }
    let is_temporary = pool.info(ImageRef::Id(image))?.is_some_and(|now| now.name == *from);
    if !is_temporary {
        pool.remove_name(from)?;
    }
    pool.context.renames.end(&pool.place(), from);
    Ok(is_temporary)
}

/// Removes a copy that was not finished, or the rest of one whose removal was killed. If a killed rename has
/// made it a volume, it only loses its former name.
pub(crate) fn remove_copy(pool: &Pool<'_>, temporary: &str) -> Result<Removed> {
    let Some(info) = pool.info(ImageRef::Name(temporary))? else {
        return remove_left_over(pool, temporary);
    };
    match settle(pool, info)? {
        Some(info) => remove_for_good(pool, &info),
        None => Ok(Removed::Gone),
    }
}

/// Gives an image a name, even if an earlier attempt was killed. The command's answer proves nothing: another
/// image may have had the name first, or the former name may have meant another image by then. So the image
/// is looked up by its id. Absent: it is gone, or has a third name.
pub(crate) fn ensure_renamed(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Renamed> {
    let renamed = try_rename(pool, info, name)?;
    let second = if renamed == Renamed::Taken { pool.info(ImageRef::Name(name))? } else { None };
    let Some(second) = second.filter(|second| second.id == info.id) else { return Ok(renamed) };
    settle(pool, second)?;
    try_rename(pool, info, name)
}

fn try_rename(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Renamed> {
    let said = pool.rename(&info.name, name)?;
    if said == Renamed::Absent {
        return Ok(said);
    }
    match pool.info(ImageRef::Id(&info.id))? {
        Some(now) if now.name == name => {
            if said == Renamed::Taken {
                remove_second_name(pool, info)?;
            }
            Ok(Renamed::Done)
        }
        Some(now) if now.name == info.name => Ok(Renamed::Taken),
        Some(_) | None => Ok(Renamed::Absent),
    }
}

/// Removes a second name of an image, unless that name means another image by now, or a rename has made it
/// the image's own. `rbd rename` leaves one if it is killed, or if its last step, the removal of the former
/// name, fails: it succeeds all the same.
pub(crate) fn remove_second_name(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    let is_own =
        || Ok::<_, Error>(pool.info(ImageRef::Id(&info.id))?.is_some_and(|own| own.name == info.name));
    match pool.info(ImageRef::Name(&info.name))? {
        Some(now) if now.id == info.id && !is_own()? => {
            log::warn!(
                "{}: removing {}, a second name that a rename left of image {}",
                pool.at,
                info.name,
                info.id
            );
            pool.remove_name(&info.name)
        }
        _ => Ok(()),
    }
}
