//! Sweeping up after a crash: unfinished copies, and deleted volumes that nothing needs any more. The sweep
//! touches only images whose names cephlet gives and never uses again. A volume's name is used again, so an
//! image with such a name stays, in the trash as well: a deletion that was killed is in the journal.

use std::time::{Duration, SystemTime};

use crate::backend::ceph::names::tag_of_transient;
use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::rename::{remove_copy, settle_rename};
use crate::backend::rbd::image::retained_checks::{check_retained_in, check_retained_later};
use crate::backend::rbd::jobs::{CopiedVolume, Job};
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, Removed, Trashed};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::jobs::{RETRY, Requeue, try_each};

/// Sweeps the clusters in the background, so a cluster that is down does not delay the start.
pub(crate) fn sweep_later(context: &Context) {
    for cluster in own_clusters(context) {
        context.jobs.add_now(Job::Sweep { cluster });
    }
    context.jobs.add(context.timing.sweep_interval, Job::CheckClusters);
}

/// The names of the clusters with credentials of their own. The others get no background work.
pub(crate) fn own_clusters(context: &Context) -> Vec<String> {
    let own = context.clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some());
    own.map(|cluster| cluster.name.clone()).collect()
}

/// Sweeps every pool of a cluster.
pub(crate) fn sweep_cluster(context: &Context, call: &Call, name: &str) -> Result<()> {
    in_every_pool(context, call, name, sweep_pool)
}

