//! What the tests of the RBD backend share: a cluster in memory and controllers of it.

#![allow(clippy::unwrap_used)]

mod copies;
mod delete;
mod delete_crashes;
mod delete_races;
mod detach;
mod flatten;
mod inspect;
mod lists;
mod publish;
mod publish_races;
mod snapshots;
mod sweep;

use std::sync::Arc;
use std::time::Duration;

use super::Rbd;
use super::fake::FakeCluster;
use super::node::Mapper;
use crate::backend::{Backend, NewSnapshot, NewVolume, Origin, Snapshot, Volume};
use crate::call::Call;
use crate::clusters::{Cluster, Clusters, Credentials};
use crate::error::Result;
use crate::exec::fake::{FakeHelper, FakeRunner};
use crate::exec::kernel::Kernel;
use crate::ids::{Place, VolumeId, snapshot_digits, volume_object};
use crate::secrets::{Secret, Secrets};
use crate::terms::{Access, Capability, Map, Mode, SizeRange, Source};

pub(super) const GIB: u64 = 1 << 30;
/// The tags of two controllers.
pub(super) const ONE: &str = "0000aaaa";
pub(super) const TWO: &str = "0000bbbb";

pub(super) fn call() -> Call {
    Call::internal("test")
}

/// The node's side, which maps nothing.
pub(super) fn mapper() -> Mapper {
    let kernel = Kernel::new(Arc::new(FakeHelper::default()));
    Mapper::new(kernel, Arc::new(FakeRunner::default()), "/nonexistent/map-locks".into())
}

/// A controller of the cluster, just started: it remembers nothing.
pub(super) fn controller(cluster: &FakeCluster, tag: &str) -> Rbd {
    let credentials = Some(Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) });
    let ceph = Cluster { credentials, ..Cluster::named("ceph") };
    let mut rbd = Rbd::new(Arc::new(Clusters::of([ceph])), Arc::new(cluster.clone()), mapper(), "node7", tag);
    rbd.patience = Duration::from_millis(300);
    rbd
}

pub(super) fn place(pool: &str) -> Place {
    Place { backend: "rbd".into(), cluster: "ceph".into(), pool: pool.into(), namespace: String::new() }
}

/// A volume of at least `required` bytes, as somebody asks for it.
pub(super) fn wanted(name: &str, required: u64, origin: Option<Origin>) -> NewVolume {
    let source = origin.map(|origin| match &origin {
        Origin::Snapshot(id) => (Source::Snapshot(id.to_string()), origin),
        Origin::Volume(id) => (Source::Volume(id.to_string()), origin),
    });
    NewVolume {
        place: place("rbd"),
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

pub(super) fn create(rbd: &Rbd, new: &NewVolume) -> Result<Volume> {
    rbd.create(&call(), new, &|| Ok(()))
}

pub(super) fn request(source: &VolumeId, name: &str) -> NewSnapshot {
    let digits = snapshot_digits("default", name);
    NewSnapshot { source: source.clone(), digits, name: name.into(), secrets: Secrets::default() }
}

pub(super) fn snapshot(rbd: &Rbd, source: &VolumeId, name: &str) -> Result<Snapshot> {
    rbd.create_snapshot(&call(), &request(source, name), &|| Ok(()))
}
