//! Two controllers that know nothing of each other, and one of them acts between any two steps of the other.

use std::time::SystemTime;

use crate::backend::Deleted;
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::backend::rbd::tool::*;
use crate::ids::{SnapshotId, VolumeId};
use crate::jobs::RETRY;

use super::delete::{delete, delete_snapshot, publish, release, with_volume};
use super::*;

/// Has `other` happen after each step of a deletion, one step in each run. Gives the outcome of the deletion
/// to `check`.
fn at_every_step(
    size: u64,
    other: impl Fn(&FakeCluster, &VolumeId) + Clone + Send + 'static,
    check: impl Fn(&FakeCluster, &VolumeId, crate::error::Result<Deleted>, u64),
) {
    for step in 1.. {
        let cluster = FakeCluster::new();
        cluster.set_now(SystemTime::now());
        let rbd = controller(&cluster, ONE);
        let id = create(&rbd, &wanted("a", size * GIB, None)).unwrap().id;
        cluster.forget_steps();
        let (act, victim) = (other.clone(), id.clone());
        cluster.on_step(step, move |cluster| act(cluster, &victim));
        let outcome = delete(&rbd, &id);
        if step > cluster.steps().len() as u64 {
            return;
        }
        check(&cluster, &id, outcome, step);
    }
}

fn object(cluster: &FakeCluster, id: &VolumeId) -> Option<String> {
    cluster.here().info(ImageRef::Name(&id.object)).unwrap().map(|info| info.id)
}

#[test]
fn two_delete_the_same_volume() {
    for size in [1, 5] {
        at_every_step(
            size,
            |cluster, id| drop(delete(&controller(cluster, TWO), id)),
            |cluster, id, outcome, step| {
                outcome.unwrap_or_else(|error| panic!("step {step}: {error}"));
                let two = controller(cluster, TWO);
                delete(&two, id).unwrap();
                cluster.advance(Duration::from_secs(400));
                two.recover().unwrap();
                do_jobs(&two);
                assert_eq!(cluster.dump(), "", "step {step}");
            },
        );
    }
}

#[test]
fn a_new_volume_of_the_name_is_never_lost() {
    // The other controller deletes the volume and makes a new one, which it acknowledges.
    let acknowledged = std::sync::Arc::new(parking_lot::Mutex::new(None));
    for size in [1, 5] {
        let kept = std::sync::Arc::clone(&acknowledged);
        at_every_step(
            size,
            move |cluster, id| {
                let two = controller(cluster, TWO);
                let deleted = delete(&two, id).is_ok();
                let new = create(&two, &wanted("a", size * GIB, None)).ok().filter(|_| deleted);
                *kept.lock() = new.and_then(|new| new.id.incarnation);
            },
            |cluster, id, outcome, step| {
                let new = acknowledged.lock().take();
                if new.is_some() {
                    assert_eq!(object(cluster, id), new, "step {step}: {outcome:?}");
                    assert_ne!(new, id.incarnation);
                }
            },
        );
    }
}

/// The snapshot is taken after the look for snapshots, and before the rename.
#[test]
fn a_snapshot_that_a_large_image_got_last_lives_on() {
    for (look, strictly) in [(2, false), (2, true), (3, false), (4, false)] {
        let (cluster, rbd, id) = with_volume(5);
        let (taken, source) = (Arc::new(parking_lot::Mutex::new(None)), id.clone());
        let kept = Arc::clone(&taken);
        cluster.on_step(look, move |cluster| {
            *kept.lock() = snapshot(&controller(cluster, TWO), &source, "s").ok();
        });
        assert_eq!(if strictly { release(&rbd, &id) } else { delete(&rbd, &id) }.unwrap(), Deleted::Gone);
        do_jobs(&rbd);
        assert_usable(&cluster, &id, &taken.lock().take().unwrap().id, look);
    }
}

