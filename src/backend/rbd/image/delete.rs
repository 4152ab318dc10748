//! Deleting a volume.
//!
//! If nothing is in the way, a deletion is three commands: take the [lock](DeletionLock), look up the name,
//! remove the image. An image that is large, has snapshots, or is in a pool that moves removed images to the
//! trash, is [retained](super::retain): it gets another name, and is removed in the background.
//!
//! Before the lock is taken, the image's id is in the journal. A killed `rbd rm` frees the name while the
//! image is still there, and another controller may make a new image of the name. So the rest is removed by
//! the id: when the deletion is repeated, and when the daemon is started again. The start touches no volume
//! that still has its name.
//!
//! If the volume's name is registered, the name is given back last, when the volume is gone. The ID says
//! where the name is registered, so a repeated deletion gives it back if a crash came in between.
//!
//! | what a killed command left | by the name | by the id | finished by |
//! |---|---|---|---|
//! | all of it | there | there | starting over |
//! | `rename`: both names open the image | there | one of the names | removal of the other |
//! | `rm`: on its way to the trash; no other image gets the name | absent | there | `rbd rm` of the name |
//! | `rm`: in the trash, where no list shows it; the name is free | absent | there | `rbd trash rm` |
//! | `rm`: the header is gone, the rest is there | absent | absent | `rbd trash rm` |

use crate::backend::ceph::publication::deletion::{Acquired, DeletionLock, is_published};
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::{find_volume, refuse_absent_in_resync};
use crate::backend::rbd::image::remove::{
    exists_or_cleared, insist, interrupted, is_large, remove_bare_name, remove_for_good,
};
use crate::backend::rbd::image::rename::find_by_own_name;
use crate::backend::rbd::image::retain::{names_of_live, retain};
use crate::backend::rbd::image::retained_checks::{check_all_retained_later, check_parent_later};
use crate::backend::rbd::image::unregister::Registered;
use crate::backend::rbd::image::watchers::{refuse_mapped, refuse_watched_in_removal};
use crate::backend::rbd::mirror::role::refuse_to_delete_copy;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockHolder, LockTarget, Removed, SnapshotInfo};
use crate::backend::{Deleted, Deletion, Interrupted, RecordDeletion};
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// How many images to try: a mirrored volume's ID may name the image's id in the other cluster.
const ATTEMPTS: usize = 2;

/// The outcome of an attempt.
enum Outcome {
    /// The volume is deleted. Its name meant it until now, so no other image of the name was made before.
    Deleted,
    /// There is no such volume any more. The name did not mean it.
    WithoutName(Deleted),
    /// The ID means an image with another id.
    Other(String),
}

