//! What a daemon had begun when it died, on a cluster in memory.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::csi::{Access, Mode};
use crate::ids::VolumeId;
use crate::volume::node::record::Staging;
use crate::volume::request::SnapshotById;
use crate::volume::tests::Scene;

impl Scene {
    fn lock(&self) -> AcquireLock {
        self.lock_after(|_| Ok(()))
    }

    /// A lock that is free once somebody else, who had it before, has done this.
    fn lock_after(&self, others: impl Fn(&Operations) -> Result<()> + Send + Sync + 'static) -> AcquireLock {
        let (operations, locked) = (Arc::clone(&self.operations), Arc::clone(&self.locked));
        Arc::new(move |_, key| {
            others(&operations)?;
            locked.lock().push(key);
            Ok(Box::new(()))
        })
    }

    /// An intent that a daemon left when it died.
    fn interrupted(&self, operation: &str, subject: impl ToString) -> Intent {
        let key = format!("{operation} {}", subject.to_string());
        self.operations.journal.write(&[Change::put(Table::Intents, key.clone(), Vec::new())]).unwrap();
        Intent::parse(&key, &[]).unwrap()
    }

    fn finish(&self, intent: &Intent, lock: &AcquireLock, refusal: Refusal) -> Requeue {
        self.operations.finish_locked(&Call::internal("test"), intent, lock, &mut { refusal }).unwrap()
    }

    fn give_back(&self, id: &VolumeId, lock: &AcquireLock) {
        let next = self.operations.unpublish_from_node(&Call::internal("test"), id, lock);
        assert_eq!(next.unwrap(), Requeue::Never);
    }

    fn is_open(&self, intent: &Intent) -> bool {
        self.operations.journal.get(Table::Intents, &intent.key()).is_some()
    }
}

#[test]
fn a_deletion_is_finished_under_the_lock_of_its_volume() {
    let scene = Scene::new();
    let id = scene.create();
    let intent = scene.interrupted("DeleteVolume", &id);
    assert_eq!(scene.finish(&intent, &scene.lock(), Refusal::MayPass), Requeue::Never);
    assert_eq!(*scene.locked.lock(), [Key::from(id.key())]);
    assert!(!scene.exists(&id) && !scene.is_open(&intent));
}

#[test]
fn a_deletion_that_was_finished_meanwhile_deletes_nothing_that_came_after_it() {
    let scene = Scene::new();
    let id = scene.create();
    let intent = scene.interrupted("DeleteVolume", &id);
    let ended = intent.key();
    let lock = scene.lock_after(move |operations| {
        operations.journal.write(&[Change::remove(Table::Intents, ended.clone())])
    });
    assert_eq!(scene.finish(&intent, &lock, Refusal::MayPass), Requeue::Never);
    assert!(scene.exists(&id));
}

#[test]
fn a_lock_that_cannot_be_had_is_waited_for() {
    let scene = Scene::new();
    let id = scene.create();
    let intent = scene.interrupted("DeleteVolume", &id);
    let lock = scene.lock_after(|_| Err(Error::new(Kind::Busy, "another call has it")));
    assert_eq!(scene.finish(&intent, &lock, Refusal::Ends), Requeue::After(AGAIN));
    assert!(scene.exists(&id) && scene.is_open(&intent));
}

#[test]
fn a_volume_that_was_acknowledged_since_stays() {
    let scene = Scene::new();
    let id = scene.create();
    let intent = scene.interrupted("DeleteVolume", &id);
    assert_eq!(scene.create(), id);
    assert!(!scene.is_open(&intent));
    assert_eq!(scene.finish(&intent, &scene.lock(), Refusal::Ends), Requeue::Never);
    assert!(scene.exists(&id));
}

#[test]
fn a_snapshot_that_was_acknowledged_since_stays() {
    let scene = Scene::new();
    let id = scene.create();
    let snapshot = scene.snapshot(&id);
    let intent = scene.interrupted("DeleteSnapshot", &snapshot);
    assert_eq!(scene.snapshot(&id), snapshot);
    assert_eq!(scene.finish(&intent, &scene.lock(), Refusal::Ends), Requeue::Never);
    let request = SnapshotById { snapshot_id: snapshot.to_string(), secrets: Secrets::default() };
    scene.operations.get_snapshot(&Call::internal("test"), &request).unwrap();
}

