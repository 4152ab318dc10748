//! Recovery of what a daemon had begun when it died, on a cluster in memory.

#![allow(clippy::unwrap_used)]

use parking_lot::Mutex;

use super::*;
use crate::backend::creation_record::Unknown;
use crate::backend::rbd::tests::{ONE, TWO};
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::{ImageRef, LockRequest, LockTarget};
use crate::backend::{AttachedImage, PublishedBy};
use crate::csi::{Access, Mode, SizeRange};
use crate::dispatch::Held;
use crate::error::{Error, Kind};
use crate::ids::SnapshotId;
use crate::volume::node::record::{BegunWork, FsWork};
use crate::volume::request::{DeleteVolume, Expand, SnapshotById};
use crate::volume::tests::Scene;

const MIB: u64 = 1 << 20;

/// What another lock holder does first.
type Others = Box<dyn Fn(&Operations) -> Result<()> + Send + Sync>;

/// Locks that become free after another lock holder has acted.
struct FakeLocks {
    operations: Arc<Operations>,
    locked: Arc<Mutex<Vec<Key>>>,
    others: Others,
}

impl ObjectLocks for FakeLocks {
    fn lock(&self, _: &Call, key: Key) -> Result<Held> {
        (self.others)(&self.operations)?;
        self.locked.lock().push(key);
        Ok(Box::new(()))
    }

    fn try_lock(&self, call: &Call, key: Key) -> Result<Option<Held>> {
        self.lock(call, key).map(Some)
    }
}

fn call() -> Call {
    Call::internal("test")
}

impl Scene {
    /// Another controller of the same cluster.
    fn second(&self) -> Self {
        Self::with(self.cluster.clone(), TWO, &["ceph"])
    }

    fn lock(&self) -> Arc<dyn ObjectLocks> {
        self.lock_after(|_| Ok(()))
    }

