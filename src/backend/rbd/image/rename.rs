//! Images with two names. `rbd rename` makes the new name, changes the pool's directory and removes the old
//! name. A killed one leaves both: each opens the image, and the removal of either removes it. The image's
//! own name is the one that the directory has for its id; the other says only how far the rename came.
//!
//! Renamed are copies, when they are whole, and deleted volumes whose snapshots live on.

use crate::backend::Rename;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::parent::{check_parent_later, check_unknown_parent_later};
use crate::backend::rbd::image::removal::remove_for_good;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Removed, Renamed};
use crate::error::Result;

/// What a name turned out to be, by which an image was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The image's own.
    OwnName,
    /// A second one that a killed rename had left. It is removed; the image stays.
    SecondNameRemoved,
}

/// Whether an image was given a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// It was. This is how it is now.
    Done(Box<ImageInfo>),
    /// The image is gone, or has a third name.
    Absent,
    /// Another image has the name.
    Taken,
}

/// The image of this name, if the name is its own.
pub(crate) fn settle_and_find(pool: &Pool<'_>, name: &str) -> Result<Option<ImageInfo>> {
    let Some(info) = pool.info(ImageRef::Name(name))? else { return Ok(None) };
    if !may_be_renamed(pool, &info) {
        return Ok(Some(info));
    }
    Ok((settle_name(pool, &info)? == Settled::OwnName).then_some(info))
}

/// The same for an image that was asked for as a copy: one that was flattened has no parent that says so.
pub(crate) fn settle_and_find_copy(pool: &Pool<'_>, name: &str) -> Result<Option<ImageInfo>> {
    let Some(info) = pool.info(ImageRef::Name(name))? else { return Ok(None) };
    if pool.memory().records.get(&pool.place().key(name), &info.id).is_some() {
        return Ok(Some(info));
    }
    Ok((settle_name(pool, &info)? == Settled::OwnName).then_some(info))
}

/// Whether the image may be one that was renamed: one with snapshots, or a copy, unless it was seen whole
/// before.
fn may_be_renamed(pool: &Pool<'_>, info: &ImageInfo) -> bool {
    let is_known = || pool.memory().records.get(&pool.place().key(&info.name), &info.id).is_some();
    info.snapshots > 0 || (info.parent.is_some() && !is_known())
}

/// Gives a copy its final name. The rename stays on record until it is known how far it came: if it is
/// killed, the temporary name may be left, and no list shows it.
pub(crate) fn rename_copy(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Named> {
    let (from, image) = (info.name.clone(), info.id.clone());
    pool.context.renames.begin(&pool.place(), &Rename { from, to: name.to_string(), image })?;
    let named = ensure_renamed(pool, info, name)?;
    pool.context.renames.end(&pool.place(), &info.name);
    Ok(named)
}

/// Settles a recorded rename. The name that the directory does not have is removed: it says whether that was
/// the temporary one.
pub(crate) fn settle_rename(pool: &Pool<'_>, rename: &Rename) -> Result<Settled> {
    let Rename { from, to, image } = rename;
    if let Some(second) = pool.info(ImageRef::Name(to))?.filter(|found| found.id == *image) {
        settle_name(pool, &second)?;
    }
    let settled = match pool.info(ImageRef::Id(image))? {
        Some(now) if now.name == *from => Settled::OwnName,
        Some(_) | None => {
            pool.remove_name(from)?;
            Settled::SecondNameRemoved
        }
    };
    pool.context.renames.end(&pool.place(), from);
    Ok(settled)
}

/// Removes a copy that was not finished. One that a killed rename has made a volume loses its former name
/// only.
pub(crate) fn remove_copy(pool: &Pool<'_>, temporary: &str) -> Result<Removed> {
    let info = pool.info(ImageRef::Name(temporary))?;
    if let Some(info) = &info
        && settle_name(pool, info)? == Settled::SecondNameRemoved
    {
        return Ok(Removed::Gone);
    }
    let removed = remove_for_good(pool, temporary);
    match (&removed, info) {
        // Also of a removal that failed: it may be killed between the parent and the rest.
        (_, Some(info)) => check_parent_later(pool, info.parent.as_ref()),
        // The rest of such a removal.
        (Ok(Removed::Gone), None) => check_unknown_parent_later(pool),
        _ => {}
    }
    removed
}

/// Gives an image a name, also where an earlier attempt was killed. What the command says proves nothing:
/// another may have had the name first, or the former name was another image's by then. The image is asked by
/// its id.
pub(crate) fn ensure_renamed(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Named> {
    let named = try_rename(pool, info, name)?;
    let second = if named == Named::Taken { pool.info(ImageRef::Name(name))? } else { None };
    let Some(second) = second.filter(|second| second.id == info.id) else { return Ok(named) };
    settle_name(pool, &second)?;
    try_rename(pool, info, name)
}

fn try_rename(pool: &Pool<'_>, info: &ImageInfo, name: &str) -> Result<Named> {
    let said = pool.rename(&info.name, name)?;
    if said == Renamed::Absent {
        return Ok(Named::Absent);
    }
    match pool.info(ImageRef::Id(&info.id))? {
        Some(now) if now.name == name => {
            if said == Renamed::Taken {
                remove_second_name(pool, info)?;
            }
            Ok(Named::Done(Box::new(now)))
        }
        Some(now) if now.name == info.name => Ok(Named::Taken),
        Some(_) | None => Ok(Named::Absent),
    }
}

/// Whether the name by which the image was found is its own, or it is gone.
pub(crate) fn has_own_name(pool: &Pool<'_>, info: &ImageInfo) -> Result<bool> {
    Ok(pool.info(ImageRef::Id(&info.id))?.is_none_or(|now| now.name == info.name))
}

/// Settles whether the image has the name by which it was found. A second name is removed once it is certain
/// that nobody is renaming.
fn settle_name(pool: &Pool<'_>, info: &ImageInfo) -> Result<Settled> {
    let timing = pool.timing();
    let what = format!("certainty that nobody is renaming image {} ({})", info.name, info.id);
    let settled = pool.call.wait_for(what, timing.orphan_name_grace, timing.poll, || {
        if has_own_name(pool, info)? {
            return Ok(Some(Settled::OwnName));
        }
        // The rename may have come to its end.
        let now = pool.info(ImageRef::Name(&info.name))?;
        Ok(now.is_none_or(|now| now.id != info.id).then_some(Settled::SecondNameRemoved))
    })?;
    match settled {
        Some(settled) => Ok(settled),
        None => remove_second_name(pool, info).map(|()| Settled::SecondNameRemoved),
    }
}

/// Removes a name of an image that is not its own, unless it means another by now.
fn remove_second_name(pool: &Pool<'_>, info: &ImageInfo) -> Result<()> {
    match pool.info(ImageRef::Name(&info.name))? {
        Some(now) if now.id == info.id => {
            log::warn!(
                "{}: removing {}, a second name that a killed rename left of image {}",
                pool.at,
                info.name,
                info.id
            );
            pool.remove_name(&info.name)
        }
        _ => Ok(()),
    }
}
