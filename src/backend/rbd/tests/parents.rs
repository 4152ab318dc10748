//! Deleted volumes that only clones need: retained, and removed with the last of them.

use std::sync::Arc;

use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::run::run;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::jobs::{RETRY, Requeue};

use super::delete::{delete, delete_snapshot, with_volume};
use super::*;

/// Two clones of a snapshot of a volume; volume and snapshot are deleted.
fn parent_with_clones(size: u64) -> (FakeCluster, Rbd, [VolumeId; 2]) {
    let (cluster, rbd, source) = with_volume(size);
    let taken = snapshot(&rbd, &source, "s").unwrap().id;
    let origin = || Some(Origin::Snapshot(taken.clone()));
    let clones =
        ["first", "second"].map(|name| create(&rbd, &wanted(name, size * GIB, origin())).unwrap().id);
    delete(&rbd, &source).unwrap();
    delete_snapshot(&rbd, &taken).unwrap();
    assert_eq!(retained(&cluster).len(), 1, "{}", cluster.dump());
    (cluster, rbd, clones)
}

fn retained(cluster: &FakeCluster) -> Vec<String> {
    let images = cluster.here().names().unwrap();
    images.into_iter().filter(|name| names::id_of_retained(name).is_some()).collect()
}

/// Does the hourly look.
fn sweep(cluster: &FakeCluster, rbd: &Rbd) {
    // The lock on a retained image runs out.
    cluster.advance(Duration::from_secs(400));
    rbd.context.jobs.add_now(Job::CheckLeftovers { cluster: "ceph".into() });
    do_jobs(rbd);
}

/// Does what is due soon after a deletion.
fn do_jobs_soon(rbd: &Rbd) {
    do_jobs_due_within(rbd, timing().parent_check);
}

#[test]
fn whoever_removes_the_last_clone_looks_after_the_parent() {
    let (cluster, one, [first, second]) = parent_with_clones(1);
    let two = controller(&cluster, TWO);
    delete(&one, &first).unwrap();
    delete(&two, &second).unwrap();
    assert!(!cluster.dump().contains("snapshot"), "{}", cluster.dump());
    do_jobs_soon(&two);
    assert_eq!(cluster.dump(), "");
    do_jobs_soon(&one);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_parent_is_kept_as_long_as_it_has_a_clone() {
    let (cluster, rbd, [first, second]) = parent_with_clones(1);
    delete(&rbd, &first).unwrap();
    let is = cluster.dump();
    do_jobs_soon(&rbd);
    let mut job = Job::CheckLeftovers { cluster: "ceph".into() };
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::Never);
    do_jobs_soon(&rbd);
    assert_eq!(cluster.dump(), is);
    delete(&rbd, &second).unwrap();
    do_jobs_soon(&rbd);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn what_others_have_left_is_found_at_the_start_and_later() {
    for later in [false, true] {
        let (cluster, _, clones) = parent_with_clones(1);
        let rbd = controller(&cluster, ONE);
        if later {
            rbd.recover().unwrap();
            do_jobs(&rbd);
        }
        for clone in &clones {
            cluster.here().remove(&clone.object).unwrap();
        }
        assert_ne!(cluster.dump(), "");
        if !later {
            rbd.recover().unwrap();
        }
        do_jobs_due_within(&rbd, if later { timing().sweep_interval } else { Duration::ZERO });
        assert_eq!(cluster.dump(), "", "later: {later}");
    }
}

/// A killed removal may have let go of the parent. Then nothing leads from the clone to the parent any more,
/// and the next sweep finds the parent.
#[test]
fn a_parent_goes_also_where_the_removal_of_its_last_clone_is_killed() {
    for fault in [Fault::Before, Fault::HalfMade, Fault::HalfMoved, Fault::After] {
        for step in 1.. {
            let (cluster, rbd, [first, second]) = parent_with_clones(1);
            delete(&rbd, &first).unwrap();
            do_jobs_soon(&rbd);
            cluster.fail_at(step, fault);
            let _ = delete(&rbd, &second);
            if cluster.fault_pending() {
                break;
            }
            delete(&rbd, &second).unwrap();
            do_jobs_soon(&rbd);
            sweep(&cluster, &rbd);
            assert_eq!(cluster.dump(), "", "{fault:?} at step {step}");
        }
    }
}

/// As above, but the clone is an unfinished copy: what is left of it does not name a parent.
#[test]
fn a_parent_goes_also_with_a_copy_whose_removal_is_killed() {
    let kills = (1..=10).flat_map(|step| (1..=6).map(move |later| (step, later)));
    for (step, later) in kills {
        let (cluster, rbd, source) = with_volume(1);
        rbd.recover().unwrap();
        do_jobs(&rbd);
        let taken = snapshot(&rbd, &source, "s").unwrap().id;
        cluster.fail_at(step, Fault::Before);
        let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Snapshot(taken.clone()))));
        cluster.restart();
        cluster.fail_at(later, Fault::HalfMade);
        do_jobs_due_within(&rbd, timing().dead_client);
        cluster.restart();
        delete(&rbd, &source).unwrap();
        delete_snapshot(&rbd, &taken).unwrap();
        // Also if only the answer to its creation is lost.
        let id = VolumeId { object: volume_object("default", "copy"), incarnation: None, ..source.clone() };
        if copy.is_ok() || cluster.dump().contains(&id.object) {
            delete(&rbd, &id).unwrap();
        }
        do_jobs_due_within(&rbd, RETRY);
        sweep(&cluster, &rbd);
        assert_eq!(cluster.dump(), "", "killed at step {step}, and at step {later} of its removal");
    }
}

