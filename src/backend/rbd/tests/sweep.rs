//! What is swept up after a start, and what is not.

use std::sync::mpsc;
use std::time::SystemTime;

use crate::backend::ceph::{ClusterAccess, PoolRef};
use crate::backend::rbd::jobs::run::run;
use crate::backend::rbd::jobs::sweep::sweep_pool;
use crate::backend::rbd::jobs::{CopiedVolume, Job};
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::backend::rbd::tool::*;
use crate::jobs::{RETRY, Requeue};

use super::delete::{delete, with_volume};
use super::*;

/// A key, and the digits that were drawn for an attempt.
const DIGITS: &str = "abcdefghij234-aaaaaaaa";

fn image(cluster: &FakeCluster, name: &str) {
    let image = NewImage { name, size: GIB, layout: &Layout::default(), metadata: &[] };
    assert_ne!(cluster.here().create(&image).unwrap(), MadeImage::Taken);
}

fn sweep_soon(rbd: &Rbd, cluster: &str) {
    rbd.context.jobs.add_now(Job::Sweep { cluster: cluster.into() });
}

fn sweep(cluster: &FakeCluster, rbd: &Rbd) -> crate::error::Result<()> {
    let swept = sweep_pool(&rbd.context.pool(&call(), &cluster.at()));
    do_jobs(rbd);
    swept
}

#[test]
fn copies_that_were_never_finished_go_unless_another_may_be_making_them() {
    let cluster = FakeCluster::new();
    cluster.set_now(SystemTime::now());
    let (ours, theirs, making) = (
        format!("csi-tmp-{ONE}-{DIGITS}"),
        format!("csi-tmp-{TWO}-{DIGITS}"),
        format!("csi-tmp-{ONE}-{}", DIGITS.replace('a', "b")),
    );
    [&ours, &theirs, &making].into_iter().for_each(|name| image(&cluster, name));
    image(&cluster, "csi-tmp-of-an-operator");
    let rbd = controller(&cluster, ONE);
    let working = rbd.context.pool(&call(), &cluster.at()).lock_internal(&making).unwrap();
    sweep(&cluster, &rbd).unwrap();
    let left = cluster.dump();
    assert!(!left.contains(&ours) && left.contains(&theirs) && left.contains(&making), "{left}");
    drop(working);
    sweep(&cluster, &rbd).unwrap();
    assert!(!cluster.dump().contains(&making));
    assert!(cluster.dump().contains("csi-tmp-of-an-operator"));
}

#[test]
fn copies_of_another_controller_go_after_a_day() {
    let cluster = FakeCluster::new();
    cluster.set_now(SystemTime::now() - Duration::from_secs(25 * 60 * 60));
    image(&cluster, &format!("csi-tmp-{TWO}-{DIGITS}"));
    sweep(&cluster, &controller(&cluster, ONE)).unwrap();
    assert_eq!(cluster.dump(), "");
}

#[test]
fn copies_whose_removal_was_killed_go() {
    for tag in [ONE, TWO] {
        let cluster = FakeCluster::new();
        let name = format!("csi-tmp-{tag}-{DIGITS}");
        image(&cluster, &name);
        cluster.fail_at(1, Fault::HalfMade);
        cluster.here().remove(&name).unwrap_err();
        assert!(cluster.here().list().unwrap().is_empty());
        assert!(!cluster.dump().is_empty());
        sweep(&cluster, &controller(&cluster, ONE)).unwrap();
        assert_eq!(cluster.dump(), "", "{tag}");
    }
}