/// The ID with the incarnation that it means now; None if there is no such volume.
pub(crate) fn resolve(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<VolumeId>> {
    if pool.lets_go(format_args!("volume {id}"))? {
        return Ok(None);
    }
    let found = find_volume(pool, id);
    let found = found.map_err(|error| error.context(format_args!("look for volume {id}")))?;
    Ok(found.map(|info| VolumeId { incarnation: Some(info.id), ..id.clone() }))
}

/// Deletes a volume that is not in use, and then gives its name back, if that is registered.
pub(crate) fn delete(
    context: &Context,
    call: &Call,
    deletion: &Deletion<'_>,
    record_deletion: RecordDeletion<'_>,
) -> Result<Deleted> {
    let Deletion { id, secrets, .. } = *deletion;
    if names::is_internal(&id.object) {
        return Ok(Deleted::Absent);
    }
    let at = context.locate(&id.place, secrets)?;
    let pool = context.pool(call, &at);
    let delete = || {
        let is_removed = pool.lets_go(format_args!("volume {id}"))?;
        let registered = Registered::find(&pool, id, secrets)?;
        let (deleted, had_its_name) = match is_removed {
            true => (Deleted::Absent, true),
            false => delete_in(&pool, deletion, record_deletion)?,
        };
        if let Some(registered) = registered {
            record_deletion()?;
            registered.give_back(&pool, id, had_its_name)?;
        }
        Ok(deleted)
    };
    let deleted = delete().map_err(|error: Error| error.context(format_args!("delete volume {id}")))?;
    context.memory.records.forget(&pool.key_of(&id.object));
    context.memory.placed.forget(&id.lock_key());
    context.memory.deleted.remember(id.to_string(), ());
    Ok(deleted)
}

/// Finishes a deletion that was interrupted, if the volume's name no longer means it.
pub(crate) fn finish_deletion(pool: &Pool<'_>, id: &VolumeId, secrets: &Secrets) -> Result<Interrupted> {
    let finish = || {
        let is_removed = pool.lets_go(format_args!("volume {id}"))?;
        let registered = Registered::find(pool, id, secrets)?;
        let outcome = if is_removed { Interrupted::Gone } else { finish_deletion_in(pool, id)? };
        if let (Some(registered), Interrupted::Gone) = (registered, outcome) {
            registered.give_back(pool, id, is_removed)?;
        }
        Ok(outcome)
    };
    finish().map_err(|error: Error| error.context(format_args!("finish the deletion of volume {id}")))
}

/// The image is removed by its id, and only if the volume has lost its name: that needs no deletion lock.
fn finish_deletion_in(pool: &Pool<'_>, id: &VolumeId) -> Result<Interrupted> {
    let Some(image) = id.incarnation.as_ref().filter(|_| !names::is_internal(&id.object)) else {
        return Ok(Interrupted::Whole);
    };
    settle_names(pool, &id.object, image)?;
    if find_volume(pool, id)?.is_some() {
        return Ok(Interrupted::Whole);
    }
    let found = pool.info(ImageRef::Id(image))?;
    // The trash lists images that were moved there by hand, and not those whose `rbd rm` was killed.
    if found.is_some() && pool.trash()?.iter().any(|it| it.id == *image) {
        return Ok(Interrupted::Whole);
    }
    finish(pool, &id.object, image, found).map(|_| Interrupted::Gone)
}

/// Removes the name that a killed rename has left beside the image's own. A controller that is renaming the
/// image now has its deletion lock.
fn settle_names(pool: &Pool<'_>, name: &str, image: &str) -> Result<()> {
    let retained = names::retained(image);
    let [one, other] = [name, &retained].map(|name| pool.info(ImageRef::Name(name)));
    if !matches!((one?, other?), (Some(one), Some(other)) if one.id == other.id) {
        return Ok(());
    }
    let (target, deleter) = (LockTarget::Header(image), pool.deleter());
    match deleter.acquire(target)? {
        Acquired::Locked(_) => {}
        Acquired::Published(_) => return Ok(()),
        Acquired::HeldElsewhere => return Err(deleter.held_elsewhere()),
    }
    let settled = find_by_own_name(pool, name).and_then(|_| find_by_own_name(pool, &retained));
    deleter.release(target);
    settled.map(drop)
}

/// Deletes the volume. Also returns whether its name meant it until now.
fn delete_in(
    pool: &Pool<'_>,
    deletion: &Deletion<'_>,
    record_deletion: RecordDeletion<'_>,
) -> Result<(Deleted, bool)> {
    let id = deletion.id;
    if pool.memory().resyncs.0.contains(&pool.key_of(&id.object)) && find_volume(pool, id)?.is_none() {
        refuse_absent_in_resync(pool, id)?;
    }
    // Nothing is written, to the cluster or the journal, for a volume that is most likely gone.
    let known = id.incarnation.clone().filter(|_| !pool.memory().deleted.contains(&id.to_string()));
    let image = match known {
        Some(image) => Some(image),
        None => find_volume(pool, id)?.map(|info| info.id),
    };
    let Some(mut image) = image else { return Ok((Deleted::Absent, false)) };
    record_deletion()?;
    for _ in 0..ATTEMPTS {
        match delete_image(pool, deletion, &image)? {
            Outcome::Deleted => return Ok((Deleted::Gone, true)),
            Outcome::WithoutName(deleted) => return Ok((deleted, false)),
            Outcome::Other(meant) => image = meant,
        }
    }
    Err(Error::unavailable("another controller replaced its image during this call: try again"))
}

/// Deletes the volume under the deletion lock of the image of this id, if its name means this image.
fn delete_image(pool: &Pool<'_>, deletion: &Deletion<'_>, image: &str) -> Result<Outcome> {
    let (id, target, deleter) = (deletion.id, LockTarget::Header(image), pool.deleter());
    let gone = |()| Outcome::WithoutName(Deleted::Absent);
    let lock = match deleter.acquire(target)? {
        Acquired::Locked(lock) => lock,
        Acquired::Published(nodes) => return refuse_published(pool, id, image, &nodes).map(gone),
        Acquired::HeldElsewhere => return refuse_whole(pool, &id.object, image).map(gone),
    };
    let delete = || match find_volume(pool, id)? {
        Some(info) if info.id == image => {
            if info.mirroring.is_some() {
                refuse_to_delete_copy(pool, id, &info)?;
            }
            remove_or_retain(pool, &info, lock, deletion.snapshots_may_outlive).map(|()| Outcome::Deleted)
        }
        // A mirrored image: the volume's ID names the id of the image in the other cluster.
        Some(info) => pool.remove_lockable(target).map(|()| Outcome::Other(info.id)),
        None => {
            let found = pool.info(ImageRef::Id(image))?;
            finish(pool, &id.object, image, found).map(Outcome::WithoutName)
        }
    };
    delete().inspect_err(|_| deleter.release(target))
}

/// Removes an image at once if it is small, has no snapshots, and its pool does not move it to the trash.
/// Retains any other.
fn remove_or_retain(
    pool: &Pool<'_>,
    info: &ImageInfo,
    lock: DeletionLock,
    snapshots_may_outlive: bool,
) -> Result<()> {
    // The snapshots of the mirroring are not among them, and are removed with the image.
    let mut snapshots = if info.snapshots == 0 { Vec::new() } else { snapshots_of(pool, info)? };
    if snapshots.is_empty() && !is_large(info) && !pool.options()?.trashes_removed {
        let call = lock.call(pool.call)?;
        let in_time = pool.with_call(&call);
        let removed = insist(&in_time, &info.name, || match remove_for_good(&in_time, info)? {
            Removed::Watched => refuse_mapped(&in_time, &info.name).map(|()| Removed::Watched),
            removed => Ok(removed),
        })?;
        match removed {
            // A snapshot was taken since the look.
            Removed::HasSnapshots => snapshots = snapshots_of(pool, info)?,
            Removed::Watched => {
                refuse_watched_in_removal(pool, info)?;
                return Err(interrupted());
            }
            Removed::Gone | Removed::Absent => return Ok(()),
        }
    }
    let live = names_of_live(&snapshots);
    if !snapshots_may_outlive && !live.is_empty() {
        // The deletion would free nothing, as these need the image.
        return Err(Error::needed_by(&live));
    }
    retain(pool, info, lock)
}

fn snapshots_of(pool: &Pool<'_>, info: &ImageInfo) -> Result<Vec<SnapshotInfo>> {
    Ok(pool.snapshots(ImageRef::Id(&info.id))?.unwrap_or_default())
}

/// Finishes a killed deletion, or finds it finished. The name does not mean the image; `found` is what a look
/// by its id found.
fn finish(pool: &Pool<'_>, name: &str, image: &str, found: Option<ImageInfo>) -> Result<Deleted> {
    let removed = match &found {
        // The image is deleted and retained; or an operator has renamed it, so it is no volume any more.
        Some(info) if info.name != name => Removed::Absent,
        _ => remove_rest(pool, name, image, found.is_some())?,
    };
    let parent = found.iter().filter_map(|info| info.parent.as_ref());
    parent.for_each(|parent| check_parent_later(pool, parent));
    match (removed, found) {
        (Removed::Gone, found) => {
            if found.is_none() {
                check_all_retained_later(pool);
            }
            return Ok(Deleted::Gone);
        }
        (Removed::Watched, _) => return Err(interrupted()),
        (Removed::HasSnapshots, _) => return Err(needed_in_trash(pool, image)),
        (_, Some(_)) => pool.deleter().release(LockTarget::Header(image)),
        // Taking the lock has made an object though there is no image.
        (_, None) => pool.remove_lockable(LockTarget::Header(image))?,
    }
    Ok(Deleted::Absent)
}

/// The refusal of an image in the trash that has snapshots: `rbd trash rm` does not remove it.
fn needed_in_trash(pool: &Pool<'_>, image: &str) -> Error {
    let place = pool.at.spec();
    Error::new(
        Kind::HasSnapshots,
        format!(
            "its image {image} was moved to the trash and has snapshots, or clones that need them: bring it back \
             (`rbd trash restore {place}/{image}`), or flatten the clones and delete the snapshots first"
        ),
    )
}

/// Removes the rest of an image whose `rbd rm` was killed.
fn remove_rest(pool: &Pool<'_>, name: &str, image: &str, is_there: bool) -> Result<Removed> {
    let removed = insist(pool, image, || pool.purge(image))?;
    if removed != Removed::Absent || !is_there {
        return Ok(removed);
    }
    // `rbd rm` moves the image to the trash first. Until it is there, no other image can get its name.
    remove_bare_name(pool, name)?;
    match pool.info(ImageRef::Id(image))? {
        None => Ok(Removed::Gone),
        Some(_) => Err(interrupted()),
    }
}

/// Refuses an image whose deletion lock another controller has, unless the image is retained: then the lock
/// stays on it, and the volume is gone. The volume's name is removed if a killed rename has left it.
fn refuse_whole(pool: &Pool<'_>, name: &str, image: &str) -> Result<()> {
    match pool.info(ImageRef::Id(image))? {
        Some(info) if names::id_of_retained(&info.name).is_none() => Err(pool.deleter().held_elsewhere()),
        _ => find_by_own_name(pool, name).map(drop),
    }
}

/// Refuses a volume that is published, unless it is gone and the lock was taken too late.
fn refuse_published(pool: &Pool<'_>, id: &VolumeId, image: &str, nodes: &[LockHolder]) -> Result<()> {
    match find_volume(pool, id)?.is_some() || exists_or_cleared(pool, image)? {
        true => Err(is_published(nodes)),
        false => Ok(()),
    }
}
