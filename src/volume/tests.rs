//! Common to the tests of the operations: a daemon on a cluster in memory. And tests of several operations.

#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::rbd::Rbd;
use crate::backend::rbd::tests::mapping::Host;
use crate::backend::rbd::tests::{ONE, TWO, controller_of, wanted};
use crate::backend::rbd::tool::fake::FakeCluster;
use crate::backend::rbd::tool::{Layout as ImageLayout, NewImage};
use crate::backend::{AttachedImage, Backends, Publication, Unpublished};
use crate::config::{Config, Role};
use crate::csi::{Access, Map, Mode, TopologyRequirement};
use crate::dispatch::{Call, Key};
use crate::error::{Error, Kind, Result};
use crate::exec::fake::{FakeHelper, FakeRunner};
use crate::ids::{SnapshotId, VolumeId};
use crate::journal::ram::RamDisk;
use crate::journal::{Journal, Table};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::secrets::Secrets;
use crate::volume::deletion::Deleting;
use crate::volume::node::record::{BegunWork, FsWork, NodeRecord};
use crate::volume::request::{
    Capability, ControllerPublish, ControllerUnpublish, CreateSnapshot, CreateVolume, NodeStage, NodeUnstage,
};
use crate::volume::{Operations, VolumeTarget};

const MIB: u64 = 1 << 20;

/// A daemon that has just started.
pub(crate) struct Scene {
    pub(crate) cluster: FakeCluster,
    pub(crate) operations: Arc<Operations>,
    /// The keys that recovery has locked.
    pub(crate) locked: Arc<Mutex<Vec<Key>>>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(FakeCluster::new(), ONE, &["ceph"])
    }

    /// A daemon on this cluster, which is set up under these names; `tag` is that of its controller.
    pub(crate) fn with(cluster: FakeCluster, tag: &str, names: &[&str]) -> Self {
        let rbd = controller_of(&cluster, tag, names);
        Self::of(cluster, rbd)
    }

    pub(crate) fn of(cluster: FakeCluster, rbd: Rbd) -> Self {
        let endpoint: (OsString, OsString) = ("CSI_ENDPOINT".into(), "unix:///run/x/csi.sock".into());
        let config = Config::from_variables(Role::Daemon, [endpoint]).unwrap();
        let runner = Arc::new(FakeRunner::default());
        let operations = Operations {
            fencing: None,
            backends: Backends::new(vec![Arc::new(rbd)]),
            journal: Arc::new(Journal::open(Arc::new(RamDisk::default()), |_| {}).unwrap()),
            kernel: Kernel::new(Arc::new(FakeHelper::default())),
            looks: Default::default(),
            runner,
            jobs: Arc::default(),
            layout: Layout::new(&config),
            instance: "default".into(),
            node_id: "node7".into(),
            boot_id: "boot".into(),
            topology: Arc::default(),
            serves_node: true,
            in_container: false,
            stages: true,
            single_node_targets: config.single_node_targets,
        };
        Self { cluster, operations: Arc::new(operations), locked: Arc::default() }
    }

    pub(crate) fn create(&self) -> VolumeId {
        self.create_with(&[])
    }

    pub(crate) fn create_with(&self, parameters: &[(&str, &str)]) -> VolumeId {
        let mut request = request();
        request.parameters.extend(parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())));
        let new = self.operations.plan_creation(request).unwrap();
        self.operations.create(&Call::internal("test"), &new).unwrap().id
    }

    pub(crate) fn snapshot(&self, id: &VolumeId) -> SnapshotId {
        let request = CreateSnapshot {
            source_volume_id: id.to_string(),
            name: "s".into(),
            secrets: Secrets::default(),
            parameters: Map::new(),
            topology: TopologyRequirement::default(),
        };
        let new = self.operations.plan_snapshot(request).unwrap();
        self.operations.create_snapshot(&Call::internal("test"), &new).unwrap().id
    }

    pub(crate) fn publish(&self, id: &VolumeId) {
        self.publish_to(id, "node1");
    }

    pub(crate) fn publish_to(&self, id: &VolumeId, node: &str) -> Map {
        let capability = Capability { access: Access::Block, mode: Mode::SingleNodeWriter };
        let publication = Publication { node: node.into(), capability, read_only: false };
        let backend = self.operations.backends.for_place(&id.place).unwrap();
        backend.publisher().publish(&Call::internal("test"), id, &publication, &Secrets::default()).unwrap()
    }

    /// The target of a request about this volume now.
    pub(crate) fn target(&self, id: &VolumeId) -> VolumeTarget {
        self.operations.volume(id.to_string())
    }

    pub(crate) fn exists(&self, id: &VolumeId) -> bool {
        self.operations
            .backends
            .for_place(&id.place)
            .unwrap()
            .volumes()
            .find(&Call::internal("test"), id, &Secrets::default())
            .unwrap()
            .is_some()
    }
}