/// A killed removal may have let go of the parent's snapshot, which then stays in the trash.
#[test]
fn a_parent_goes_also_with_a_snapshot_that_no_clone_reads_from() {
    let (cluster, rbd, clones) = parent_with_clones(1);
    cluster.leave_snapshots();
    for clone in &clones {
        delete(&rbd, clone).unwrap();
    }
    assert!(cluster.dump().contains("snapshot"), "{}", cluster.dump());
    do_jobs_soon(&rbd);
    assert_eq!(cluster.dump(), "");
}

/// As above, where the clones go before their source does.
#[test]
fn a_volume_with_a_snapshot_that_no_clone_reads_from_is_not_retained_for_long() {
    let (cluster, rbd, source) = with_volume(1);
    cluster.leave_snapshots();
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
    delete(&rbd, &copy).unwrap();
    delete(&rbd, &source).unwrap();
    assert_eq!(retained(&cluster).len(), 1, "{}", cluster.dump());
    do_jobs_soon(&rbd);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_parent_goes_that_loses_its_last_clone_while_it_is_deleted() {
    for step in 1.. {
        let (cluster, rbd, source) = with_volume(1);
        let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
        cluster.forget_steps();
        let other = Arc::new(controller(&cluster, TWO));
        let of_other = Arc::clone(&other);
        cluster.on_step(step, move |_| {
            delete(&of_other, &copy).unwrap();
            do_jobs_soon(&of_other);
        });
        delete(&rbd, &source).unwrap();
        if step > cluster.steps().len() as u64 {
            break;
        }
        do_jobs_soon(&rbd);
        do_jobs_soon(&other);
        assert_eq!(cluster.dump(), "", "step {step}");
    }
}

#[test]
fn two_controllers_remove_a_parent_once() {
    for step in 1.. {
        let (cluster, one, [first, second]) = parent_with_clones(1);
        let two = Arc::new(controller(&cluster, TWO));
        let of_two = Arc::clone(&two);
        delete(&one, &first).unwrap();
        delete(&two, &second).unwrap();
        cluster.forget_steps();
        cluster.on_step(step, move |_| do_jobs_soon(&of_two));
        do_jobs_soon(&one);
        if step > cluster.steps().len() as u64 {
            break;
        }
        do_jobs_soon(&two);
        assert_eq!(cluster.dump(), "", "step {step}");
    }
}

#[test]
fn a_large_parent_goes_too() {
    let (cluster, rbd, clones) = parent_with_clones(5);
    for clone in &clones {
        delete(&rbd, clone).unwrap();
    }
    do_jobs(&rbd);
    do_jobs_soon(&rbd);
    assert_eq!(cluster.dump(), "");
}

/// Its clones go on reading from it there.
#[test]
fn a_parent_that_was_put_into_the_trash_by_hand_stays() {
    let (cluster, rbd, source) = with_volume(1);
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
    cluster.put_aside(&cluster.at(), &source.object);
    delete(&rbd, &copy).unwrap();
    do_jobs_soon(&rbd);
    do_jobs(&rbd);
    let trash = cluster.here().trash().unwrap();
    assert_eq!(
        trash.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        [source.object.as_str()],
        "UNSAFE: an operator's image was purged"
    );
}