#[test]
fn a_second_refusal_ends_a_deletion() {
    let scene = Scene::new();
    let id = scene.create();
    scene.publish(&id);
    let intent = scene.interrupted("DeleteVolume", &id);
    assert_eq!(scene.finish(&intent, &scene.lock(), Refusal::MayPass), Requeue::After(AGAIN));
    assert!(scene.is_open(&intent), "a dead client may have been in the way");
    assert_eq!(scene.finish(&intent, &scene.lock(), Refusal::Ends), Requeue::Never);
    assert!(scene.exists(&id) && !scene.is_open(&intent));
}

#[test]
fn what_is_staged_again_after_a_boot_is_not_given_back() {
    let scene = Scene::new();
    let id = scene.create();
    let staged = id.clone();
    let lock = scene.lock_after(move |operations| {
        let staging = Staging { path: "/staging".into(), mode: Mode::SingleNodeWriter, read_only: false };
        let record = NodeRecord {
            volume_id: staged.to_string(),
            boot_id: "boot".into(),
            access: Access::Block,
            read_only: false,
            stagings: vec![staging],
            targets: Vec::new(),
            published: PublishedBy::Node,
        };
        operations.remember(&staged, &record)
    });
    scene.cluster.forget_steps();
    scene.give_back(&id, &lock);
    assert_eq!(*scene.locked.lock(), [Key::from(id.key())]);
    assert!(scene.cluster.steps().is_empty(), "{:?}", scene.cluster.steps());
    scene
        .operations
        .remember_less(
            &id,
            &NodeRecord { stagings: Vec::new(), ..scene.operations.node_record(&id).unwrap().unwrap() },
        )
        .unwrap();
    scene.give_back(&id, &scene.lock());
    assert!(!scene.cluster.steps().is_empty(), "nobody asked the cluster to take it back");
}

#[test]
fn what_the_first_version_left_is_finished() {
    let scene = Scene::new();
    let id = scene.create();
    let subject = id.to_string();
    // As 0.1.0 wrote it: operation 2, the subject, and when it was begun.
    let mut value = vec![0x08, 2, 0x12, subject.len() as u8];
    value.extend_from_slice(subject.as_bytes());
    value.extend_from_slice(&[0x18, 0xc0, 0xb8, 0x84, 0xc9, 0x06]);
    let left = Change::put(Table::Intents, format!("DeleteVolume {subject}"), value);
    let later = Change::put(Table::Intents, "MoveVolume to the moon", Vec::new());
    scene.operations.journal.write(&[left, later]).unwrap();
    let intents = scene.operations.intents();
    assert_eq!(intents.len(), 1, "{intents:?}");
    assert_eq!(scene.finish(&intents[0], &scene.lock(), Refusal::MayPass), Requeue::Never);
    assert!(!scene.exists(&id) && !scene.is_open(&intents[0]));
    let kept = scene.operations.journal.get(Table::Intents, "MoveVolume to the moon");
    assert!(kept.is_some(), "what a newer version wrote is left to it");
}

#[test]
fn what_a_cluster_has_to_answer_for_is_finished_by_jobs() {
    let scene = Scene::new();
    let id = scene.create();
    let intent = scene.interrupted("DeleteVolume", &id);
    scene.operations.recover_controller(&scene.lock()).unwrap();
    assert!(scene.exists(&id) && scene.is_open(&intent), "the start does not wait for a cluster");
    scene.operations.jobs.work_off(Duration::ZERO);
    assert!(!scene.exists(&id) && !scene.is_open(&intent));
    assert!(scene.operations.jobs.waiting().is_empty());
}

#[test]
fn a_deletion_that_was_refused_is_tried_again_and_then_left() {
    let scene = Scene::new();
    let id = scene.create();
    scene.publish(&id);
    let intent = scene.interrupted("DeleteVolume", &id);
    scene.operations.recover_controller(&scene.lock()).unwrap();
    scene.operations.jobs.work_off(Duration::ZERO);
    assert!(scene.is_open(&intent), "a dead client may have been in the way");
    let waiting = scene.operations.jobs.waiting();
    assert!(waiting.len() == 1 && waiting[0].1 > AGAIN / 2, "{waiting:?}");
    scene.operations.jobs.work_off(AGAIN);
    assert!(scene.exists(&id) && !scene.is_open(&intent));
    assert!(scene.operations.jobs.waiting().is_empty());
}