/// A request for a volume, with no wish about its place except the pool.
fn request() -> CreateVolume {
    let asked = wanted("a", MIB, None);
    CreateVolume {
        name: asked.name,
        size: asked.size,
        capabilities: asked.capabilities,
        parameters: Map::from([("pool".to_string(), "rbd".to_string())]),
        mutable_parameters: Map::new(),
        secrets: Secrets::default(),
        source: None,
        topology: TopologyRequirement::default(),
    }
}

#[test]
fn impossible_nodes_are_not_found() {
    let scene = Scene::new();
    let (id, call) = (scene.create(), Call::internal("test"));
    let before = scene.cluster.dump();
    for node in ["delete", "a\nb", &"n".repeat(200)] {
        let publish = ControllerPublish {
            volume: scene.target(&id),
            node_id: node.into(),
            capability: Capability { access: Access::Block, mode: Mode::SingleNodeWriter },
            read_only: false,
            volume_context: Map::new(),
            secrets: Secrets::default(),
        };
        let refusal = scene.operations.controller_publish(&call, &publish).unwrap_err();
        assert!(refusal.kind() == Kind::NotFound && refusal.message().contains("no node"), "{refusal}");
        let unpublish = ControllerUnpublish {
            volume: scene.target(&id),
            node_id: node.into(),
            secrets: Secrets::default(),
        };
        let outcome = scene.operations.controller_unpublish(&call, &unpublish).unwrap();
        assert_eq!(outcome, Unpublished::NoNode, "{node:?}");
    }
    assert_eq!(scene.cluster.dump(), before, "UNSAFE: it is published");
}

#[test]
fn a_volume_is_made_where_it_was_locked_whatever_is_reloaded_meanwhile() {
    let before = Scene::new();
    let new = before.operations.plan_creation(request()).unwrap();
    let locked = before.operations.locks_of_creation(&new).keys;
    let after = Scene::with(before.cluster.clone(), ONE, &["another", "ceph"]);
    let refused = after.operations.plan_creation(request()).unwrap_err();
    assert_eq!(refused.kind(), Kind::InvalidArgument, "no cluster is the only one any more");
    let made = after.operations.create(&Call::internal("test"), &new).unwrap();
    assert_eq!(locked, [Key::from(made.id.key())]);
    assert_eq!(made.id.place.cluster, "ceph");
}

/// Flattening a copy may take hours, so its source is not locked, unless only the daemon's locks keep copy
/// and source apart.
#[test]
fn only_a_backend_that_needs_it_has_the_source_of_a_copy_locked() {
    let scene = Scene::new();
    let source = scene.operations.plan_creation(request()).unwrap();
    let source = scene.operations.create(&Call::internal("test"), &source).unwrap().id;
    let copy = CreateVolume {
        name: "copy".into(),
        source: Some(crate::csi::Source::Volume(source.to_string())),
        ..request()
    };
    let new = scene.operations.plan_creation(copy).unwrap();
    assert_eq!(scene.operations.locks_of_creation(&new).keys, [Key::from(new.place.key(&new.object))]);
}