#[test]
fn a_snapshot_that_was_taken_is_never_lost() {
    for size in [1, 5] {
        for dies in [false, true] {
            let acknowledged = Arc::new(parking_lot::Mutex::new(None));
            let kept = Arc::clone(&acknowledged);
            at_every_step(
                size,
                move |cluster, id| {
                    *kept.lock() = snapshot(&controller(cluster, TWO), id, "s").ok();
                    // The controller that deletes has no time to look.
                    if dies {
                        cluster.crash_at(1, Fault::Before);
                    }
                },
                |cluster, id, _, step| {
                    cluster.restart();
                    let rbd = controller(cluster, ONE);
                    rbd.recover().unwrap();
                    do_jobs(&rbd);
                    if let Some(taken) = acknowledged.lock().take() {
                        assert_usable(cluster, id, &taken.id, step);
                    }
                },
            );
        }
    }
}

/// Asserts that a snapshot can be copied, and that nothing is left once all is deleted.
fn assert_usable(cluster: &FakeCluster, id: &VolumeId, taken: &SnapshotId, step: u64) {
    let (rbd, dump) = (controller(cluster, TWO), cluster.dump());
    let copy = create(&rbd, &wanted("copy", 0, Some(Origin::Snapshot(taken.clone()))));
    let copy = copy.unwrap_or_else(|error| panic!("step {step}: {error}\n{dump}")).id;
    let source = rbd.snapshots().find(&call(), taken, &Secrets::default()).unwrap().unwrap().source;
    assert_eq!((&source.object, &source.incarnation), (&id.object, &id.incarnation), "step {step}");
    delete(&rbd, &copy).unwrap();
    delete_snapshot(&rbd, taken).unwrap();
    // The volume may still exist, if its deletion failed where it was interrupted.
    cluster.advance(Duration::from_secs(400));
    delete(&rbd, id).unwrap();
    cluster.advance(Duration::from_secs(400));
    rbd.recover().unwrap();
    // The copy goes first, and then its source.
    (0..2).for_each(|_| do_jobs_due_within(&rbd, RETRY));
    assert_eq!(cluster.dump(), "", "step {step}:\n{dump}");
}

#[test]
fn what_was_published_is_not_deleted() {
    for size in [1, 5] {
        let given = std::sync::Arc::new(parking_lot::Mutex::new(false));
        let seen = std::sync::Arc::clone(&given);
        at_every_step(
            size,
            move |cluster, id| {
                let there = object(cluster, id) == id.incarnation;
                *seen.lock() = there && publish(cluster, id);
            },
            |cluster, id, outcome, step| {
                if std::mem::take(&mut *given.lock()) {
                    assert!(outcome.is_err(), "step {step}");
                    assert_eq!(object(cluster, id), id.incarnation, "step {step}");
                }
            },
        );
        // The volume is published a moment before its deletion.
        let cluster = FakeCluster::new();
        let rbd = controller(&cluster, ONE);
        let id = create(&rbd, &wanted("a", size * GIB, None)).unwrap().id;
        assert!(publish(&cluster, &id));
        assert!(delete(&rbd, &id).is_err());
        assert_eq!(object(&cluster, &id), id.incarnation);
    }
}

#[test]
fn a_controller_that_died_keeps_others_waiting_only_for_a_while() {
    let cluster = FakeCluster::new();
    let (one, two) = (controller(&cluster, ONE), controller(&cluster, TWO));
    let id = create(&one, &wanted("a", GIB, None)).unwrap().id;
    cluster.crash_at(2, Fault::Before);
    assert!(delete(&one, &id).is_err());
    cluster.restart();
    let refused = delete(&two, &id).unwrap_err();
    assert!(refused.message().contains("another controller"), "{refused}");
    cluster.advance(Duration::from_secs(400));
    assert_eq!(delete(&two, &id).unwrap(), Deleted::Gone);
    assert_eq!(cluster.dump(), "");
}