#[test]
fn all_that_is_left_of_a_copy_goes_once_nobody_makes_it() {
    let cluster = FakeCluster::new();
    let (rbd, name) = (controller(&cluster, ONE), format!("csi-tmp-{ONE}-{DIGITS}"));
    for _ in 0..3 {
        image(&cluster, &name);
        cluster.fail_at(1, Fault::HalfMade);
        cluster.here().remove(&name).unwrap_err();
    }
    let working = rbd.context.pool(&call(), &cluster.at()).lock_internal(&name).unwrap();
    rbd.context.jobs.add_now(Job::RemoveTemporary {
        at: cluster.at(),
        temporary: name.clone(),
        source: None,
    });
    let soon = Duration::from_secs(100);
    do_jobs_due_within(&rbd, soon);
    drop(working);
    assert!(!cluster.dump().is_empty());
    do_jobs_due_within(&rbd, soon);
    assert_eq!(cluster.dump(), "");
    let waiting = rbd.context.jobs.queue.waiting();
    assert!(waiting.is_empty(), "{waiting:?}");
}

#[test]
fn a_copy_that_is_still_open_is_tried_again_and_keeps_nothing_else() {
    let cluster = FakeCluster::new();
    let (open, other) =
        (format!("csi-tmp-{ONE}-{DIGITS}"), format!("csi-tmp-{ONE}-{}", DIGITS.replace('a', "b")));
    image(&cluster, &open);
    image(&cluster, &other);
    cluster.watch(&cluster.at(), &open, "10.0.0.7:0/1");
    let rbd = controller(&cluster, ONE);
    sweep(&cluster, &rbd).unwrap();
    assert_eq!(cluster.dump(), format!("image rbd/{open} {GIB}"));
    cluster.unwatch("10.0.0.7:0/1");
    do_jobs_due_within(&rbd, RETRY);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn snapshots_that_killed_copies_were_made_from_go() {
    let (cluster, rbd, id) = with_volume(1);
    cluster.set_now(SystemTime::now());
    for tag in [ONE, TWO] {
        cluster.here().create_snapshot(&id.object, &format!("csi-copy-{tag}-{DIGITS}")).unwrap();
    }
    sweep(&cluster, &rbd).unwrap();
    let left = cluster.dump();
    assert!(!left.contains(ONE) && left.contains(TWO), "{left}");
}

#[test]
fn snapshots_that_another_controller_made_a_copy_from_go_after_a_day() {
    let (cluster, rbd, id) = with_volume(1);
    let snapshots = [format!("csi-copy-{TWO}-{DIGITS}"), "csi-copy-by-hand".to_string()];
    cluster.set_now(SystemTime::now() - Duration::from_secs(25 * 60 * 60));
    for snapshot in &snapshots {
        cluster.here().create_snapshot(&id.object, snapshot).unwrap();
    }
    sweep(&cluster, &rbd).unwrap();
    let left = cluster.dump();
    assert!(!left.contains(TWO) && left.contains("by-hand"), "{left}");
}

/// The next look finds what was left without a restart, and needs no list of all images.
#[test]
fn what_was_left_since_the_start_goes_within_the_hour() {
    let cluster = FakeCluster::new();
    cluster.set_now(SystemTime::now());
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    image(&cluster, &format!("csi-tmp-{ONE}-{DIGITS}"));
    let dies = controller(&cluster, TWO);
    let large = create(&dies, &wanted("large", 5 * GIB, None)).unwrap().id;
    delete(&dies, &large).unwrap();
    cluster.advance(Duration::from_secs(400));
    assert!(cluster.dump().contains("csi-held-"), "{}", cluster.dump());
    cluster.forget_steps();
    do_jobs_due_within(&rbd, timing().sweep_interval);
    assert_eq!(cluster.dump(), "");
    assert!(!cluster.steps().contains(&"list".to_string()), "{:?}", cluster.steps());
}

#[test]
fn what_cannot_be_listed_keeps_nothing_else_from_being_swept() {
    // The steps: the list, the names, the trash.
    for step in [1, 2, 3] {
        let (cluster, dies, id) = with_volume(5);
        delete(&dies, &id).unwrap();
        cluster.advance(Duration::from_secs(400));
        image(&cluster, &format!("csi-tmp-{TWO}-{DIGITS}"));
        cluster.put_aside(&cluster.at(), &format!("csi-tmp-{TWO}-{DIGITS}"));
        cluster.fail_at(step, Fault::Before);
        let rbd = controller(&cluster, TWO);
        sweep(&cluster, &rbd).unwrap_err();
        let left = cluster.dump();
        assert_eq!((left.contains("csi-held-"), left.contains("trash")), (step == 2, step == 3), "{left}");
    }
}

/// The sweep found the image first, and could not remove it.
#[test]
fn a_removal_that_waits_keeps_none_that_does_more() {
    let (cluster, rbd, source) = with_volume(1);
    let (temporary, snapshot) = (format!("csi-tmp-{ONE}-{DIGITS}"), format!("csi-copy-{ONE}-{DIGITS}"));
    cluster.here().create_snapshot(&source.object, &snapshot).unwrap();
    let copied = CopiedVolume { at: cluster.at(), image: source.incarnation.clone().unwrap() };
    for from in [None, Some(copied)] {
        let (at, temporary) = (cluster.at(), temporary.clone());
        rbd.context.jobs.add_now(Job::RemoveTemporary { at, temporary, source: from });
    }
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), format!("image rbd/{} {GIB}", source.object));
}