#[test]
fn a_stage_that_had_to_wait_and_was_refused_leaves_no_record() {
    let scene = Scene::new();
    let id = scene.create();
    scene.cluster.watch(&scene.cluster.at(), &id.object, "10.0.0.5:0/5");
    let request = stage_block(&scene.target(&id), "/nonexistent/staging", Mode::SingleNodeWriter, Map::new());
    let call = Call::internal("test");
    let refused = scene.operations.stage(&call, &request).unwrap_err();
    assert_eq!(refused.kind(), Kind::Precondition);
    assert!(
        call.current_step().0.contains("to close image"),
        "the client may have been one that only looked"
    );
    assert_eq!(scene.operations.node_record(&id).unwrap(), None, "nobody would ever unstage it");
}

/// Puts another image under the volume's name, as mirroring does: its record has the first image's id.
fn replace_image(cluster: &FakeCluster, id: &VolumeId) {
    let at = cluster.at();
    let record = cluster.all_metadata(&at, &id.object)["cephlet.request"].clone();
    let first = format!("{{\"first_id\":{:?},", id.incarnation.as_ref().unwrap());
    let record = if record.contains("first_id") { record } else { record.replacen('{', &first, 1) };
    cluster.on(&at).remove(&id.object).unwrap();
    let (layout, metadata) = (ImageLayout::default(), [("cephlet.request", record.as_str())]);
    let image = NewImage { name: &id.object, size: MIB, layout: &layout, metadata: &metadata };
    cluster.on(&at).create(&image).unwrap();
}

fn stage_block(volume: &VolumeTarget, staging_path: &str, mode: Mode, told: Map) -> NodeStage {
    NodeStage {
        volume: volume.clone(),
        staging_path: staging_path.to_string(),
        capability: Capability { access: Access::Block, mode },
        mount_group: None,
        volume_context: Map::new(),
        publish_context: told,
        secrets: Secrets::default(),
    }
}

/// If another cluster has taken the volume over, its ID still has the first image.
#[test]
fn a_volume_that_has_another_image_than_its_id_says_leaves_the_node() {
    let cluster = FakeCluster::new();
    let host = Host::new(&cluster);
    let scene = Scene::of(cluster.clone(), host.daemon());
    let id = scene.create();
    replace_image(&cluster, &id);
    let told = Scene::with(cluster.clone(), TWO, &["ceph"]).publish_to(&id, "n1");
    assert_ne!(Some(&told["imageId"]), id.incarnation.as_ref());
    let dir = tempfile::tempdir().unwrap();
    let staging_path = dir.path().join("staging").to_string_lossy().into_owned();
    let request = stage_block(&scene.target(&id), &staging_path, Mode::SingleNodeWriter, told);
    scene.operations.stage(&Call::internal("test"), &request).unwrap();
    let call = Call::internal("test");
    let device = |scene: &Scene| {
        let backend = scene.operations.backends.for_place(&id.place).unwrap();
        scene.operations.on_node(&call, &id, backend.as_ref()).unwrap().attachment().unwrap()
    };
    assert!(device(&scene).is_some() && host.clients().len() == 1);
    // The same holds after a restart.
    let restarted = Scene::of(cluster.clone(), host.daemon());
    let record = scene.operations.node_record(&id).unwrap().unwrap();
    restarted.operations.remember(&id, &record).unwrap();
    assert!(device(&restarted).is_some());
    let unstage = NodeUnstage { volume: restarted.target(&id), staging_path };
    restarted.operations.unstage(&call, &unstage).unwrap();
    assert!(host.clients().is_empty(), "it stays mapped, and nobody unmaps it");
    assert!(!cluster.dump().contains("client of"), "{}", cluster.dump());
}

