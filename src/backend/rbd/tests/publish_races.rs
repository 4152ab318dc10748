//! Two controllers at the same volume at the same time, and one that dies.

use std::sync::atomic::{AtomicBool, Ordering};

use super::publish::{block, given, publish, refused, scene, unpublish};
use super::*;
use crate::backend::Publication;
use crate::backend::rbd::tool::fake::Fault;
use crate::error::Kind;

const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::HalfMade];

/// The most steps a publication takes.
const STEPS: u64 = 12;

#[test]
fn of_two_single_writers_at_most_one_is_let_in_wherever_they_meet() {
    for mode in [Mode::SingleNodeWriter, Mode::SingleNodeReaderOnly, Mode::MultiNodeSingleWriter] {
        for k in 1..=STEPS {
            let it = scene();
            let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
            let answer = Arc::new(parking_lot::Mutex::new(None));
            let told = Arc::clone(&answer);
            it.cluster
                .on_step(k, move |_| drop(told.lock().replace(publish(&other, &id, "n2", mode, false))));
            let ours = it.publish("n1", mode, false);
            let theirs = answer.lock().take();
            let won: Vec<&str> = [(ours.is_ok(), "n1"), (theirs.is_some_and(|it| it.is_ok()), "n2")]
                .into_iter()
                .filter_map(|(won, node)| won.then_some(node))
                .collect();
            assert!(won.len() < 2, "{mode:?} at step {k}: both");
            assert_eq!(given(&it.cluster), won, "{mode:?} at step {k}");
        }
    }
}

#[test]
fn the_same_publication_through_two_controllers_is_given_to_both_wherever_they_meet() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter] {
        for k in 1..=STEPS {
            let it = scene();
            let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
            it.cluster.on_step(k, move |_| drop(publish(&other, &id, "n1", mode, false).unwrap()));
            it.publish("n1", mode, false).unwrap_or_else(|error| panic!("{mode:?} at step {k}: {error}"));
            if it.cluster.steps().len() < k as usize {
                break;
            }
            unpublish(&it.rbd, &it.id, Some("n1")).unwrap();
            assert!(!it.cluster.dump().contains("lock"), "{mode:?} at step {k}: {}", it.cluster.dump());
        }
    }
}

#[test]
fn a_client_that_comes_before_the_last_look_is_seen_by_both_controllers() {
    for k in 1..=3 {
        let it = scene();
        let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
        it.cluster.on_step(k, move |cluster| {
            cluster.watch(&cluster.at(), &id.object, "10.0.0.9:0/42");
            refused(
                publish(&other, &id, "n1", Mode::SingleNodeWriter, false),
                Kind::Precondition,
                &["10.0.0.9"],
            );
        });
        refused(it.publish("n1", Mode::SingleNodeWriter, false), Kind::Precondition, &["10.0.0.9"]);
        assert!(!it.cluster.dump().contains("lock"), "step {k}: {}", it.cluster.dump());
    }
}

#[test]
fn a_volume_that_vanishes_meanwhile_is_not_found_and_leaves_nothing() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly] {
        for again in [false, true] {
            // The volume is deleted before the lock is taken: afterwards no controller deletes it.
            let it = scene();
            let object = it.id.object.clone();
            it.cluster.on_step(1, move |cluster| {
                cluster.here().remove(&object).unwrap();
                if again {
                    create(&controller(cluster, TWO), &wanted("a", GIB, None)).unwrap();
                }
            });
            refused(it.publish("n1", mode, false), Kind::NotFound, &[&it.id.to_string()]);
            let left = if again { format!("image rbd/{} {GIB}", it.id.object) } else { String::new() };
            assert_eq!(it.cluster.dump(), left, "{mode:?}");
        }
    }
}

#[test]
fn one_who_was_kept_waiting_for_too_long_gets_nothing() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeSingleWriter] {
        let it = scene();
        let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
        // The first controller has asked for the lock, and looks which clients have the image open.
        it.cluster.on_step(4, move |cluster| {
            cluster.advance(Duration::from_secs(61));
            publish(&other, &id, "n2", mode, false).unwrap();
        });
        refused(it.publish("n1", mode, false), Kind::Precondition, &["\"n2\""]);
        assert_eq!(given(&it.cluster), ["n2"], "{mode:?}");
    }
}

