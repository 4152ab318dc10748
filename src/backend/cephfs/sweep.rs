//! Sweeping up after a crash, at the start and every hour: what the index says is *deleted* is removed, and
//! what has been *making* for a day. A volume whose subvolume was removed by hand leaves the index.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::backend::ceph::ClusterAccess;
use crate::backend::cephfs::context::{Context, Fs};
use crate::backend::cephfs::copy;
use crate::backend::cephfs::delete::{finish, remove_unused};
use crate::backend::cephfs::index::{Entry, State};
use crate::clusters::Cluster;
use crate::dispatch::Call;
use crate::error::Result;
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
            if let Err(error) = sweep(&context, call, cluster) {
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
    let access = ClusterAccess::new(cluster, &Secrets::default())?;
    try_each(context.file_systems(call, &access)?.iter(), |file_system| {
        let root = context.at(call, access.clone(), file_system.clone(), "");
        try_each(root.index().all()?, |(path, entry)| match path.split_once('/') {
            Some((group, object)) => sweep_entry(&root.in_group(group), object, &entry),
            None => Ok(()),
        })
    })
}

fn sweep_entry(fs: &Fs<'_>, object: &str, entry: &Entry) -> Result<()> {
    match entry.state {
        State::Deleted => finish(fs, object),
        State::Making if entry.age() < fs.context.timing.abandoned => Ok(()),
        State::Making if entry.copy_of.is_some() => {
            copy::remove_begun(fs, object, entry)?;
            fs.index().remove(&fs.path(object))
        }
        State::Making => remove_unused(fs, object, entry),
        State::Whole => copy::tidy(fs, object, entry),
    }
}