    /// A lock that becomes free after another lock holder has done this.
    fn lock_after(
        &self,
        others: impl Fn(&Operations) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn ObjectLocks> {
        let (operations, locked) = (Arc::clone(&self.operations), Arc::clone(&self.locked));
        Arc::new(FakeLocks { operations, locked, others: Box::new(others) })
    }

    /// A deletion that a daemon had begun when it died.
    fn interrupted(&self, of: Deleting) -> BegunDeletion {
        let deletion = BegunDeletion::now(of);
        self.operations.journal.write(&[deletion.to_change()]).unwrap();
        deletion
    }

    /// Leaves what a killed removal leaves: an image that no list shows.
    fn remove_half(&self, id: &VolumeId) {
        self.cluster.fail_at(1, Fault::HalfMade);
        self.cluster.here().remove(&id.object).unwrap_err();
    }

    /// What a daemon does after its start: at once, and for this time after that.
    fn recover(&self, lock: &Arc<dyn ObjectLocks>, time: Duration) {
        self.operations.recover_controller(lock).unwrap();
        self.work_off(time);
    }

    fn work_off(&self, time: Duration) {
        self.operations.jobs.work_off(Duration::ZERO);
        self.operations.jobs.work_off(time);
    }

    /// How many interrupted operations are still to be finished.
    fn waiting(&self) -> usize {
        self.operations.jobs.waiting().iter().filter(|(name, _)| name.starts_with("finish ")).count()
    }

    fn delete(&self, id: &VolumeId) {
        let (volume, secrets) = (self.target(id), Secrets::default());
        let request = DeleteVolume { volume, snapshots_may_outlive: true, secrets };
        self.operations.delete(&call(), &request).unwrap();
    }

    fn by_id(&self, snapshot: &SnapshotId) -> SnapshotById {
        let snapshot = self.operations.controller_snapshot(snapshot.to_string());
        SnapshotById { snapshot, secrets: Secrets::default() }
    }

    fn has_snapshot(&self, snapshot: &SnapshotId) -> bool {
        self.operations.get_snapshot(&call(), &self.by_id(snapshot)).is_ok()
    }

    fn delete_snapshot(&self, snapshot: &SnapshotId) {
        self.operations.delete_snapshot(&call(), &self.by_id(snapshot)).unwrap();
    }

    /// Removes the snapshot alone, without the rest of its deletion.
    fn remove_snapshot(&self, id: &SnapshotId) {
        let (at, name) = (self.cluster.at(), format!("csi-snap-{}", id.snapshot));
        self.cluster.on(&at).remove_snapshot(ImageRef::Id(&id.source), &name).unwrap();
    }

    fn give_back(&self, id: &VolumeId, lock: &Arc<dyn ObjectLocks>) {
        assert_eq!(self.operations.give_back_after_boot(&call(), id, lock).unwrap(), Requeue::Never);
    }

    fn is_open(&self, deletion: &BegunDeletion) -> bool {
        self.operations.journal.get(Table::Deletions, &deletion.key()).is_some()
    }
}

fn volume(id: &VolumeId) -> Deleting {
    Deleting::Volume(id.clone())
}

fn taken(id: &SnapshotId) -> Deleting {
    Deleting::Snapshot(id.clone())
}

/// The image may have lost its header, and a new volume may have its name, which `rbd rm` would remove.
#[test]
fn what_is_half_removed_is_removed_by_a_job_under_the_lock_of_its_volume() {
    for headless in [false, true] {
        let scene = Scene::new();
        let id = scene.create();
        let deletion = scene.interrupted(volume(&id));
        scene.remove_half(&id);
        if headless {
            scene.cluster.remove_header(id.incarnation.as_ref().unwrap());
        }
        let new = scene.second().create();
        scene.operations.recover_controller(&scene.lock()).unwrap();
        assert!(
            scene.is_open(&deletion) && scene.locked.lock().is_empty(),
            "the start does not wait for a cluster"
        );
        scene.work_off(Duration::ZERO);
        assert_eq!(*scene.locked.lock(), [Key::from(id.key())]);
        assert!(new != id && scene.exists(&new), "UNSAFE: a confirmed volume was removed");
        let left = scene.cluster.dump().lines().count();
        assert_eq!((left, scene.is_open(&deletion), scene.waiting()), (1, false, 0));
    }
}

#[test]
fn a_deletion_that_was_finished_meanwhile_touches_nothing() {
    let scene = Scene::new();
    let id = scene.create();
    let ended = scene.interrupted(volume(&id)).key();
    scene.remove_half(&id);
    let lock = scene.lock_after(move |operations| {
        operations.journal.write(&[Change::remove(Table::Deletions, ended.clone())])
    });
    let before = scene.cluster.dump();
    scene.recover(&lock, Duration::ZERO);
    assert_eq!((scene.cluster.dump(), scene.waiting()), (before, 0));
}

#[test]
fn a_deletion_that_a_call_leaves_half_done_is_finished_within_the_hour() {
    let scene = Scene::new();
    let id = scene.create();
    scene.recover(&scene.lock(), Duration::ZERO);
    let deletion = scene.interrupted(volume(&id));
    scene.remove_half(&id);
    scene.operations.jobs.work_off(DELETIONS);
    assert!(!scene.is_open(&deletion), "{}", scene.cluster.dump());
}

#[test]
fn a_lock_or_a_cluster_that_cannot_be_had_is_waited_for() {
    let scene = Scene::new();
    let id = scene.create();
    let deletion = scene.interrupted(volume(&id));
    scene.remove_half(&id);
    let attempts = Arc::new(parking_lot::Mutex::new(0));
    let lock = scene.lock_after(move |_| {
        *attempts.lock() += 1;
        if *attempts.lock() == 1 { Err(Error::new(Kind::Busy, "another call has it")) } else { Ok(()) }
    });
    scene.operations.recover_controller(&lock).unwrap();
    scene.operations.jobs.work_off(Duration::ZERO);
    assert!(scene.is_open(&deletion) && scene.waiting() == 1);
    scene.cluster.fail_at(1, Fault::Before);
    scene.operations.jobs.work_off(RETRY);
    assert!(scene.is_open(&deletion) && scene.waiting() == 1);
    scene.operations.jobs.work_off(RETRY);
    assert_eq!((scene.cluster.dump().as_str(), scene.is_open(&deletion), scene.waiting()), ("", false, 0));
}

#[test]
fn a_volume_that_another_controller_has_confirmed_since_stays() {
    let scene = Scene::new();
    let id = scene.create();
    let deletion = scene.interrupted(volume(&id));
    assert_eq!(scene.second().create(), id, "it is confirmed");
    scene.recover(&scene.lock(), RETRY);
    assert!(scene.exists(&id), "UNSAFE: a confirmed volume was deleted");
    assert!(!scene.is_open(&deletion) && scene.waiting() == 0);
}

#[test]
fn a_volume_that_was_put_into_the_trash_by_hand_since_stays() {
    let scene = Scene::new();
    let id = scene.create();
    let deletion = scene.interrupted(volume(&id));
    scene.cluster.put_aside(&scene.cluster.at(), &id.object);
    let before = scene.cluster.dump();
    scene.recover(&scene.lock(), RETRY);
    assert_eq!(scene.cluster.dump(), before, "UNSAFE: an operator's image was purged");
    assert!(!scene.is_open(&deletion) && scene.waiting() == 0);
}

#[test]
fn a_snapshot_that_another_controller_has_taken_since_stays() {
    let scene = Scene::new();
    let snapshot = scene.snapshot(&scene.create());
    let deletion = scene.interrupted(taken(&snapshot));
    let second = scene.second();
    second.delete_snapshot(&snapshot);
    let later = second.snapshot(&scene.create());
    scene.recover(&scene.lock(), RETRY);
    assert!(scene.has_snapshot(&later), "UNSAFE: a confirmed snapshot was deleted");
    assert!(!scene.is_open(&deletion) && scene.waiting() == 0);
}

/// The cluster was away when the daemon started, and the volume was used when the cluster answered again.
#[test]
fn a_volume_that_this_controller_has_used_since_stays() {
    type Use = fn(&Scene, &VolumeId);
    let uses: [Use; 3] = [
        |scene, id| scene.publish(id),
        |scene, id| drop(scene.snapshot(id)),
        |scene, id| {
            let size = SizeRange { required: 2 * MIB, limit: 0 };
            let request =
                Expand { volume: scene.target(id), size, capability: None, secrets: Secrets::default() };
            assert_eq!(scene.operations.expand(&call(), &request).unwrap(), (2 * MIB, true));
        },
    ];
    for used in uses {
        let scene = Scene::new();
        let id = scene.create();
        let deletion = scene.interrupted(volume(&id));
        scene.operations.recover_controller(&scene.lock()).unwrap();
        scene.cluster.crash_at(1, Fault::Before);
        scene.operations.jobs.work_off(Duration::ZERO);
        assert_eq!(scene.waiting(), 1);
        scene.cluster.restart();
        used(&scene, &id);
        scene.operations.jobs.work_off(RETRY);
        assert!(scene.exists(&id), "UNSAFE: a volume that is used was deleted");
        assert!(!scene.is_open(&deletion) && scene.waiting() == 0);
    }
}

#[test]
fn what_a_deleted_snapshot_left_goes() {
    let scene = Scene::new();
    let id = scene.create();
    let snapshot = scene.snapshot(&id);
    scene.delete(&id);
    let deletion = scene.interrupted(taken(&snapshot));
    scene.remove_snapshot(&snapshot);
    scene.recover(&scene.lock(), RETRY);
    // The object of the snapshot's name stays, empty.
    let left = format!("object name rbd/{}", snapshot.name_key());
    assert_eq!((scene.cluster.dump(), scene.is_open(&deletion)), (left, false));
}

/// Another controller has claimed the name, and is about to take the snapshot.
#[test]
fn the_name_of_a_snapshot_that_is_being_taken_is_not_given_back() {
    let scene = Scene::new();
    let id = scene.create();
    let snapshot = scene.snapshot(&id);
    let deletion = scene.interrupted(taken(&snapshot));
    scene.delete_snapshot(&snapshot);
    scene.interrupted(taken(&snapshot));
    let claim = LockRequest {
        cookie: TWO.into(),
        description: r#"{"version":1,"name":"s"}"#.into(),
        shared: Some(format!("{}@csi-snap-{}-zyxw7654", snapshot.source, snapshot.name_key())),
        seconds: None,
    };
    let name = LockTarget::SnapshotName(snapshot.name_key());
    scene.cluster.here().lock(name, &claim).unwrap();
    let before = scene.cluster.dump();
    assert_eq!(scene.operations.finish(&call(), &deletion).unwrap(), Requeue::Never);
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn what_is_about_a_cluster_that_is_not_set_up_stays_until_it_is() {
    let scene = Scene::new();
    let id = scene.create();
    let other = Scene::with(scene.cluster.clone(), ONE, &["another"]);
    let deletion = other.interrupted(volume(&id));
    scene.remove_half(&id);
    other.recover(&other.lock(), RETRY);
    assert!(other.is_open(&deletion) && other.waiting() == 1, "it is lost, and with it what is half removed");
}

#[test]
fn what_is_staged_again_after_a_boot_is_not_given_back() {
    let scene = Scene::new();
    let id = scene.create();
    let staged = id.clone();
    let lock = scene.lock_after(move |operations| {
        let staging = Use::new(UseKind::Staging, "/staging", Mode::SingleNodeWriter, false);
        let record = NodeRecord {
            volume_id: staged.to_string(),
            boot_id: "boot".into(),
            access: Access::Block,
            read_only: false,
            uses: vec![staging],
            published: PublishedBy::Node,
            attached: AttachedImage::default(),
            begun: None,
            mount_group: None,
            unknown: Unknown::new(),
        };
        operations.remember(&staged, &record)
    });
    scene.cluster.forget_steps();
    scene.give_back(&id, &lock);
    assert_eq!(*scene.locked.lock(), [Key::from(id.key())]);
    assert!(scene.cluster.steps().is_empty(), "{:?}", scene.cluster.steps());
    let record = scene.operations.node_record(&id).unwrap().unwrap();
    scene.operations.remember(&id, &NodeRecord { uses: Vec::new(), ..record }).unwrap();
    scene.give_back(&id, &scene.lock());
    assert!(!scene.cluster.steps().is_empty(), "nobody asked the cluster to take it back");
    assert_eq!(scene.operations.node_record(&id).unwrap(), None, "it would be given back for ever");
}

/// The daemon may die before its cluster has answered.
#[test]
fn what_was_in_use_before_a_boot_is_remembered_until_it_is_given_back() {
    let scene = Scene::new();
    let id = scene.create();
    let staging = Use::new(UseKind::Staging, "/staging", Mode::SingleNodeWriter, false);
    let boot_id = "earlier".into();
    let record = NodeRecord { boot_id, uses: vec![staging], ..scene.operations.unrecorded(&id) };
    for published in [PublishedBy::Controller, PublishedBy::Node] {
        scene.operations.remember(&id, &NodeRecord { published, ..record.clone() }).unwrap();
        for _ in 0..2 {
            scene.operations.recover_node(&scene.lock()).unwrap();
            let left = scene.operations.node_record(&id).unwrap();
            assert!(left.is_some_and(|left| left.is_unused()), "{published:?}");
        }
        scene.cluster.fail_at(1, Fault::Before);
        scene.operations.jobs.work_off(Duration::ZERO);
        assert!(scene.operations.node_record(&id).unwrap().is_some(), "{published:?}: it was not given back");
        scene.operations.jobs.work_off(RETRY);
        assert_eq!(scene.operations.node_record(&id).unwrap(), None);
    }
}

#[test]
fn an_entry_that_cannot_be_read_is_left_alone() {
    let scene = Scene::new();
    let entry = Change::put(Table::Deletions, "image rbd:main:vms::a:10", serde_json::json!({}));
    scene.operations.journal.write(&[entry]).unwrap();
    scene.recover(&scene.lock(), Duration::ZERO);
    assert_eq!((scene.waiting(), scene.operations.journal.entries(Table::Deletions).len()), (0, 1));
}

#[test]
fn a_right_to_format_a_remote_image_ends_with_the_boot() {
    let scene = Scene::new();
    let id = scene.create();
    let image = id.incarnation.clone().unwrap();
    let begun = Some(BegunWork { work: FsWork::Formatting, image, publication: String::new() });
    let record = NodeRecord { begun, boot_id: "earlier".into(), ..scene.operations.unrecorded(&id) };
    scene.operations.remember(&id, &record).unwrap();
    scene.operations.recover_node(&scene.lock()).unwrap();
    let left = scene.operations.node_record(&id).unwrap().unwrap();
    assert_eq!(left.begun, None, "UNSAFE: another node may have written to it");
}
