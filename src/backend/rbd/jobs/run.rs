//! Doing the jobs.

use crate::backend::rbd::context::Context;
use crate::backend::rbd::image::retain::{check_retained, remove_large};
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::sweep::{
    in_every_pool, own_clusters, remove_leftovers, remove_unfinished, sweep_cluster,
};
use crate::dispatch::Call;
use crate::error::Result;
use crate::jobs::Requeue;

/// Does a job.
pub(crate) fn run(context: &Context, call: &Call, job: &mut Job) -> Result<Requeue> {
    if let Some(at) = job.at() {
        // With the credentials that the cluster has now.
        match at.renewed(&context.clusters)? {
            Some(now) => *at = now,
            None => return Ok(Requeue::Never),
        }
        if context.pool(call, at).is_removed()? {
            return Ok(Requeue::Never);
        }
    }
    match job {
        Job::Sweep { cluster } => sweep_cluster(context, call, cluster)?,
        Job::RemoveTemporary { at, temporary, source } => {
            return remove_unfinished(&context.pool(call, at), temporary, source.as_ref());
        }
        Job::Retained { at, image } => check_retained(&context.pool(call, at), image)?,
        Job::RemoveLarge { at, image } => remove_large(&context.pool(call, at), image)?,
        Job::CheckLeftovers { cluster } => check_leftovers(context, call, cluster),
        Job::CheckClusters => {
            for cluster in own_clusters(context) {
                context.jobs.add_now(Job::CheckLeftovers { cluster });
            }
            return Ok(Requeue::After(context.timing.sweep_interval));
        }
    }
    Ok(Requeue::Never)
}

/// Looks for leftovers in a cluster. After a failure, the next look tries again.
fn check_leftovers(context: &Context, call: &Call, cluster: &str) {
    if let Err(error) = in_every_pool(context, call, cluster, remove_leftovers)
        && !call.progress().expired()
    {
        log::warn!("{error}; the next look is in {} s at most", context.timing.sweep_interval.as_secs());
    }
}
