//! Sweeping up after a crash: copies that nobody finishes, volumes retained for snapshots that are gone,
//! deleted volumes that wait in the trash. Only images with names that cephlet gives are touched.

use std::time::SystemTime;

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::parent::check_unknown_parent_later;
use crate::backend::rbd::image::remove::remove_retained;
use crate::backend::rbd::image::rename::remove_copy;
use crate::backend::rbd::image::trash::schedule_purge;
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::parents::purge_if_childless;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, ListedImage, Removed, Trashed};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::jobs::try_each;

/// What became of something that a copy left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// It is gone, or none of ours.
    Done,
    /// The copy is being made now.
    BeingMade,
}

/// Has the clusters swept, in the background: a cluster that is down keeps nothing from starting.
pub(crate) fn sweep_later(context: &Context) {
    for cluster in context.clusters.all().iter().filter(|cluster| cluster.credentials.is_some()) {
        context.jobs.add_now(Job::Sweep { cluster: cluster.name.clone() });
        let job = Job::CheckParents { cluster: cluster.name.clone() };
        context.jobs.add(context.timing.parents_interval, job);
    }
}

/// Sweeps every pool of a cluster.
pub(crate) fn sweep_cluster(context: &Context, call: &Call, name: &str) -> Result<()> {
    in_every_pool(context, call, name, sweep_pool)
}

/// Does something in every pool of a cluster; one that fails keeps it from no other.
pub(crate) fn in_every_pool(
    context: &Context,
    call: &Call,
    name: &str,
    work: impl Fn(&Pool<'_>) -> Result<()>,
) -> Result<()> {
    // It, or its credentials, may have been taken away since.
    let cluster = context.clusters.find(name)?.filter(|cluster| cluster.credentials.is_some());
    let Some(cluster) = cluster else { return Ok(()) };
    let pools = context.memory.locations.of_cluster(&context.question(call), &cluster)?;
    try_each(pools, |at| {
        work(&context.pool(call, &at))
            .map_err(|error| error.context(format_args!("sweep pool {:?}", at.pool)))
    })
}

/// Goes through one pool; what fails keeps nothing else from being swept.
pub(crate) fn sweep_pool(pool: &Pool<'_>) -> Result<()> {
    let images = pool.list()?;
    let swept = try_each(&images, |image| sweep_image(pool, image));
    // What was killed while it was made or removed is in no list but this, and only its name leads to the rest
    // of it.
    let names = pool.names()?;
    let is_ours = |name: &&String| names::tag_of_temporary(name) == Some(pool.tag());
    let unlisted =
        names.iter().filter(is_ours).filter(|name| !images.iter().any(|image| image.name == **name));
    let removed = try_each(unlisted, |name| remove_unfinished(pool, name).map(drop));
    let trash = pool.trash()?;
    let deleted = trash.iter().filter(|it| names::is_ours(&it.name));
    let purged = try_each(deleted, |image| sweep_trashed(pool, image));
    try_each([swept, removed, purged], |outcome| outcome)
}

fn sweep_trashed(pool: &Pool<'_>, image: &Trashed) -> Result<()> {
    if image.by_clones {
        return purge_if_childless(pool, &image.id).map(drop);
    }
    log::info!("{}: purging deleted image {} ({})", pool.at, image.name, image.id);
    let parent = pool.info(ImageRef::Id(&image.id))?.and_then(|info| info.parent);
    schedule_purge(pool, &image.id, &image.name, parent.as_ref()).map(drop)
}

fn sweep_image(pool: &Pool<'_>, image: &ListedImage) -> Result<()> {
    let mut kept = image.snapshots.len();
    for (snapshot, _) in &image.snapshots {
        if let Some(temporary) = names::temporary_from(snapshot, pool.tag()) {
            let swept = remove_transient(pool, &image.id, snapshot, &temporary)?;
            kept -= usize::from(swept == Swept::Done);
        }
    }
    if let Some(id) = names::id_of_retained(&image.name) {
        return if kept == 0 { remove_retained(pool, id) } else { Ok(()) };
    }
    match names::tag_of_temporary(&image.name) {
        Some(tag) if tag == pool.tag() || is_abandoned(pool, &image.name)? => {
            remove_unfinished(pool, &image.name).map(drop)
        }
        _ => Ok(()),
    }
}

/// Removes the snapshot that a killed copy of ours was made from, if nobody makes that copy now.
fn remove_transient(pool: &Pool<'_>, image: &str, snapshot: &str, temporary: &str) -> Result<Swept> {
    let Some(_working) = pool.context.in_progress.try_begin(temporary) else { return Ok(Swept::BeingMade) };
    pool.remove_snapshot(ImageRef::Id(image), snapshot)?;
    Ok(Swept::Done)
}

/// Whether a copy of another controller is too old to be in the making.
fn is_abandoned(pool: &Pool<'_>, name: &str) -> Result<bool> {
    let info = pool.info(ImageRef::Name(name))?;
    let age = info.and_then(|info| SystemTime::now().duration_since(info.created).ok());
    Ok(age.is_some_and(|age| age > pool.timing().abandoned_copy))
}

/// Removes what is left of a copy that nobody is making. Each removal that was killed may have left an image
/// that goes by this name in the trash, unseen, and a removal takes away one of them.
pub(crate) fn remove_unfinished(pool: &Pool<'_>, name: &str) -> Result<Swept> {
    let Some(_working) = pool.context.in_progress.try_begin(name) else { return Ok(Swept::BeingMade) };
    loop {
        match remove_copy(pool, name)? {
            Removed::Gone => log::info!("{}: removed {name}, a copy that was never finished", pool.at),
            Removed::Absent => {
                // `rbd rm` may say so of what it has just removed, and has let go of the parent all the same.
                check_unknown_parent_later(pool);
                return Ok(Swept::Done);
            }
            Removed::Watched => {
                return Err(Error::unavailable(format!("image {name:?} is still in use")));
            }
            Removed::HasSnapshots => {
                log::warn!(
                    "{}: {name}, a copy never finished, has snapshots: look at it, remove it",
                    pool.at
                );
                return Ok(Swept::Done);
            }
        }
    }
}