/// Runs `work` in every pool of a cluster. A failure in one pool does not stop the others.
pub(crate) fn in_every_pool(
    context: &Context,
    call: &Call,
    name: &str,
    work: impl Fn(&Pool<'_>) -> Result<()>,
) -> Result<()> {
    // The cluster, or its credentials, may have been removed from the configuration since.
    let cluster = context.clusters.find(name)?.filter(|cluster| cluster.credentials.is_some());
    let Some(cluster) = cluster else { return Ok(()) };
    let pools = context.memory.locations.of_cluster(&context.question(call), &cluster)?;
    try_each(pools, |at| {
        work(&context.pool(call, &at))
            .map_err(|error| error.context(format_args!("sweep pool {:?}", at.pool)))
    })
}

/// Sweeps one pool after a start. If one part fails, the other is swept all the same.
pub(crate) fn sweep_pool(pool: &Pool<'_>) -> Result<()> {
    try_each([sweep_transient(pool), remove_leftovers(pool)], |swept| swept)
}

/// Looks through one pool for new leftovers, by the names of its images and its trash. It opens only images
/// that may be leftovers. What cannot be removed at once becomes a job of its own.
pub(crate) fn remove_leftovers(pool: &Pool<'_>) -> Result<()> {
    try_each([sweep_names(pool), sweep_trash(pool)], |swept| swept)
}

/// After a killed creation or removal, an image may have only its listed name, which may open no image. The
/// name that a killed rename left may not even be listed, but then the rename is on record.
fn sweep_names(pool: &Pool<'_>) -> Result<()> {
    let place = pool.place();
    pool.context.renames.begun(&place).iter().for_each(|it| remove_unfinished_or_later(pool, &it.from));
    let names = pool.names().inspect_err(|error| pool.memory().locations.forget_unlisted(&place, error))?;
    try_each(&names, |name| {
        if let Some(image) = names::id_of_retained(name) {
            check_retained_in(pool, image, Duration::ZERO);
        } else if let Some(tag) = names::tag_of_temporary(name)
            && (tag == pool.tag() || is_abandoned(pool, name)?)
        {
            remove_unfinished_or_later(pool, name);
        }
        Ok(())
    })
}

/// In a pool that moves removed images to the trash, a killed removal leaves the image there.
fn sweep_trash(pool: &Pool<'_>) -> Result<()> {
    try_each(pool.trash()?, |Trashed { name, id }| {
        if names::id_of_retained(&name) == Some(&id) {
            check_retained_in(pool, &id, Duration::ZERO);
        } else if names::tag_of_temporary(&name).is_some() {
            pool.purge(&id)?;
        }
        Ok(())
    })
}

/// Removes the snapshots that killed copies were made from. Only a list of all images shows them, and it
/// opens each image: too much for every look.
fn sweep_transient(pool: &Pool<'_>) -> Result<()> {
    let place = pool.place();
    let images = pool.list().inspect_err(|error| pool.memory().locations.forget_unlisted(&place, error))?;
    let transient =
        images.iter().flat_map(|image| image.snapshots.iter().map(move |it| (image, it.name.as_str())));
    try_each(transient, |(image, snapshot)| match tag_of_transient(snapshot) {
        None => Ok(()),
        Some(tag) if tag == pool.tag() => remove_own_transient(pool, &image.id, snapshot),
        Some(_) => remove_abandoned_transient(pool, &image.id, snapshot),
    })
}

/// Removes the snapshot of a killed copy of this controller, unless that copy is being made now.
fn remove_own_transient(pool: &Pool<'_>, image: &str, snapshot: &str) -> Result<()> {
    let temporary = names::temporary_from(snapshot);
    let Some(_working) = pool.try_lock_internal(&temporary)? else { return Ok(()) };
    pool.remove_snapshot(ImageRef::Id(image), snapshot).map(drop)
}

/// Removes the snapshot from which another controller made a copy, if it is too old for a copy in progress.
fn remove_abandoned_transient(pool: &Pool<'_>, image: &str, snapshot: &str) -> Result<()> {
    let snapshots = pool.snapshots(ImageRef::Id(image))?.unwrap_or_default();
    let taken = snapshots.iter().find(|it| it.name == snapshot && !it.trashed).map(|it| it.created);
    if taken.is_some_and(|taken| is_too_old_for_a_copy(pool, taken)) {
        pool.remove_snapshot(ImageRef::Id(image), snapshot)?;
    }
    Ok(())
}

fn remove_unfinished_or_later(pool: &Pool<'_>, name: &str) {
    if let Err(error) = remove_unfinished(pool, name, None) {
        log::warn!("{error}; it is tried again later");
        let job = Job::RemoveTemporary { at: pool.at.clone(), temporary: name.to_string(), source: None };
        pool.context.jobs.add(RETRY, job);
    }
}

/// Whether another controller's copy is too old to be in progress. A name that opens no image for a while was
/// left by a killed command.
fn is_abandoned(pool: &Pool<'_>, name: &str) -> Result<bool> {
    let (timing, what) = (pool.timing(), format!("another controller to make image {name}"));
    let look = || pool.info(ImageRef::Name(name));
    let found = pool.call.wait_for(what, timing.orphan_name_grace, timing.poll, look)?;
    Ok(found.is_none_or(|info| is_too_old_for_a_copy(pool, info.created)))
}

pub(crate) fn is_too_old_for_a_copy(pool: &Pool<'_>, made: SystemTime) -> bool {
    SystemTime::now().duration_since(made).is_ok_and(|age| age > pool.timing().abandoned_copy)
}

/// Removes the leftovers of a copy that is not being made. Each killed removal may have left an image of this
/// name in the trash, unseen, and one removal removes only one of these images. Returns when to look again:
/// never, unless the copy is being made now.
pub(crate) fn remove_unfinished(
    pool: &Pool<'_>,
    name: &str,
    source: Option<&CopiedVolume>,
) -> Result<Requeue> {
    let Some(_working) = pool.try_lock_internal(name)? else { return Ok(Requeue::After(RETRY)) };
    if let Some(CopiedVolume { at, image }) = source {
        let there = pool.other(at);
        there.remove_snapshot(ImageRef::Id(image), &names::transient(name))?;
        // The image may be retained by now, for this snapshot only.
        check_retained_later(&there, image);
    }
    let renames = pool.context.renames.begun(&pool.place());
    if let Some(rename) = renames.iter().find(|rename| rename.from == name)
        && !settle_rename(pool, rename)?
    {
        return Ok(Requeue::Never);
    }
    loop {
        match remove_copy(pool, name)? {
            Removed::Gone => log::info!("{}: removed {name}, a copy that was never finished", pool.at),
            Removed::Absent => return Ok(Requeue::Never),
            Removed::Watched => {
                return Err(Error::unavailable(format!("image {name:?} is still in use")));
            }
            Removed::HasSnapshots => {
                log::warn!(
                    "{}: {name}, a copy never finished, has snapshots: look at it, remove it",
                    pool.at
                );
                return Ok(Requeue::Never);
            }
        }
    }
}
