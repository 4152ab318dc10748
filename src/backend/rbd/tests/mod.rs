//! What the tests of the RBD backend share: a cluster in memory and controllers of it.

#![allow(clippy::unwrap_used)]

mod claims;
mod copies;
mod credentials;
mod delete;
mod delete_crashes;
mod delete_races;
mod detach;
mod fence;
mod flatten;
mod graces;
mod inspect;
mod internal;
mod later_snapshots;
mod lists;
pub(crate) mod mapping;
mod mapping_lost;
mod mirror;
mod mirror_broken_off;
mod mirror_controllers;
mod mirror_in_use;
mod mirror_resync;
mod mirror_roles;
mod named;
mod options;
mod parents;
mod publish;
mod publish_races;
mod qos;
mod release;
mod retained;
mod second_names;
mod snapshots;
mod sweep;
mod topology;
mod unusable_pools;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Rbd;
use super::context::Identity;
use super::node::Mapper;
use super::timing::Timing;
use super::tool::fake::FakeCluster;
use crate::backend::{Backend, BegunRenames, NewSnapshot, NewVolume, Origin, Snapshot, Volume};
use crate::clusters::{Cluster, Clusters, Credentials};
use crate::csi::{Access, Capability, Map, Mode, SizeRange, Source};
use crate::dispatch::{Call, LockTable, ObjectLocks};
use crate::error::Result;
use crate::exec::fake::{FakeHelper, FakeRunner};
use crate::ids::{Place, VolumeId, snapshot_key, volume_object};
use crate::jobs::JobQueue;
use crate::journal::Journal;
use crate::journal::ram::RamDisk;
use crate::kernel::Kernel;
use crate::secrets::{Secret, Secrets};
use crate::sys::random::Machine;

pub(super) const GIB: u64 = 1 << 30;
/// Long enough for anything that should happen soon, on the slowest machine.
pub(super) const SOON: Duration = Duration::from_secs(300);
/// The plugin's name.
pub(super) const PLUGIN: &str = "org.test";
/// The tags of two controllers.
pub(crate) const ONE: &str = "0000aaaa";
pub(crate) const TWO: &str = "0000bbbb";

pub(crate) fn call() -> Call {
    Call::internal("test")
}

/// The node's side, which maps nothing.
pub(super) fn mapper() -> Mapper {
    let kernel = Kernel::new(Arc::new(FakeHelper::default()));
    Mapper::new(kernel, Arc::new(FakeRunner::default()), "/nonexistent/map-locks".into(), Default::default())
}

/// A controller of the cluster, just started: it remembers nothing.
pub(crate) fn controller(cluster: &FakeCluster, tag: &str) -> Rbd {
    controller_of(cluster, tag, &["ceph"])
}

/// A controller of one cluster that has several names.
pub(crate) fn controller_of(cluster: &FakeCluster, tag: &str, names: &[&str]) -> Rbd {
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let named = |name: &&str| Cluster { credentials: Some(credentials.clone()), ..Cluster::named(name) };
    with_timing(Clusters::of(names.iter().map(named)), cluster, tag, timing())
}

/// A controller of these clusters.
pub(crate) fn controller_with(clusters: &Arc<Clusters>, cluster: &FakeCluster, tag: &str) -> Rbd {
    with_timing(Arc::clone(clusters), cluster, tag, timing())
}

/// A controller with other pauses and graces.
pub(super) fn patient_controller(cluster: &FakeCluster, tag: &str, timing: Timing) -> Rbd {
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let named = Cluster { credentials: Some(credentials), ..Cluster::named("ceph") };
    with_timing(Clusters::of([named]), cluster, tag, timing)
}

/// A controller that waits only a moment for dead makers. On a slow machine it leaves empty objects of names
/// ([`without_free_names`]).
pub(super) fn impatient_controller(cluster: &FakeCluster, tag: &str) -> Rbd {
    let moment = Duration::from_millis(300);
    patient_controller(cluster, tag, Timing { claim_grace: moment, snapshot_claim_grace: moment, ..timing() })
}

fn with_timing(clusters: impl Into<Arc<Clusters>>, cluster: &FakeCluster, tag: &str, timing: Timing) -> Rbd {
    let who = (identity("node7", tag), true, timing);
    Rbd::new(clusters.into(), Arc::new(cluster.clone()), mapper(), who, background(cluster, tag))
}

/// What the controller with this tag has for its work in the background.
pub(super) fn background(
    cluster: &FakeCluster,
    tag: &str,
) -> (Arc<JobQueue>, Arc<dyn ObjectLocks>, Arc<dyn BegunRenames>) {
    (Arc::default(), locks(), renames(cluster, tag))
}

