//! Taking a snapshot.

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::names;
use crate::backend::rbd::snapshot::find::find_in;
use crate::backend::rbd::snapshot::limit;
use crate::backend::rbd::snapshot::name_lock::{self, Claimed, NameClaim};
use crate::backend::rbd::tool::{ImageInfo, ImageRef, LockTarget, Made, SnapshotInfo};
use crate::backend::{NewSnapshot, Snapshot};
use crate::clock;
use crate::dispatch::Call;
use crate::error::{Error, Kind, Result};
use crate::ids::{SnapshotId, VolumeId};

/// Takes the snapshot, or finds the one taken by the same request.
pub(crate) fn create(context: &Context, call: &Call, new: &NewSnapshot) -> Result<Snapshot> {
    let at = context.locate(&new.source.place, &new.secrets)?;
    let pool = context.pool(call, &at);
    let image = existing_volume(&pool, &new.source)?;
    let id = SnapshotId {
        place: new.source.place.clone(),
        source: image.id.clone(),
        snapshot: new.digits.clone(),
        incarnation: None,
    };
    SnapshotId { incarnation: Some(u64::MAX.to_string()), ..id.clone() }.fits()?;
    let info = match find_if_known(&pool, &id, &new.name)? {
        Some(info) => info,
        None => {
            refuse_secondary(&new.source, &image, "snapshotted")?;
            // One that is there already is the answer.
            if limit::is_full(&image) && find_in(&pool, &id)?.is_none() {
                return Err(limit::full(&pool, &image).context(format_args!("take snapshot {:?}", new.name)));
            }
            let taken = take_claimed(&pool, new, &image, &id);
            taken.map_err(|error| error.context(format_args!("take snapshot {:?}", new.name)))?
        }
    };
    context.memory.snapshots.remember(&id.source, &id.snapshot, &info, Some(&new.name));
    let id = SnapshotId { incarnation: Some(info.id.to_string()), ..id };
    let incarnation = new.source.incarnation.clone().or(Some(image.id));
    let source = VolumeId { incarnation, ..new.source.clone() };
    Ok(Snapshot { id, source, size: info.size, created: info.created })
}

/// A look at what was there a while ago.
fn find_if_known(pool: &Pool<'_>, id: &SnapshotId, name: &str) -> Result<Option<SnapshotInfo>> {
    let known = pool.memory().snapshots.get(id);
    match known.is_some_and(|known| known.name.as_deref() == Some(name)) {
        true => find_in(pool, id),
        false => Ok(None),
    }
}

/// Claims the name and takes the snapshot, or finds the one of the same request.
fn take_claimed(
    pool: &Pool<'_>,
    new: &NewSnapshot,
    image: &ImageInfo,
    id: &SnapshotId,
) -> Result<SnapshotInfo> {
    let claim = NameClaim { digits: &new.digits, name: &new.name, image: &image.id, object: &image.name };
    let since = clock::since_boot();
    let claimed = name_lock::claim(pool, &claim)?;
    if let Claimed::Before(_) = claimed
        && let Some(info) = find_in(pool, id)?
    {
        return Ok(info);
    }
    let made = pool.create_snapshot(&image.name, &names::snapshot(&new.digits))?;
    match (&made, &claimed) {
        (None, _) => {
            let owner = name_lock::owner(pool, &new.digits, &image.id)?;
            // Another controller's, that was taken before the image was renamed.
            if find_in(pool, id)?.is_none() {
                name_lock::release_left_over(pool, &new.digits, &image.id, &owner)?;
            }
            return Err(Error::not_found(format!("volume {} was deleted at this moment", new.source)));
        }
        (Some(Made::New), Claimed::Before(holder)) => {
            // It may be released at this moment, by one who deleted the former snapshot of this name.
            pool.unlock(LockTarget::SnapshotName(&new.digits), holder)?;
            claim_again(pool, &claim, Made::New)?;
        }
        // After a long time another controller may have thought our claim dead.
        (Some(made), _) if name_lock::may_be_lost(pool, since) => claim_again(pool, &claim, *made)?,
        _ => {}
    }
    find_in(pool, id)?
        .ok_or_else(|| Error::unavailable("it was deleted by others at the moment it was taken: try again"))
}

/// Claims the name of a snapshot that was taken. One whose name another image's has by now is none.
fn claim_again(pool: &Pool<'_>, claim: &NameClaim<'_>, made: Made) -> Result<()> {
    let taken = match name_lock::claim(pool, claim) {
        Err(error) if error.kind() == Kind::AlreadyExists => error,
        claimed => return claimed.map(drop),
    };
    if made == Made::New {
        pool.remove_snapshot(ImageRef::Id(claim.image), &names::snapshot(claim.digits))?;
    }
    Err(Error::unavailable(format!("another controller took its name meanwhile, try again: {taken}")))
}