/// No record would lead to the mapping of the earlier image any more.
#[test]
fn an_image_that_was_replaced_is_unmapped_before_the_next_one_is_mapped() {
    let cluster = FakeCluster::new();
    let host = Host::new(&cluster);
    let id = Scene::of(cluster.clone(), host.daemon()).create();
    let scene = Scene::of(cluster.clone(), host.daemon());
    let dir = tempfile::tempdir().unwrap();
    let request =
        stage_block(&scene.target(&id), &dir.path().to_string_lossy(), Mode::MultiNodeReaderOnly, Map::new());
    let mapped = || {
        scene.operations.stage(&Call::internal("test"), &request).unwrap();
        assert_eq!(host.clients().len(), 1);
        scene.operations.node_record(&id).unwrap().unwrap().attached.image
    };
    replace_image(&cluster, &id);
    let first = mapped();
    replace_image(&cluster, &id);
    let second = mapped();
    assert!(first != second && Some(&first) != id.incarnation.as_ref());
}

/// Another client may have written to the image since.
#[test]
fn a_right_to_format_ends_when_the_device_is_lost() {
    let cluster = FakeCluster::new();
    let host = Host::new(&cluster);
    let scene = Scene::of(cluster.clone(), host.daemon());
    let id = scene.create();
    let told = scene.publish_to(&id, "n1");
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let (call, target) = (Call::internal("test"), scene.target(&id));
    let stage = |path: String| {
        scene.operations.stage(&call, &stage_block(&target, &path, Mode::SingleNodeWriter, told.clone()))
    };
    let record = || scene.operations.node_record(&id).unwrap().unwrap();
    stage(path("first")).unwrap();
    let access = Access::Mount { fs_type: "ext4".into(), flags: Vec::new() };
    let AttachedImage { image, publication } = record().attached;
    let begun = Some(BegunWork { work: FsWork::Formatting, image, publication });
    scene.operations.remember(&id, &NodeRecord { access: access.clone(), begun, ..record() }).unwrap();
    let client = &host.clients()[0];
    cluster.unwatch(client);
    cluster.shut_out(client);
    cluster.watch(&cluster.at(), &id.object, "10.0.0.5:0/5");
    let again = NodeStage {
        capability: Capability { access, mode: Mode::SingleNodeWriter },
        ..stage_block(&target, &path("second"), Mode::SingleNodeWriter, told.clone())
    };
    let refused = scene.operations.stage(&call, &again).unwrap_err().to_string();
    assert!(host.clients().is_empty() && refused.contains("10.0.0.5"), "{refused}");
    assert_eq!(record().begun, None, "UNSAFE: what others have written would be formatted");
}

#[test]
fn the_entry_of_a_deletion_goes_with_its_end() {
    let scene = Scene::new();
    let id = scene.create();
    let backend = scene.operations.backends.by_kind(&id.place).unwrap().as_ref();
    let entries = || scene.operations.journal.entries(Table::Deletions).len();
    let ends_with = |outcome: Result<()>| {
        let deleting = Deleting::Volume(id.clone());
        let ended = scene.operations.with_deletion(backend, deleting, |record| {
            record()?;
            assert_eq!(entries(), 1);
            outcome.clone()
        });
        assert_eq!(ended.is_err(), outcome.is_err());
        entries()
    };
    for refusal in [Error::precondition("it is published"), Error::not_found("the pool is gone")] {
        assert_eq!(ends_with(Err(refusal)), 0, "the deletion was refused: no later start may carry it out");
    }
    for failure in [Error::timeout("no answer"), Error::unavailable("it died"), Error::internal("killed")] {
        assert_eq!(ends_with(Err(failure)), 1, "it may be half done");
        let refusal = Error::precondition("the user may not");
        assert_eq!(ends_with(Err(refusal)), 1, "what an earlier call has left is there still");
    }
    assert_eq!(ends_with(Ok(())), 0);
}
