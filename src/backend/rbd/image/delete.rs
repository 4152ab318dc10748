//! Deleting a volume.
//!
//! Three processes where nothing is in the way: the [deletion lock](deletion_lock) is taken, the name
//! is looked up, the image is removed. What a killed removal left is finished by the image's id, which the
//! volume's ID contains: when the deletion is repeated, and when the daemon is started again, which then
//! touches no volume that is there by its name.
//!
//! A volume whose name is registered gives it back when it is gone, last of all; its ID says where it is
//! registered, so that a repeated deletion gives it back if a crash came in between.
//!
//! | what it left | seen by name | by id | finished by |
//! |---|---|---|---|
//! | nothing done | there | there | starting over |
//! | on its way to the trash; the name cannot be given to another | absent | there | removal by name |
//! | in the trash, where no list shows it; the name is free | absent | there | purge by id |
//! | the header is gone, the rest is there | absent | absent | purge by id |

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::header_lock::deletion_lock::{self, Acquired};
use crate::backend::rbd::image::find::{find_volume, refuse_absent_in_resync};
use crate::backend::rbd::image::parent::{check_parent_later, check_unknown_parent_later};
use crate::backend::rbd::image::remove::{
    Attempt, Terms, WithSnapshots, begin_removal, interrupted, remove_image, try_remove_by_name,
};
use crate::backend::rbd::image::rename::{has_own_name, settle_and_find};
use crate::backend::rbd::image::retain::has_live_snapshots;
use crate::backend::rbd::image::trash::{
    Purge, Restored, is_in_trash, is_large, is_put_aside, restore_snapshotted, schedule_purge,
};
use crate::backend::rbd::image::unregister::Registered;
use crate::backend::rbd::mirror::role::refuse_to_delete_copy;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockHolder, LockTarget, Removed, TrashSource};
use crate::backend::{Deleted, Deletion, Interrupted, RecordDeletion};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

/// How often an image is looked at again that changes meanwhile.
const ATTEMPTS: usize = 4;

/// What came of an attempt.
enum Outcome {
    /// There is no such volume any more.
    Over(Ended),
    /// The ID means the image of another id.
    Other(String),
}

/// How a volume ended.
struct Ended {
    deleted: Deleted,
    /// Its name meant it until now, so that nobody has made another one of the name before.
    had_its_name: bool,
}

impl Ended {
    /// Its name did not mean it any more.
    fn without_name(deleted: Deleted) -> Self {
        Self { deleted, had_its_name: false }
    }
}

/// The ID with the incarnation that is meant; None where there is no such volume.
pub(crate) fn resolve(
    context: &Context,
    call: &Call,
    id: &VolumeId,
    secrets: &Secrets,
) -> Result<Option<VolumeId>> {
    if id.incarnation.is_some() {
        return Ok(Some(id.clone()));
    }
    let at = context.locate(&id.place, secrets)?;
    if context.lets_go(call, &at, format_args!("volume {id}"))? {
        return Ok(None);
    }
    let found = find_volume(&context.pool(call, &at), id);
    let found = found.map_err(|error| error.context(format_args!("look for volume {id}")))?;
    Ok(found.map(|info| VolumeId { incarnation: Some(info.id), ..id.clone() }))
}

/// Deletes a volume that nobody uses.
pub(crate) fn delete(
    context: &Context,
    call: &Call,
    deletion: &Deletion<'_>,
    record_deletion: RecordDeletion<'_>,
) -> Result<Deleted> {
    let id = deletion.id;
    if names::is_internal(&id.object) {
        return Ok(Deleted::Absent);
    }
    let at = context.locate(&id.place, deletion.secrets)?;
    let pool = context.pool(call, &at);
    let outcome = match context.lets_go(call, &at, format_args!("volume {id}"))? {
        true => give_back_name(&pool, deletion).map(|()| Deleted::Absent),
        false => delete_registered(&pool, deletion, record_deletion),
    };
    let outcome = outcome.map_err(|error| error.context(format_args!("delete volume {id}")))?;
    context.memory.records.forget(&pool.key_of(id));
    context.memory.placed.forget(&id.lock_key());
    context.memory.deleted.remember(id.to_string(), ());
    Ok(outcome)
}

/// Deletes the volume, and then gives its name back if that is registered.
fn delete_registered(
    pool: &Pool<'_>,
    deletion: &Deletion<'_>,
    record_deletion: RecordDeletion<'_>,
) -> Result<Deleted> {
    let registered = Registered::find(pool, deletion.id, deletion.secrets)?;
    let Ended { deleted, had_its_name } = delete_in(pool, deletion, record_deletion)?;
    if let Some(registered) = registered {
        registered.give_back(pool, deletion.id, had_its_name, record_deletion)?;
    }
    Ok(deleted)
}

/// Gives back the name of a volume whose pool was removed, if that is registered in another one.
fn give_back_name(pool: &Pool<'_>, deletion: &Deletion<'_>) -> Result<()> {
    let Some(registered) = Registered::find(pool, deletion.id, deletion.secrets)? else { return Ok(()) };
    registered.give_back(pool, deletion.id, true, &|| Ok(()))
}

