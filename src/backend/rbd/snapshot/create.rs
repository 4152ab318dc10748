//! Taking a snapshot.
//!
//! A snapshot's name is unique in its image only, but a request's name is to be unique everywhere. So the
//! request's name is [claimed](crate::backend::ceph::claim) before the snapshot is taken, for one image and
//! one snapshot, whose name is drawn. A repeated request finds that snapshot, and an ID never means a later
//! one.

use crate::backend::ceph::claim::{Claim, Description, Name, Share};
use crate::backend::creation_record::Placed;
use crate::backend::rbd::context::Pool;
use crate::backend::rbd::image::find::existing_volume;
use crate::backend::rbd::mirror::role::refuse_secondary;
use crate::backend::rbd::names::{self, drawn_is_taken};
use crate::backend::rbd::snapshot::find::{find_in, topology};
use crate::backend::rbd::snapshot::limit::refuse_full;
use crate::backend::rbd::tool::{ImageInfo, ImageRef, Made, SnapshotInfo};
use crate::backend::{NewSnapshot, Snapshot};
use crate::error::{Error, Result};
use crate::ids::{self, SnapshotId, VolumeId};

/// How many times to claim a name that others claim and give back meanwhile.
const ATTEMPTS: usize = 4;

/// A snapshot that a name stands for.
type Taken = (SnapshotId, SnapshotInfo);

/// What the claim of a snapshot's name says: `IMAGE@SNAPSHOT`.
pub(crate) fn claimed_as(id: &SnapshotId) -> String {
    format!("{}@{}", id.source, names::snapshot(&id.snapshot))
}

/// The claimed snapshot, with the place and volume of `like`; None for a claim of another form.
fn claimed_by(claim: &Claim, like: &SnapshotId) -> Option<SnapshotId> {
    let (source, snapshot) = claim.of.split_once('@')?;
    let (source, snapshot) = (source.to_string(), names::in_snapshot(snapshot)?.to_string());
    Some(SnapshotId { source, snapshot, ..like.clone() })
}

/// Takes the snapshot, or finds the one taken by the same request.
pub(crate) fn create(pool: &Pool<'_>, new: &NewSnapshot) -> Result<Snapshot> {
    let image = existing_volume(pool, &new.source)?;
    let (id, info) = match find_if_known(pool, new, &image)? {
        Some(known) => known,
        None => {
            refuse_secondary(&new.source, &image, "snapshotted")?;
            let taken = find_or_take(pool, new, &image);
            taken.map_err(|error| error.context(format_args!("take snapshot {:?}", new.name)))?
        }
    };
    pool.memory().snapshots.remember(&id.source, &id.snapshot, &info);
    pool.memory().snapshots.remember_taken(&id, &new.name);
    let topology = topology(pool, &new.source, &image.id)?;
    let incarnation = new.source.incarnation.clone().or(Some(image.id));
    let source = VolumeId { incarnation, ..new.source.clone() };
    Ok(Snapshot { id, source, size: info.size, created: info.created, topology })
}

/// The ID of a snapshot of this image.
fn id_of(new: &NewSnapshot, image: &ImageInfo, snapshot: String) -> SnapshotId {
    let (place, object) = (new.source.place.clone(), Some(new.source.object.clone()));
    SnapshotId { place, object, source: image.id.clone(), snapshot }
}

/// Looks for a snapshot that this daemon remembers.
fn find_if_known(pool: &Pool<'_>, new: &NewSnapshot, image: &ImageInfo) -> Result<Option<Taken>> {
    let Some(snapshot) = pool.memory().snapshots.taken(&image.id, &new.name) else { return Ok(None) };
    let id = id_of(new, image, snapshot);
    Ok(find_in(pool, &id)?.map(|info| (id, info)))
}

/// Claims the name and takes the snapshot, or finds the one that the name stands for.
fn find_or_take(pool: &Pool<'_>, new: &NewSnapshot, image: &ImageInfo) -> Result<Taken> {
    let name = pool.snapshot_name(&new.key);
    let description = Description::new(&new.name, Placed::default());
    for _ in 0..ATTEMPTS {
        let drawn = id_of(new, image, format!("{}-{}", new.key, ids::draw()?));
        drawn.fits()?;
        if let Some(share) = name.claim(&claimed_as(&drawn), &description)? {
            match take(pool, new, image, &drawn, (&name, &share)) {
                Ok(Some(info)) => return Ok((drawn, info)),
                Ok(None) => {}
                Err(error) => return Err(name.give_back_after(&share, error, || Ok(true))),
            }
        }
        let Some(claim) = name.find()? else { continue };
        if claim.description.name != new.name {
            return Err(Error::already_exists(format!(
                "the snapshot named {:?} has the key {} that {:?} would have: choose another name",
                claim.description.name, new.key, new.name
            )));
        }
        let claimed = claimed_by(&claim, &drawn).ok_or_else(|| {
            Error::internal(format!("its name is claimed for {:?}; {}", claim.of, name.how_to_free()))
        })?;
        match name.await_maker(&claim, || find_in(pool, &claimed))? {
            Some(info) if claimed.source == drawn.source => return Ok((claimed, info)),
            Some(_) => return Err(of_another(pool, new, image, &claimed)),
            None => {}
        }
    }
    Err(Error::unavailable("other controllers claim and release its name: try again"))
}

fn of_another(pool: &Pool<'_>, new: &NewSnapshot, image: &ImageInfo, there: &SnapshotId) -> Error {
    let source =
        pool.info(ImageRef::Id(&there.source)).ok().flatten().map(|info| info.name).unwrap_or_default();
    Error::already_exists(format!(
        "a snapshot named {:?} exists already, but its source is image {source} ({}), not image {} ({}): choose \
         another name",
        new.name, there.source, image.name, image.id
    ))
}

/// Takes the snapshot for which the name is claimed; None if that took so long that the name stands for
/// another by now. A caller may know of this one, so it stays.
fn take(
    pool: &Pool<'_>,
    new: &NewSnapshot,
    image: &ImageInfo,
    drawn: &SnapshotId,
    (name, share): (&Name<'_>, &Share),
) -> Result<Option<SnapshotInfo>> {
    refuse_full(pool, image)?;
    let snapshot = names::snapshot(&drawn.snapshot);
    match pool.create_snapshot(&image.name, &snapshot)? {
        Some(Made::New) => {}
        Some(Made::Taken) => return Err(drawn_is_taken(&snapshot)),
        None => return Err(Error::not_found(format!("volume {} was deleted meanwhile", new.source))),
    }
    if !name.confirm(share)? {
        log::warn!(
            "{}: snapshot {snapshot} of image {} took so long that its name was claimed for another: if nobody \
             uses it, delete {drawn}",
            pool.at,
            image.name
        );
        return Ok(None);
    }
    let taken = find_in(pool, drawn)?;
    taken.map(Some).ok_or_else(|| Error::unavailable("it was deleted again meanwhile: try again"))
}
