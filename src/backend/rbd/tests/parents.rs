//! Deleted volumes that only clones need: retained, and removed with the last of them. Those of 0.1.0 are in
//! the trash, where librbd leaves some.

use std::sync::Arc;

use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::run::run;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::backend::rbd::tool::*;
use crate::jobs::{RETRY, Requeue};

use super::delete::{delete, delete_snapshot, with_volume};
use super::*;

/// A volume with two clones of its snapshot, deleted with it.
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

/// The same as 0.1.0 left it: in the trash, from where librbd does not remove it.
fn trashed_parent_with_clones(size: u64) -> (FakeCluster, Rbd, [VolumeId; 2]) {
    let (cluster, rbd, clones) = parent_with_clones(size);
    cluster.keep_for_clones(&cluster.at(), &retained(&cluster)[0]);
    cluster.leave_parents();
    assert_eq!(parents_in_trash(&cluster).len(), 1, "{}", cluster.dump());
    (cluster, rbd, clones)
}

fn retained(cluster: &FakeCluster) -> Vec<String> {
    let images = cluster.names(&call(), &cluster.at()).unwrap();
    images.into_iter().filter(|name| names::id_of_retained(name).is_some()).collect()
}

/// What the trash keeps for clones.
fn parents_in_trash(cluster: &FakeCluster) -> Vec<Trashed> {
    let trash = cluster.trash(&call(), &cluster.at()).unwrap();
    trash.into_iter().filter(|it| it.source == TrashSource::Clones).collect()
}

/// Does what is due soon after a deletion.
fn do_jobs_soon(rbd: &Rbd) {
    do_jobs_due_within(rbd, timing().parent_check);
}

#[test]
fn whoever_removes_the_last_clone_looks_after_the_parent() {
    for parent_with_clones in [parent_with_clones, trashed_parent_with_clones] {
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
}

#[test]
fn a_parent_is_kept_as_long_as_it_has_a_clone() {
    for parent_with_clones in [parent_with_clones, trashed_parent_with_clones] {
        let (cluster, rbd, [first, second]) = parent_with_clones(1);
        delete(&rbd, &first).unwrap();
        let is = cluster.dump();
        do_jobs_soon(&rbd);
        let job = Job::CheckLeftovers { cluster: "ceph".into() };
        let again = run(&rbd.context, &call(), &mut job.clone()).unwrap();
        assert_eq!(again, Requeue::Never);
        assert_eq!(cluster.dump(), is);
        delete(&rbd, &second).unwrap();
        do_jobs_soon(&rbd);
        assert_eq!(cluster.dump(), "");
    }
}

#[test]
fn what_others_have_left_is_found_at_the_start_and_later() {
    for parent_with_clones in [parent_with_clones, trashed_parent_with_clones] {
        for later in [false, true] {
            let (cluster, _, clones) = parent_with_clones(1);
            let rbd = controller(&cluster, ONE);
            if later {
                rbd.recover().unwrap();
                do_jobs(&rbd);
            }
            for clone in &clones {
                cluster.remove(&call(), &cluster.at(), &clone.object).unwrap();
            }
            assert_ne!(cluster.dump(), "");
            if !later {
                rbd.recover().unwrap();
            }
            do_jobs_due_within(&rbd, if later { timing().parents_interval } else { Duration::ZERO });
            do_jobs_soon(&rbd);
            assert_eq!(cluster.dump(), "", "later: {later}");
        }
    }
}

/// A removal that is killed may have let go of the parent: then nothing leads from one to the other any more.
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
            assert_eq!(cluster.dump(), "", "{fault:?} at step {step}");
        }
    }
}

/// As above, and the clone is a copy that is not finished: what is left of it tells no parent.
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
        // Also where only its creation's answer is lost.
        let id = VolumeId { object: volume_object("default", "copy"), incarnation: None, ..source.clone() };
        if copy.is_ok() || cluster.dump().contains(&id.object) {
            delete(&rbd, &id).unwrap();
        }
        for _ in 0..3 {
            do_jobs_due_within(&rbd, RETRY);
        }
        assert_eq!(cluster.dump(), "", "killed at step {step}, and at step {later} of its removal");
    }
}

/// A removal that is killed may have let go of the parent's snapshot, which stays in the trash then.
#[test]
fn a_parent_goes_also_with_a_snapshot_that_no_clone_reads_from() {
    for parent_with_clones in [parent_with_clones, trashed_parent_with_clones] {
        let (cluster, rbd, clones) = parent_with_clones(1);
        cluster.leave_snapshots();
        for clone in &clones {
            delete(&rbd, clone).unwrap();
        }
        assert!(cluster.dump().contains("snapshot"), "{}", cluster.dump());
        do_jobs_soon(&rbd);
        assert_eq!(cluster.dump(), "");
    }
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
fn a_parent_that_a_client_has_open_is_looked_at_again() {
    let (cluster, rbd, clones) = trashed_parent_with_clones(1);
    let parent = parents_in_trash(&cluster).remove(0);
    cluster.watch_id(&parent.id, "10.0.0.9:0/1");
    for clone in &clones {
        delete(&rbd, clone).unwrap();
    }
    let mut job = Job::CheckParent { at: cluster.at(), image: parent.id, in_trash: true };
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::After(RETRY));
    cluster.unwatch("10.0.0.9:0/1");
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::Never);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn large_ones_go_with_or_without_a_manager() {
    for parent_with_clones in [parent_with_clones, trashed_parent_with_clones] {
        for manager in [true, false] {
            let (cluster, rbd, clones) = parent_with_clones(5);
            cluster.set_manager(manager);
            for clone in &clones {
                delete(&rbd, clone).unwrap();
            }
            do_jobs(&rbd);
            cluster.run_manager();
            do_jobs_soon(&rbd);
            do_jobs_soon(&rbd);
            cluster.run_manager();
            assert_eq!(cluster.dump(), "", "manager: {manager}");
        }
    }
}

#[test]
fn images_of_others_are_left_alone() {
    let cluster = FakeCluster::new();
    let (call, at) = (call(), cluster.at());
    let image = NewImage { name: "web", size: GIB, layout: &Layout::default(), metadata: &[] };
    cluster.create(&call, &at, &image).unwrap();
    cluster.create_snapshot(&call, &at, "web", "s").unwrap();
    let layout = Layout::default();
    let clone = NewClone { from: &at, image: "web", snapshot: "s", to: &at, name: "copy", layout: &layout };
    cluster.clone_image(&call, &clone).unwrap();
    cluster.remove_snapshot(&call, &at, ImageRef::Name("web"), "s").unwrap();
    cluster.keep_for_clones(&at, "web");
    cluster.leave_parents();
    cluster.remove(&call, &at, "copy").unwrap();
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert_eq!(parents_in_trash(&cluster).len(), 1);
}

/// Its clones go on reading from it there, and librbd says of it what it says of one that it keeps for them.
#[test]
fn a_parent_that_was_put_into_the_trash_by_hand_stays() {
    let (cluster, rbd, source) = with_volume(1);
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
    cluster.move_to_trash(&call(), &cluster.at(), &source.object).unwrap();
    delete(&rbd, &copy).unwrap();
    do_jobs_soon(&rbd);
    do_jobs(&rbd);
    let trash = cluster.trash(&call(), &cluster.at()).unwrap();
    assert_eq!(
        trash.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(),
        [source.object.as_str()],
        "UNSAFE: an operator's image was purged"
    );
}