/// The client gives up, and the orchestrator has the volume taken back through another controller.
#[test]
fn what_nobody_waits_for_any_more_is_not_given() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter] {
        for k in 1..=STEPS {
            let it = scene();
            let (id, other, gone) =
                (it.id.clone(), controller(&it.cluster, TWO), Arc::new(AtomicBool::new(false)));
            let (gives_up, expired) = (Arc::clone(&gone), Arc::clone(&gone));
            it.cluster.on_step(k, move |_| {
                gives_up.store(true, Ordering::Relaxed);
                unpublish(&other, &id, Some("n1")).unwrap();
            });
            let call = Call::new("test", move || expired.load(Ordering::Relaxed));
            let publication = Publication { node: "n1".into(), capability: block(mode), read_only: false };
            let _ = it.rbd.publisher().publish(&call, &it.id, &publication, &Secrets::default());
            if !gone.load(Ordering::Relaxed) {
                break;
            }
            let given = given(&it.cluster);
            assert!(
                given.is_empty(),
                "UNSAFE: {mode:?}, step {k}: published to {given:?} after it was taken back"
            );
        }
    }
}

#[test]
fn a_crash_at_any_step_is_healed_by_a_repeat() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter] {
        for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=STEPS).map(move |k| (fault, k))) {
            let it = scene();
            it.cluster.crash_at(k, fault);
            let outcome = it.publish("n1", mode, false);
            if it.cluster.fault_pending() {
                outcome.unwrap();
                break;
            }
            it.cluster.restart();
            // A daemon that remembers nothing.
            let rbd = controller(&it.cluster, ONE);
            publish(&rbd, &it.id, "n1", mode, false)
                .unwrap_or_else(|error| panic!("{mode:?}, {fault:?} at {k}: {error}"));
            it.cluster.advance(Duration::from_secs(61));
            assert_eq!(given(&it.cluster), ["n1"], "{mode:?}, {fault:?} at {k}");
            unpublish(&rbd, &it.id, None).unwrap();
            assert_eq!(it.cluster.dump(), format!("image rbd/{} {GIB}", it.id.object));
        }
    }
}

#[test]
fn a_crash_beside_a_foreign_client_never_gives_it_to_two() {
    for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=STEPS).map(move |k| (fault, k))) {
        let it = scene();
        it.watch("10.0.0.9:0/42");
        it.cluster.crash_at(k, fault);
        assert!(it.publish("n1", Mode::SingleNodeWriter, false).is_err());
        if it.cluster.fault_pending() {
            break;
        }
        it.cluster.restart();
        let rbd = controller(&it.cluster, ONE);
        refused(
            publish(&rbd, &it.id, "n1", Mode::SingleNodeWriter, false),
            Kind::Precondition,
            &["10.0.0.9"],
        );
    }
}

#[test]
fn a_crash_at_any_step_of_taking_back_is_healed_by_a_repeat() {
    for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=STEPS).map(move |k| (fault, k))) {
        let it = scene();
        it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        it.cluster.crash_at(k, fault);
        let outcome = unpublish(&it.rbd, &it.id, Some("n1"));
        if it.cluster.fault_pending() {
            outcome.unwrap();
            break;
        }
        it.cluster.restart();
        unpublish(&controller(&it.cluster, ONE), &it.id, Some("n1")).unwrap();
        assert_eq!(it.cluster.dump(), format!("image rbd/{} {GIB}", it.id.object));
    }
}

#[test]
fn a_node_that_died_with_its_controller_does_not_block_others_for_long() {
    let it = scene();
    // After the first lock.
    it.cluster.crash_at(3, Fault::Before);
    assert!(it.publish("n1", Mode::SingleNodeWriter, false).is_err());
    it.cluster.restart();
    refused(
        it.publish("n2", Mode::SingleNodeWriter, false),
        Kind::Unavailable,
        &["\"n1\"", "at this moment"],
    );
    it.cluster.advance(Duration::from_secs(60));
    it.publish("n2", Mode::SingleNodeWriter, false).unwrap();
    assert!(it.cluster.here().holders(crate::backend::rbd::tool::LockTarget::Header(&it.image())).is_ok());
}