/// The journal of renames of the controller with this tag.
pub(super) fn renames(cluster: &FakeCluster, tag: &str) -> Arc<dyn BegunRenames> {
    let empty = || Journal::open(Arc::new(RamDisk::default()), |_| {}).unwrap();
    cluster.renames(tag, || Arc::new(empty()))
}

/// A node, on a machine of its name.
pub(super) fn identity(node: &str, tag: &str) -> Identity {
    let machine = Machine { id: format!("machine of {node}"), boot: format!("boot of {node}") };
    Identity { plugin: PLUGIN.into(), node: node.into(), machine, tag: tag.into() }
}

/// The controllers do not wait for others, as nothing else happens meanwhile.
pub(super) fn timing() -> Timing {
    let (nothing, short) = (Duration::ZERO, Duration::from_millis(1));
    Timing {
        poll: short,
        orphan_name_grace: nothing,
        claim_grace: Duration::from_secs(60),
        snapshot_claim_grace: Duration::from_secs(60),
        dead_client: 5 * short,
        dead_client_poll: short,
        command_watches: 2 * short,
        deletion_wait: 10 * short,
        removal_repeats: 5 * short,
        removal_pause: short,
        copy_goes_on: 5 * short,
        copy_stands_still: 5 * short,
        copy_look: short,
        role_change: 5 * short,
        ..Timing::default()
    }
}

/// A table of locks for calls and jobs.
pub(crate) fn locks() -> Arc<dyn ObjectLocks> {
    Arc::new(LockTable::<()>::new(64, Duration::from_millis(20), |()| false))
}

pub(super) fn place(pool: &str) -> Place {
    Place { backend: "rbd".into(), cluster: "ceph".into(), pool: pool.into(), namespace: String::new() }
}

/// A request for a volume of at least `required` bytes.
pub(crate) fn wanted(name: &str, required: u64, origin: Option<Origin>) -> NewVolume {
    let source = origin.map(|origin| match &origin {
        Origin::Snapshot(id) => (Source::Snapshot(id.to_string()), origin),
        Origin::Volume(id) => (Source::Volume(id.to_string()), origin),
    });
    NewVolume {
        place: place("rbd"),
        topology: None,
        object: volume_object("default", name),
        name: name.into(),
        size: SizeRange { required, limit: 0 },
        parameters: Map::new(),
        mutable_parameters: Map::new(),
        capabilities: vec![Capability {
            access: Access::Mount { fs_type: String::new(), flags: Vec::new() },
            mode: Mode::SingleNodeWriter,
        }],
        source,
        secrets: Secrets::default(),
    }
}

/// Waits for something that a thread does. A defect fails the test instead of hanging it.
#[track_caller]
pub(super) fn await_that(happens: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !happens() {
        assert!(Instant::now() < end, "it has not happened within {SOON:?}");
        std::thread::yield_now();
    }
}

/// Does the jobs that are due.
pub(super) fn do_jobs(rbd: &Rbd) {
    do_jobs_due_within(rbd, Duration::ZERO);
}

/// Does the jobs that are due within this time.
pub(super) fn do_jobs_due_within(rbd: &Rbd, time: Duration) {
    rbd.context.jobs.queue.work_off(time);
}

/// A dump with `R` for the digits that are drawn for each copy and each snapshot.
pub(super) fn without_drawn(dump: &str) -> String {
    // KEY-R, TAG-KEY-R
    [("csi-snap-", 13 + 1), ("csi-copy-", 8 + 1 + 13 + 1)].into_iter().fold(
        dump.to_string(),
        |dump, (begin, at)| {
            let mut parts = dump.split(begin);
            let first = parts.next().unwrap_or_default().to_string();
            parts.fold(first, |text, part| format!("{text}{begin}{}R{}", &part[..at], &part[at + 8..]))
        },
    )
}

/// A dump without the empty objects of names that no volume or snapshot claims.
pub(super) fn without_free_names(dump: &str) -> String {
    let is_free = |line: &&str| ["claim ", "object name "].iter().any(|it| line.starts_with(it));
    dump.lines().filter(|line| !is_free(line) || line.contains(": ")).collect::<Vec<_>>().join("\n")
}

pub(super) fn create(rbd: &Rbd, new: &NewVolume) -> Result<Volume> {
    rbd.volumes().create(&call(), new)
}

pub(super) fn request(source: &VolumeId, name: &str) -> NewSnapshot {
    let key = snapshot_key("default", name);
    NewSnapshot {
        source: source.clone(),
        key,
        name: name.into(),
        secrets: Secrets::default(),
        requisite: Vec::new(),
    }
}

pub(super) fn snapshot(rbd: &Rbd, source: &VolumeId, name: &str) -> Result<Snapshot> {
    rbd.snapshots().create(&call(), &request(source, name))
}
