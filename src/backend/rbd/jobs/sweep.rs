//! Sweeping up after a crash: unfinished copies, and deleted volumes that nothing needs any more. Only images
//! are touched whose names cephlet gives and never uses again. The name of a volume is used again, so an
//! image of such a name stays, in the trash as well: a deletion that was killed is in the journal.

use std::time::{Duration, SystemTime};

use crate::backend::rbd::context::{Context, Pool};
use crate::backend::rbd::image::internal;
use crate::backend::rbd::image::parent::{check_retained_in, check_retained_later};
use crate::backend::rbd::image::rename::{Settled, remove_copy, settle_rename};
use crate::backend::rbd::jobs::{CopiedVolume, Job};
use crate::backend::rbd::names;
use crate::backend::rbd::tool::{ImageRef, Removed, Trashed};
use crate::dispatch::Call;
use crate::error::{Error, Result};
use crate::jobs::{RETRY, try_each};

/// What became of something that a copy left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// It is gone.
    Done,
    /// The copy is being made now.
    BeingMade,
}

/// Has the clusters swept, in the background: a cluster that is down keeps nothing from starting.
pub(crate) fn sweep_later(context: &Context) {
    for cluster in own_clusters(context) {
        context.jobs.add_now(Job::Sweep { cluster });
    }
    context.jobs.add(context.timing.sweep_interval, Job::CheckClusters);
}

/// The clusters with credentials of their own, by name: nothing is done in the background in others.
pub(crate) fn own_clusters(context: &Context) -> Vec<String> {
    let own = context.clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some());
    own.map(|cluster| cluster.name.clone()).collect()
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

/// Goes through one pool after a start; what fails keeps nothing else from being swept.
pub(crate) fn sweep_pool(pool: &Pool<'_>) -> Result<()> {
    try_each([sweep_transient(pool), remove_leftovers(pool)], |swept| swept)
}

/// Looks through one pool for what was left since the last look, by its names and its trash: no image is
/// opened of which nothing was left. What cannot be removed at once is a job of its own.
pub(crate) fn remove_leftovers(pool: &Pool<'_>) -> Result<()> {
    try_each([sweep_names(pool), sweep_trash(pool)], |swept| swept)
}

/// An image whose creation or removal was killed is among the names only, and its name may open no image.
/// What a killed rename has left may not even be there, but then it is on record.
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

/// In a pool that moves to the trash what is removed a killed removal leaves the image there.
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

/// The snapshots that killed copies were made from. Only a list of all images shows them, which opens each:
/// too much for every look.
fn sweep_transient(pool: &Pool<'_>) -> Result<()> {
    let place = pool.place();
    let images = pool.list().inspect_err(|error| pool.memory().locations.forget_unlisted(&place, error))?;
    let transient =
        images.iter().flat_map(|image| image.snapshots.iter().map(move |it| (image, it.name.as_str())));
    try_each(transient, |(image, snapshot)| match names::tag_of_transient(snapshot) {
        None => Ok(()),
        Some(tag) if tag == pool.tag() => remove_own_transient(pool, &image.id, snapshot),
        Some(_) => remove_abandoned_transient(pool, &image.id, snapshot),
    })
}

/// Removes the snapshot that a killed copy of ours was made from, if nobody makes that copy now.
fn remove_own_transient(pool: &Pool<'_>, image: &str, snapshot: &str) -> Result<()> {
    let temporary = names::temporary_from(snapshot);
    let Some(_working) = internal::try_lock(pool, &temporary)? else { return Ok(()) };
    pool.remove_snapshot(ImageRef::Id(image), snapshot).map(drop)
}

/// Removes the snapshot that another controller made a copy from, if that is too long ago for it to go on.
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

/// Whether a copy of another controller is too old to be in the making. A killed command has left a name that
/// opens no image for long.
fn is_abandoned(pool: &Pool<'_>, name: &str) -> Result<bool> {
    let (timing, what) = (pool.timing(), format!("another controller to make image {name}"));
    let look = || pool.info(ImageRef::Name(name));
    let found = pool.call.wait_for(what, timing.orphan_name_grace, timing.poll, look)?;
    Ok(found.is_none_or(|info| is_too_old_for_a_copy(pool, info.created)))
}

fn is_too_old_for_a_copy(pool: &Pool<'_>, made: SystemTime) -> bool {
    SystemTime::now().duration_since(made).is_ok_and(|age| age > pool.timing().abandoned_copy)
}

/// Removes what is left of a copy that nobody is making. Each removal that was killed may have left an image
/// that goes by this name in the trash, unseen, and a removal takes away one of them.
pub(crate) fn remove_unfinished(pool: &Pool<'_>, name: &str, source: Option<&CopiedVolume>) -> Result<Swept> {
    let Some(_working) = internal::try_lock(pool, name)? else { return Ok(Swept::BeingMade) };
    if let Some(CopiedVolume { at, image }) = source {
        let there = pool.other(at);
        there.remove_snapshot(ImageRef::Id(image), &names::transient(name))?;
        // It may be retained by now, for this snapshot only.
        check_retained_later(&there, image);
    }
    let renames = pool.context.renames.begun(&pool.place());
    if let Some(rename) = renames.iter().find(|rename| rename.from == name)
        && settle_rename(pool, rename)? == Settled::NoName
    {
        return Ok(Swept::Done);
    }
    loop {
        match remove_copy(pool, name)? {
            Removed::Gone => log::info!("{}: removed {name}, a copy that was never finished", pool.at),
            Removed::Absent => return Ok(Swept::Done),
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