/// Finishes a deletion that was interrupted, if the volume's name means nothing any more.
pub(crate) fn finish_deletion(
    context: &Context,
    call: &Call,
    deletion: &Deletion<'_>,
) -> Result<Interrupted> {
    let id = deletion.id;
    let at = context.locate(&id.place, deletion.secrets)?;
    let pool = context.pool(call, &at);
    let outcome = match context.lets_go(call, &at, format_args!("volume {id}"))? {
        true => give_back_name(&pool, deletion).map(|()| Interrupted::Gone),
        false => finish_registered(&pool, deletion),
    };
    outcome.map_err(|error| error.context(format_args!("finish the deletion of volume {id}")))
}

fn finish_registered(pool: &Pool<'_>, deletion: &Deletion<'_>) -> Result<Interrupted> {
    let registered = Registered::find(pool, deletion.id, deletion.secrets)?;
    let outcome = finish_deletion_in(pool, deletion)?;
    if let (Some(registered), Interrupted::Gone) = (registered, outcome) {
        registered.give_back(pool, deletion.id, false, &|| Ok(()))?;
    }
    Ok(outcome)
}

fn finish_deletion_in(pool: &Pool<'_>, deletion: &Deletion<'_>) -> Result<Interrupted> {
    let (id, with_snapshots) = (deletion.id, with_snapshots(deletion));
    let Some(image) = id.incarnation.as_ref().filter(|_| !names::is_internal(&id.object)) else {
        return Ok(Interrupted::Whole);
    };
    // Nobody is to be kept from a volume that is whole, not even for a moment.
    if let Some(info) = find_volume(pool, id)?
        && has_own_name(pool, &info)?
    {
        return Ok(Interrupted::Whole);
    }
    let _working = begin_removal(pool, image)?;
    let lock = match deletion_lock::acquire(pool, image)? {
        Acquired::Locked(lock) => lock,
        Acquired::Published(nodes) => {
            return refuse_published(pool, id, image, &nodes).map(|_| Interrupted::Gone);
        }
        Acquired::HeldElsewhere => return Err(deletion_lock::held_elsewhere(pool.context)),
    };
    let finished = finish_locked(pool, id, image, Terms { lock, with_snapshots });
    finished.inspect_err(|_| deletion_lock::release(pool, image))
}

/// Finishes the deletion of the image that is locked, unless it was restored from the trash meanwhile, or put
/// there by somebody else.
fn finish_locked(pool: &Pool<'_>, id: &VolumeId, image: &str, terms: Terms) -> Result<Interrupted> {
    // One that is retained already may have its former name still.
    settle_and_find(pool, &id.object)?;
    if find_volume(pool, id)?.is_some() || is_put_aside(pool, image)? {
        deletion_lock::release(pool, image);
        return Ok(Interrupted::Whole);
    }
    finish(pool, &id.object, image, terms).map(|_| Interrupted::Gone)
}

fn with_snapshots(deletion: &Deletion<'_>) -> WithSnapshots {
    if deletion.snapshots_may_outlive { WithSnapshots::Retain } else { WithSnapshots::Refuse }
}

fn delete_in(pool: &Pool<'_>, deletion: &Deletion<'_>, record_deletion: RecordDeletion<'_>) -> Result<Ended> {
    let (id, with_snapshots) = (deletion.id, with_snapshots(deletion));
    if pool.memory().resyncs.0.contains(&pool.key_of(id)) && find_volume(pool, id)?.is_none() {
        refuse_absent_in_resync(pool, id)?;
    }
    let Some(mut image) = image_id(pool, id)? else { return Ok(Ended::without_name(Deleted::Absent)) };
    record_deletion()?;
    for _ in 0..ATTEMPTS {
        let _working = begin_removal(pool, &image)?;
        let lock = match deletion_lock::acquire(pool, &image)? {
            Acquired::Locked(lock) => lock,
            Acquired::Published(nodes) => {
                return refuse_published(pool, id, &image, &nodes).map(Ended::without_name);
            }
            Acquired::HeldElsewhere => {
                return follow_other(pool, &image, with_snapshots).map(Ended::without_name);
            }
        };
        match delete_locked(pool, id, &image, Terms { lock, with_snapshots }) {
            Ok(Outcome::Over(ended)) => return Ok(ended),
            Ok(Outcome::Other(meant)) => image = meant,
            Err(error) => {
                deletion_lock::release(pool, &image);
                return Err(error);
            }
        }
    }
    Err(Error::unavailable("others make and delete it at this moment: try again"))
}

/// The id of the volume's image, as far as it is known without a look; None where there is none. Nothing is
/// written, to the cluster or the journal, for a volume that is most likely gone.
fn image_id(pool: &Pool<'_>, id: &VolumeId) -> Result<Option<String>> {
    match &id.incarnation {
        Some(image) if !pool.memory().deleted.contains(&id.to_string()) => Ok(Some(image.clone())),
        _ => Ok(find_volume(pool, id)?.map(|info| info.id)),
    }
}

