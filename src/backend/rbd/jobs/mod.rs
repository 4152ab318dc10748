//! Background work: it removes deleted volumes, and leftovers of a crash. Each cluster has a lane of the
//! queue, and another one for large images, whose removal may take hours.
//!
//! The queue is in memory only. After a restart the sweep finds the lost jobs again, in the clusters with
//! credentials of their own.
//!
//! This module only describes the jobs. [`run`] does them, with all the operations below it.

pub(crate) mod examine;
pub(crate) mod run;
pub(crate) mod sweep;

use std::sync::Arc;
use std::time::Duration;

use crate::backend::ceph::PoolRef;
use crate::dispatch::Call;
use crate::error::Result;
use crate::jobs::{JobQueue, Requeue};

/// Something to do.
#[derive(Clone, Debug)]
pub(crate) enum Job {
    /// Look for what a crash left.
    Sweep { cluster: String },
    /// Remove the image of this id, if it is retained and nothing needs it any more.
    Retained { at: PoolRef, image: String },
    /// The same for a large image.
    RemoveLarge { at: PoolRef, image: String },
    /// Look for leftovers in a whole cluster, by the names of its images and its trash.
    CheckLeftovers { cluster: String },
    /// Add a `CheckLeftovers` job for every cluster, from time to time.
    CheckClusters,
    /// Remove a copy that was not finished, and the snapshot that it was made from, if that was taken for it.
    RemoveTemporary { at: PoolRef, temporary: String, source: Option<CopiedVolume> },
}

/// A volume that is copied by a transient snapshot.
#[derive(Clone, Debug)]
pub(crate) struct CopiedVolume {
    pub at: PoolRef,
    /// The id of its image.
    pub image: String,
}

/// Does a job; it may change the job for the next time.
pub(crate) type Runner = dyn Fn(&Call, &mut Job) -> Result<Requeue> + Send + Sync;

/// The jobs, and when they are due.
pub(crate) struct Jobs {
    pub queue: Arc<JobQueue>,
    pub runner: Arc<Runner>,
}

impl Jobs {
    /// Adds a job that is due after `pause`; if the same job waits already, it is due no later than that.
    pub fn add(&self, pause: Duration, mut job: Job) {
        let (runner, lane, name) = (Arc::clone(&self.runner), job.lane(), job.to_string());
        self.queue.add(&lane, name, pause, move |call| runner(call, &mut job));
    }

    /// Whether this job is being done, or waits and was not refused the last time.
    pub fn has(&self, job: &Job) -> bool {
        self.queue.has(&job.to_string())
    }

    /// Adds a job that is due now.
    pub fn add_now(&self, job: Job) {
        self.add(Duration::ZERO, job);
    }
}

impl Job {
    /// The pool of the job; None for a job about a whole cluster.
    pub fn at(&mut self) -> Option<&mut PoolRef> {
        match self {
            Self::Sweep { .. } | Self::CheckLeftovers { .. } | Self::CheckClusters => None,
            Self::Retained { at, .. } | Self::RemoveLarge { at, .. } | Self::RemoveTemporary { at, .. } => {
                Some(at)
            }
        }
    }

    fn lane(&self) -> String {
        match self {
            Self::RemoveLarge { .. } => format!("long work in {}", self.cluster()),
            _ => self.cluster().to_string(),
        }
    }

    fn cluster(&self) -> &str {
        match self {
            Self::Sweep { cluster } | Self::CheckLeftovers { cluster } => cluster,
            Self::CheckClusters => "all clusters",
            Self::Retained { at, .. } | Self::RemoveLarge { at, .. } | Self::RemoveTemporary { at, .. } => {
                &at.access.cluster.name
            }
        }
    }
}

impl std::fmt::Display for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sweep { cluster } => write!(f, "sweep cluster {cluster:?}"),
            Self::RemoveTemporary { at, temporary, source: None } => {
                write!(f, "remove image {temporary} of {at}")
            }
            // With a source it is a different job, as it does more.
            Self::RemoveTemporary { at, temporary, source: Some(CopiedVolume { image, .. }) } => {
                write!(f, "remove image {temporary} of {at}, and what it was copied from of image {image}")
            }
            Self::Retained { at, image } => {
                write!(f, "remove image {image} of {at}, if it is deleted and nothing needs it")
            }
            Self::RemoveLarge { at, image } => write!(f, "remove the large deleted image {image} of {at}"),
            Self::CheckLeftovers { cluster } => {
                write!(f, "look for what is left over in cluster {cluster:?}")
            }
            Self::CheckClusters => f.write_str("look for what is left over in every cluster"),
        }
    }
}
