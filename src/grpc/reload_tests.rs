//! A reload of the clusters file while a call waits between its planning and its work.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use protobuf::MessageField;

use super::*;
use crate::backend::rbd::tests::{ONE, controller_with};
use crate::backend::rbd::tool::fake::FakeCluster;
use crate::clusters::{ClusterSource, Clusters};
use crate::config::HostCluster;
use crate::error::Kind;
use crate::grpc::active_calls::ActiveCalls;
use crate::grpc::proto::csi_v1::{self as wire, Node as _};
use crate::grpc::{Services, operator};
use crate::volume::tests::Scene;

const PATIENCE: Duration = Duration::from_secs(300);

fn write_clusters(dir: &Path, names: &[&str]) {
    let cluster =
        |name: &&str| format!("[cluster.{name}]\nmonitors = '10.0.0.1'\nuser = 'csi'\nkey_file = 'KEY'\n");
    let text: String = names.iter().map(cluster).collect();
    let key = dir.join("key").display().to_string();
    fs::write(dir.join("clusters.toml"), text.replace("KEY", &key)).unwrap();
}

fn stage(volume_id: String, staging: &Path) -> wire::NodeStageVolumeRequest {
    use wire::volume_capability::access_mode::Mode;
    use wire::volume_capability::{Access_type, AccessMode, BlockVolume};
    let mode = AccessMode { mode: Mode::SINGLE_NODE_WRITER.into(), ..Default::default() };
    let capability = wire::VolumeCapability {
        access_mode: MessageField::some(mode),
        access_type: Some(Access_type::Block(BlockVolume::default())),
        ..Default::default()
    };
    wire::NodeStageVolumeRequest {
        volume_id,
        staging_target_path: staging.display().to_string(),
        volume_capability: MessageField::some(capability),
        ..Default::default()
    }
}

#[test]
fn a_call_whose_cluster_is_set_up_while_it_waits_works_under_a_lock_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("key"), "AQAAAAAAAAAAABAAAAAAAAAAAAAAAAAAAAAAAA==").unwrap();
    write_clusters(dir.path(), &["another"]);
    let host = HostCluster { conf: "/nonexistent/ceph.conf".into(), ..HostCluster::default() };
    let file = Some(dir.path().join("clusters.toml"));
    let clusters = Arc::new(Clusters::load(ClusterSource { file, credentials: None, host }));
    let cluster = FakeCluster::new();
    let id = Scene::with(cluster.clone(), ONE, &["ceph"]).create();
    let scene = Scene::of(cluster.clone(), controller_with(&clusters, &cluster, ONE));
    cluster.forget_steps();

    let workers = Arc::new(Workers::start(4, 4).unwrap());
    let others = ["a", "b", "c", "d"].map(|cluster| {
        let call = Call::internal("another");
        workers.begin(&call, Some(cluster.into())).unwrap();
        call
    });
    let locks = LockTable::new(16, PATIENCE, Bridge::is_retryable);
    let bridge = Bridge::new(workers, locks, Arc::new(ActiveCalls::beside(Arc::default())));
    let serving = Serving { bridge: &bridge, call: Call::internal("stage"), guard: RefCell::default() };
    let progress = serving.call.progress().clone();
    let settings =
        operator::Settings { shown: Arc::new(|_| Default::default()), troubles: Arc::new(Vec::new) };
    let operations = Arc::clone(&scene.operations);
    let node = Services { name: "org.cephlet.csi".into(), operations, controller: false, settings };
    let request = stage(id.to_string(), &dir.path().join("staging"));
    let (answer, serving) = thread::scope(|scope| {
        let stage = scope.spawn(move || {
            let answer = guarded(&serving.call, || node.node_stage_volume((serving.caller(), request)));
            (answer, serving)
        });
        let end = Instant::now() + PATIENCE;
        while !stage.is_finished() && progress.current_step().0 != "waiting for a worker" {
            assert!(Instant::now() < end, "{:?}", progress.current_step());
            thread::yield_now();
        }
        write_clusters(dir.path(), &["another", "ceph"]);
        clusters.reload();
        others.iter().for_each(Call::stop_working);
        stage.join().unwrap()
    });
    assert!(clusters.find("ceph").unwrap().is_some(), "it was reloaded");
    let steps = cluster.steps();
    assert!(serving.guard.borrow().is_some() || steps.is_empty(), "UNSAFE: without a lock: {steps:?}");
    assert_eq!(answer.unwrap_err().kind(), Kind::Precondition, "it was not known when it came in");
}