#[test]
fn copies_of_a_controller_that_never_comes_back_are_found_by_the_others() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    cluster.set_now(SystemTime::now() - Duration::from_secs(25 * 60 * 60));
    image(&cluster, &format!("csi-tmp-{TWO}-{DIGITS}"));
    do_jobs_due_within(&rbd, timing().sweep_interval);
    assert_eq!(cluster.dump(), "");
}

/// The snapshot stays if the command that clones from it does not end in time.
#[test]
fn what_a_copy_was_made_from_goes_with_what_is_left_of_it() {
    for step in 1..=12 {
        let (cluster, rbd, source) = with_volume(1);
        cluster.fail_at(step, Fault::Before);
        let _ = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone()))));
        cluster.restart();
        do_jobs_due_within(&rbd, timing().dead_client);
        assert!(!cluster.dump().contains("csi-tmp-"), "step {step}: {}", cluster.dump());
        do_jobs_due_within(&rbd, timing().dead_client + cluster.longest_change());
        let left = cluster.dump();
        assert!(!left.contains("csi-copy-") || left.contains("trash"), "step {step}: {left}");
    }
}

#[test]
fn what_a_copy_was_made_from_goes_also_if_it_is_taken_late() {
    let is_taken = |step: &String| step.starts_with("take_snapshot ");
    let copy_of = |source: &VolumeId| wanted("copy", GIB, Some(Origin::Volume(source.clone())));
    let (cluster, rbd, source) = with_volume(1);
    create(&rbd, &copy_of(&source)).unwrap();
    let step = cluster.steps().iter().position(is_taken).unwrap() as u64 + 1;
    let (cluster, rbd, source) = with_volume(1);
    cluster.fail_at(step, Fault::Before);
    create(&rbd, &copy_of(&source)).unwrap_err();
    let asked = cluster.steps().into_iter().find(is_taken).unwrap();
    do_jobs_due_within(&rbd, timing().dead_client);
    let (_, name) = asked.split_once('@').unwrap();
    cluster.here().create_snapshot(&source.object, name).unwrap();
    do_jobs_due_within(&rbd, timing().dead_client + cluster.longest_change());
    assert!(!cluster.dump().contains("csi-copy-"), "{}", cluster.dump());
}

/// A look that fails goes on an hour later, not each minute.
#[test]
fn a_look_that_fails_waits_for_the_next() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let mut job = Job::CheckLeftovers { cluster: "ceph".into() };
    for step in 1..=4 {
        cluster.fail_at(step, Fault::Before);
        let next = run(&rbd.context, &call(), &mut job).unwrap();
        assert_eq!(next, Requeue::Never, "step {step}");
        cluster.restart();
    }
}

