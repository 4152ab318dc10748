//! Sweeping up after a crash, at the start and every hour: what the index says is *deleted* is removed, and
//! what has been *making* for a day without a claim. An entry *making* with a claim becomes *whole*, and a
//! whole copy loses its transient snapshot. A volume or a snapshot that was removed by hand leaves the index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::ceph::ClusterAccess;
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::cephfs::snapshot;
use crate::backend::cephfs::volumes::delete::{finish, remove_unused};
use crate::backend::cephfs::volumes::{copy, share};
use crate::clusters::Cluster;
use crate::dispatch::Call;
use crate::error::Result;
use crate::ids;
use crate::jobs::{JobQueue, Requeue, try_each};
use crate::secrets::Secrets;

/// Sweeps the clusters in the background, so a cluster that is down does not delay the start.
pub(crate) fn sweep_later(context: &Arc<Context>, queue: &JobQueue) {
    // The queue must not keep the context alive.
    let weak: Weak<Context> = Arc::downgrade(context);
    queue.add("CephFS", "sweep the file systems".to_string(), Duration::ZERO, move |call| {
        let Some(context) = weak.upgrade() else { return Ok(Requeue::Never) };
        for cluster in context.clusters.all().into_iter().filter(|cluster| cluster.credentials.is_some()) {
            let name = cluster.name.clone();
            if let Err(error) = sweep(&context, call, cluster)
                && !call.progress().expired()
            {
                let seconds = context.timing.sweep_interval.as_secs();
                log::warn!(
                    "sweep the file systems of cluster {name:?}: {error}; the next sweep is in {seconds} s"
                );
            }
        }
        Ok(Requeue::After(context.timing.sweep_interval))
    });
}

/// Sweeps the file systems of a cluster.
pub(crate) fn sweep(context: &Context, call: &Call, cluster: Arc<Cluster>) -> Result<()> {
    let (name, access) = (cluster.name.clone(), ClusterAccess::new(cluster, &Secrets::default())?);
    try_each(context.roots(call, &access)?, |root| {
        let mut groups: BTreeMap<String, Vec<(String, Entry)>> = BTreeMap::new();
        for (group, object, entry) in root.index().all()? {
            groups.entry(group).or_default().push((object, entry));
        }
        try_each(groups, |(group, entries)| sweep_group(&root.in_group(&group), &entries))
    })?;
    log::debug!("cluster {name:?}: its file systems are swept");
    Ok(())
}

/// Sweeps a group. The manager is asked for its subvolumes after the index was read, so a volume that is made
/// meanwhile is not taken for one that is gone.
fn sweep_group(fs: &Fs<'_>, entries: &[(String, Entry)]) -> Result<()> {
    let subvolumes = fs.subvolumes().names()?;
    let mut of_each: BTreeMap<&str, Vec<&(String, Entry)>> = BTreeMap::new();
    for entry in entries {
        of_each.entry(split(&entry.0).0).or_default().push(entry);
    }
    try_each(of_each, |(subvolume, entries)| {
        let present = match subvolumes.contains(subvolume) {
            true => present(fs, subvolume, &entries)?,
            false => BTreeSet::new(),
        };
        try_each(entries, |(object, entry)| sweep_entry(fs, object, entry, &present))
    })
}

/// `SUBVOLUME` and `SNAPSHOT` in `SUBVOLUME[@SNAPSHOT]`.
fn split(object: &str) -> (&str, Option<&str>) {
    object.split_once('@').map_or((object, None), |(subvolume, taken)| (subvolume, Some(taken)))
}

/// What there is of a listed subvolume: itself, and its snapshots. Without snapshots it is not retained for
/// them, so only one that has entries of snapshots is looked at.
fn present(fs: &Fs<'_>, subvolume: &str, entries: &[&(String, Entry)]) -> Result<BTreeSet<String>> {
    let itself = BTreeSet::from([subvolume.to_string()]);
    if !entries.iter().any(|(object, _)| split(object).1.is_some()) {
        return Ok(itself);
    }
    let taken = fs.subvolumes().snapshots(subvolume)?.into_iter().map(|taken| format!("{subvolume}@{taken}"));
    let is_retained = fs.subvolumes().is_retained(subvolume)?;
    Ok(itself.into_iter().filter(|_| !is_retained).chain(taken).collect())
}

fn sweep_entry(fs: &Fs<'_>, object: &str, entry: &Entry, present: &BTreeSet<String>) -> Result<()> {
    let (subvolume, taken) = split(object);
    match entry.state {
        State::Deleted if let Some(taken) = taken => snapshot::finish(fs, subvolume, taken),
        State::Making if !entry.is_abandoned(fs.context.timing.abandoned) => Ok(()),
        State::Making if let Some(taken) = taken => snapshot::remove_unfinished(fs, subvolume, taken),
        State::Making => remove_unfinished(fs, object),
        State::Whole if let Some(of) = &entry.shares => match share::is_there(fs, of)? {
            true => Ok(()),
            false => forget(fs, object),
        },
        State::Whole if !present.contains(object) => forget(fs, object),
        State::Deleted => finish(fs, object, entry),
        State::Whole => copy::tidy(fs, object, entry),
    }
}

/// Removes what a volume was to become, unless a request has taken it over since the index was read. Its name
/// is claimed last: if that stands for it, nothing is missing but its state.
fn remove_unfinished(fs: &Fs<'_>, object: &str) -> Result<()> {
    let (path, tag) = (fs.path(object), &fs.context.identity.tag);
    let is_abandoned = |entry: &Entry| entry.is_abandoned(fs.context.timing.abandoned);
    let Some(entry) = fs.index().get(&path)?.filter(is_abandoned) else { return Ok(()) };
    let key = ids::undrawn(object).and_then(ids::volume_key);
    let claim = key.map_or(Ok(None), |key| fs.name(key).find())?;
    if claim.is_some_and(|claim| claim.of == path) {
        return fs.index().set(&path, &entry.become_state(State::Whole, tag));
    }
    if entry.copy_of.is_some() {
        copy::remove_begun(fs, object, &entry)?;
        return fs.index().remove(&path);
    }
    remove_unused(fs, object, &entry)
}

/// Removes the entry of a volume or a snapshot that was removed by hand. Only the entry: should it exist
/// after all, its ID means it as before.
fn forget(fs: &Fs<'_>, object: &str) -> Result<()> {
    let path = fs.path(object);
    let is_there = || match split(object) {
        (subvolume, Some(taken)) => fs.subvolumes().has_snapshot(subvolume, taken),
        (subvolume, None) => fs.subvolumes().info(subvolume).map(|present| present.is_some()),
    };
    let is_listed = fs.index().get(&path)?.is_some_and(|entry| entry.state == State::Whole);
    if !is_listed || is_there()? {
        return Ok(());
    }
    log::warn!("{path} leaves the lists: it was removed by hand");
    fs.index().remove(&path)
}
