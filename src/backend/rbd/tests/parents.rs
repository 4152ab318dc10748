//! Deleted volumes that are kept in the trash for their clones, and that librbd leaves there.

use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::run::run;
use crate::backend::rbd::tool::fake::FakeCluster;
use crate::backend::rbd::tool::*;
use crate::jobs::{RETRY, Requeue};

use super::delete::{delete, delete_snapshot, with_volume};
use super::*;

/// A volume with two clones of its snapshot, deleted with it. Its image is in the trash.
fn parent_with_clones(size: u64) -> (FakeCluster, Rbd, [VolumeId; 2]) {
    let (cluster, rbd, source) = with_volume(size);
    let taken = snapshot(&rbd, &source, "s").unwrap().id;
    let origin = || Some(Origin::Snapshot(taken.clone()));
    let clones =
        ["first", "second"].map(|name| create(&rbd, &wanted(name, size * GIB, origin())).unwrap().id);
    delete(&rbd, &source).unwrap();
    delete_snapshot(&rbd, &taken).unwrap();
    assert_eq!(parents(&cluster).len(), 1, "{}", cluster.dump());
    (cluster, rbd, clones)
}

/// What the trash keeps for clones.
fn parents(cluster: &FakeCluster) -> Vec<Trashed> {
    let trash = cluster.trash(&call(), &cluster.at()).unwrap();
    trash.into_iter().filter(|it| it.by_clones).collect()
}

/// Does what is due soon after a deletion.
fn do_jobs_soon(rbd: &Rbd) {
    do_jobs_due_within(rbd, timing().parent_check);
}

#[test]
fn whoever_removes_the_last_clone_looks_after_the_parent() {
    let (cluster, one, [first, second]) = parent_with_clones(1);
    let two = controller(&cluster, TWO);
    cluster.leave_parents();
    delete(&one, &first).unwrap();
    delete(&two, &second).unwrap();
    assert_eq!(parents(&cluster).len(), 1, "librbd has left it");
    do_jobs_soon(&two);
    assert_eq!(cluster.dump(), "");
    do_jobs_soon(&one);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_parent_is_kept_as_long_as_it_has_a_clone() {
    let (cluster, rbd, [first, second]) = parent_with_clones(1);
    cluster.leave_parents();
    delete(&rbd, &first).unwrap();
    do_jobs_soon(&rbd);
    assert_eq!(parents(&cluster).len(), 1);
    let job = Job::CheckParents { cluster: "ceph".into() };
    let again = run(&rbd.context, &call(), &mut job.clone()).unwrap();
    assert_eq!(again, Requeue::After(timing().parents_interval));
    assert_eq!(parents(&cluster).len(), 1);
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
        cluster.leave_parents();
        for clone in &clones {
            cluster.remove(&call(), &cluster.at(), &clone.object).unwrap();
        }
        assert_eq!(parents(&cluster).len(), 1, "librbd has left it");
        if !later {
            rbd.recover().unwrap();
        }
        do_jobs_due_within(&rbd, if later { timing().parents_interval } else { Duration::ZERO });
        assert_eq!(cluster.dump(), "", "later: {later}");
    }
}

#[test]
fn a_parent_that_a_client_has_open_is_looked_at_again() {
    let (cluster, rbd, clones) = parent_with_clones(1);
    cluster.leave_parents();
    let parent = parents(&cluster).remove(0);
    cluster.watch_id(&parent.id, "10.0.0.9:0/1");
    for clone in &clones {
        delete(&rbd, clone).unwrap();
    }
    let mut job = Job::CheckParent { at: cluster.at(), image: parent.id };
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::After(RETRY));
    cluster.unwatch("10.0.0.9:0/1");
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::Never);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn large_ones_are_purged_by_the_daemon_with_or_without_a_manager() {
    for manager in [true, false] {
        let (cluster, rbd, clones) = parent_with_clones(5);
        cluster.set_manager(manager);
        cluster.leave_parents();
        for clone in &clones {
            delete(&rbd, clone).unwrap();
        }
        do_jobs(&rbd);
        cluster.run_manager();
        do_jobs_soon(&rbd);
        let job = Job::CheckParents { cluster: "ceph".into() };
        run(&rbd.context, &call(), &mut job.clone()).unwrap();
        assert_eq!(cluster.dump(), "", "manager: {manager}");
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
    cluster.remove(&call, &at, "web").unwrap();
    cluster.leave_parents();
    cluster.remove(&call, &at, "copy").unwrap();
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert_eq!(parents(&cluster).len(), 1);
}