#[test]
fn volumes_held_for_snapshots_that_are_gone_go() {
    let (cluster, rbd, id) = with_volume(1);
    let taken = snapshot(&rbd, &id, "s").unwrap();
    delete(&rbd, &id).unwrap();
    sweep(&cluster, &rbd).unwrap();
    assert!(cluster.dump().contains("csi-held-"), "{}", cluster.dump());
    let held = format!("csi-held-{}", id.incarnation.as_ref().unwrap());
    cluster
        .here()
        .remove_snapshot(ImageRef::Name(&held), &format!("csi-snap-{}", taken.id.snapshot))
        .unwrap();
    sweep(&cluster, &rbd).unwrap();
    assert!(!cluster.dump().contains("csi-held-"), "{}", cluster.dump());
}

/// A removal moves to the trash only images whose names are never used again.
#[test]
fn what_an_operator_put_into_the_trash_stays() {
    let (cluster, rbd, id) = with_volume(5);
    let at = cluster.at();
    let held_by_name = "csi-held-10ab".to_string();
    for name in ["web", &held_by_name] {
        image(&cluster, name);
    }
    for name in ["web", &id.object, &held_by_name] {
        cluster.put_aside(&at, name);
    }
    let is = cluster.dump();
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), is, "UNSAFE: an operator's image was purged");
}

#[test]
fn the_thread_does_what_is_put_on_the_list() {
    let (cluster, rbd, id) = with_volume(5);
    let rbd = Arc::new(rbd);
    rbd.context.jobs.queue.start();
    delete(&rbd, &id).unwrap();
    await_that(|| cluster.dump().is_empty());
}

#[test]
fn a_cluster_that_hangs_keeps_back_no_other() {
    let cluster = FakeCluster::new();
    let rbd = Arc::new(controller_of(&cluster, ONE, &["ceph", "away"]));
    let (entered, hangs) = mpsc::channel();
    let (go, released) = mpsc::channel::<()>();
    cluster.on_step(1, move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    rbd.context.jobs.queue.start();
    sweep_soon(&rbd, "away");
    hangs.recv().unwrap();
    // Both names mean one cluster here, with the same leftovers.
    image(&cluster, &format!("csi-tmp-{ONE}-{DIGITS}"));
    sweep_soon(&rbd, "ceph");
    await_that(|| cluster.dump().is_empty());
    go.send(()).unwrap();
}

#[test]
fn jobs_go_on_with_a_clusters_new_key_and_end_with_the_cluster() {
    let (cluster, rbd, _) = with_volume(1);
    let reached_as = |name: &str, user: &str, own: bool| {
        let credentials = Credentials { user: user.to_string(), key: None };
        let entry = Cluster { credentials: own.then(|| credentials.clone()), ..Cluster::named(name) };
        let (at, cluster) = (cluster.at(), Arc::new(entry));
        PoolRef { access: ClusterAccess { cluster, credentials, ..at.access }, ..at }
    };
    for (own, user) in [(true, "csi"), (false, "tenant")] {
        let at = reached_as("ceph", "tenant", own).renewed(&rbd.context.clusters).unwrap().unwrap();
        assert_eq!(at.access.credentials.user, user);
    }
    let mut job = Job::RemoveTemporary {
        at: reached_as("taken-away", "csi", true),
        temporary: "x".into(),
        source: None,
    };
    assert_eq!(run(&rbd.context, &call(), &mut job).unwrap(), Requeue::Never);
    assert_eq!(cluster.steps().len(), 0);
}

#[test]
fn a_job_that_fails_is_kept() {
    let (cluster, rbd, id) = with_volume(5);
    delete(&rbd, &id).unwrap();
    cluster.fail_at(1, Fault::Before);
    do_jobs(&rbd);
    assert!(cluster.dump().contains("csi-held-"));
    assert_eq!(rbd.context.jobs.queue.waiting().len(), 1);
}
