//! Chains of clones, kept short. A clone reads what it does not have itself from its parent, and that one
//! from its own: each link costs time, and the kernel follows sixteen. A copy with more than [`MAX_PARENTS`]
//! is given all its data, one at a time in a cluster, in the background, and only while nobody has a right to
//! it or has it open: its writer would stall. What is killed in the middle is as it was.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::backend::ceph::PoolRef;
use crate::backend::rbd::context::{Context, ParentCount, Pool};
use crate::backend::rbd::image::object_map;
use crate::backend::rbd::image::parent::check_parent_later;
use crate::backend::rbd::jobs::FlattenCandidate;
use crate::backend::rbd::jobs::flatten_registry::FlattenGuard;
use crate::backend::rbd::tool::{ImageRef, LockTarget, Parent};
use crate::call::Call;
use crate::error::{Error, Result};
use crate::jobs::{RETRY, Requeue};

/// Bytes of a thread's stack.
const STACK: usize = 256 << 10;

/// So many parents an image may have, one behind the other.
const MAX_PARENTS: usize = 8;

/// What became of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Flattened {
    /// It has few parents, or none, or is gone.
    Settled,
    /// It is published, or being deleted, or somebody has it open.
    InUse,
}

/// Flattens a copy if it has too many parents.
pub(crate) fn flatten_if_deep(
    context: &Context,
    job: &Call,
    candidate: &mut FlattenCandidate,
) -> Result<Requeue> {
    let mut guard = context.flattens.begin(&candidate.id, context.timing.dead_client);
    let call = guard.call(job);
    let at = candidate.at.clone();
    let flattened = try_flatten(&context.pool(&call, &at), candidate, &mut guard);
    match flattened {
        Ok(Flattened::Settled) => Ok(Requeue::Never),
        Ok(Flattened::InUse) => Ok(Requeue::After(next_pause(context, candidate))),
        Err(_) if guard.is_preempted() => {
            log::info!("image {} of {} is needed: its flatten goes on later", candidate.id, candidate.at);
            Ok(Requeue::After(RETRY))
        }
        Err(error) => Err(error),
    }
}

/// The next pause, twice as long as the one before.
fn next_pause(context: &Context, candidate: &mut FlattenCandidate) -> Duration {
    let doubled = RETRY * 2u32.saturating_pow(candidate.found_in_use.min(16));
    candidate.found_in_use += 1;
    doubled.min(context.timing.longest_flatten_pause)
}

fn try_flatten(
    pool: &Pool<'_>,
    candidate: &mut FlattenCandidate,
    guard: &mut FlattenGuard<'_>,
) -> Result<Flattened> {
    let parents = match known_parents(pool, candidate) {
        Some(parents) => parents,
        None => count_parents(pool, candidate)?,
    };
    if parents <= MAX_PARENTS {
        return Ok(Flattened::Settled);
    }
    if !pool.holders(LockTarget::Header(&candidate.id))?.is_empty() {
        return Ok(Flattened::InUse);
    }
    // By its name of today.
    let Some(info) = pool.info(ImageRef::Id(&candidate.id))? else { return Ok(Flattened::Settled) };
    match pool.watchers(&info.name)? {
        None => return Ok(Flattened::Settled),
        Some(watchers) if !watchers.is_empty() => return Ok(Flattened::InUse),
        Some(_) => {}
    }
    log::info!("image {} of {} has {parents} parents: it is flattened", info.name, pool.at);
    let map_features = candidate.map_features.get_or_insert_with(|| object_map::features(&info));
    object_map::invalidate(pool, &info, map_features)?;
    guard.closed = false;
    while_unlocked(pool, &candidate.id, guard, || pool.flatten(&info.name))?;
    log::info!("image {} of {} has no parents any more", info.name, pool.at);
    check_parent_later(pool, info.parent.as_ref());
    match object_map::rebuild(pool, &info.name, map_features) {
        Ok(()) => guard.closed = true,
        Err(error) => log::warn!("{error}; it is not relied on until `rbd object-map rebuild`"),
    }
    let flat = ParentCount { most: 0, counted: Instant::now() };
    pool.memory().parent_counts.remember(candidate.id.clone(), flat);
    Ok(Flattened::Settled)
}

/// Does something that ends when somebody takes a lock on the image, as whoever publishes or deletes it does
/// first.
fn while_unlocked<T>(
    pool: &Pool<'_>,
    image: &str,
    guard: &FlattenGuard<'_>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (running, ended) = mpsc::channel::<()>();
    let look = move || {
        while ended.recv_timeout(pool.timing().flatten_look) == Err(RecvTimeoutError::Timeout) {
            if pool.holders(LockTarget::Header(image)).is_ok_and(|holders| !holders.is_empty()) {
                return guard.preempt();
            }
        }
    };
    thread::scope(|scope| {
        let looks = thread::Builder::new().name("flatten".into()).stack_size(STACK).spawn_scoped(scope, look);
        looks.map_err(|error| Error::io("start the thread that looks who needs an image", &error))?;
        let outcome = work();
        drop(running);
        outcome
    })
}

/// How many parents a copy has, if that is known of its parent.
fn known_parents(pool: &Pool<'_>, candidate: &FlattenCandidate) -> Option<usize> {
    let counts = &pool.memory().parent_counts;
    let ParentCount { most, counted } = counts.get(candidate.parent.id.as_ref()?)?;
    let count = ParentCount { most: most + 1, counted };
    if count.most > MAX_PARENTS && counted.elapsed() > pool.timing().parent_count_valid {
        return None;
    }
    counts.remember(candidate.id.clone(), count);
    Some(count.most)
}

/// One process for each parent.
fn count_parents(pool: &Pool<'_>, candidate: &FlattenCandidate) -> Result<usize> {
    let mut chain = vec![candidate.id.clone()];
    let mut next = Some(candidate.parent.clone());
    while let Some(Parent { pool: name, namespace, id: Some(id), .. }) = next {
        let at = PoolRef { access: pool.at.access.clone(), pool: name, namespace };
        next = pool.other(&at).info(ImageRef::Id(&id))?.and_then(|info| info.parent);
        chain.push(id);
    }
    let parents = chain.len() - 1;
    let counted = Instant::now();
    for (most, id) in chain.into_iter().rev().enumerate() {
        pool.memory().parent_counts.remember(id, ParentCount { most, counted });
    }
    Ok(parents)
}