/// Deletes the volume if its name means the image that is locked.
fn delete_locked(pool: &Pool<'_>, id: &VolumeId, image: &str, terms: Terms) -> Result<Outcome> {
    match find_volume(pool, id)? {
        Some(info) if info.id == image => {
            refuse_to_delete_copy(pool, id, &info)?;
            remove_image(pool, info, terms)?;
            Ok(Outcome::Over(Ended { deleted: Deleted::Gone, had_its_name: true }))
        }
        // A mirrored image: the ID has the id it had in the other cluster.
        Some(info) => {
            pool.remove_lockable(LockTarget::Header(image))?;
            Ok(Outcome::Other(info.id))
        }
        None => finish(pool, &id.object, image, terms).map(Ended::without_name).map(Outcome::Over),
    }
}

/// The name does not mean the image: finishes what a killed deletion has begun, or finds it finished.
fn finish(pool: &Pool<'_>, name: &str, image: &str, terms: Terms) -> Result<Deleted> {
    let found = pool.info(ImageRef::Id(image))?;
    match &found {
        // Deleted, and retained for its snapshots; or renamed by an operator, and so no volume any more.
        Some(info) if info.name != name => {
            deletion_lock::release(pool, image);
            Ok(Deleted::Absent)
        }
        Some(info) if is_large(info) && is_in_trash(pool, image)? => finish_in_trash(pool, info, terms),
        _ => finish_unseen(pool, name, image, (found, terms)),
    }
}

/// The image was moved to the trash.
fn finish_in_trash(pool: &Pool<'_>, info: &ImageInfo, terms: Terms) -> Result<Deleted> {
    if terms.with_snapshots == WithSnapshots::Refuse && restore_snapshotted(pool, info)? == Restored::Done {
        return Err(Error::unavailable(
            "a snapshot was taken of it when it was moved to the trash: try again",
        ));
    }
    schedule_purge(pool, &info.id, &info.name, info.parent.as_ref())?;
    Ok(Deleted::Gone)
}

/// The image is removed half way, where no list shows it, or gone.
fn finish_unseen(
    pool: &Pool<'_>,
    name: &str,
    image: &str,
    (found, terms): (Option<ImageInfo>, Terms),
) -> Result<Deleted> {
    let purged = pool.purge(image)?;
    check_parent_later(pool, found.as_ref().and_then(|info| info.parent.as_ref()));
    match (purged, found) {
        (Removed::Gone, None) => {
            check_unknown_parent_later(pool);
            Ok(Deleted::Gone)
        }
        (Removed::Gone, Some(_)) => Ok(Deleted::Gone),
        (Removed::Absent, None) => {
            // Taking the lock has made an object where no image is.
            pool.remove_lockable(LockTarget::Header(image))?;
            Ok(Deleted::Absent)
        }
        // On its way to the trash. As long as it is, nobody can make another image of the name.
        (Removed::Absent, Some(_)) => match try_remove_by_name(pool, name, image, terms.lock)? {
            Attempt::Done => Ok(Deleted::Gone),
            Attempt::Changed => Err(Error::unavailable("others change it at this moment: try again")),
        },
        (Removed::HasSnapshots, _) => {
            // Kept there for its clones by librbd, as 0.1.0 asked it to.
            deletion_lock::release(pool, image);
            Ok(Deleted::Absent)
        }
        (Removed::Watched, _) => Err(interrupted()),
    }
}

/// Another controller deletes it: once the image is in the trash, that needs no lock any more.
fn follow_other(pool: &Pool<'_>, image: &str, with_snapshots: WithSnapshots) -> Result<Deleted> {
    let held_elsewhere = || Err(deletion_lock::held_elsewhere(pool.context));
    match pool.trash()?.iter().find(|it| it.id == image) {
        Some(trashed) if trashed.source == TrashSource::Clones => Ok(Deleted::Absent),
        Some(_) if with_snapshots == WithSnapshots::Refuse && has_live_snapshots(pool, image)? => {
            held_elsewhere()
        }
        Some(trashed) if schedule_purge(pool, image, &trashed.name, None)? == Purge::Scheduled => {
            Ok(Deleted::Gone)
        }
        _ => held_elsewhere(),
    }
}

/// Says to whom the volume is published, unless there is no volume any more and the lock was taken too late.
fn refuse_published(pool: &Pool<'_>, id: &VolumeId, image: &str, nodes: &[LockHolder]) -> Result<Deleted> {
    let exists = find_volume(pool, id)?.is_some() || pool.info(ImageRef::Id(image))?.is_some();
    if !exists {
        pool.remove_lockable(LockTarget::Header(image))?;
        return Ok(Deleted::Absent);
    }
    let names: Vec<String> = nodes.iter().map(|node| format!("{:?}", node.cookie)).collect();
    Err(Error::precondition(format!(
        "it is published to {}: unpublish it with ControllerUnpublishVolume first",
        names.join(", ")
    )))
}
