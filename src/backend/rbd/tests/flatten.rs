//! Chains of clones.

use super::*;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;

/// A volume with this many parents, one behind the other.
fn chain(rbd: &Rbd, parents: usize) -> VolumeId {
    let mut id = create(rbd, &wanted("0", GIB, None)).unwrap().id;
    for link in 1..=parents {
        id = create(rbd, &wanted(&link.to_string(), 0, Some(Origin::Volume(id)))).unwrap().id;
    }
    id
}

pub(super) fn is_flat(cluster: &FakeCluster, id: &VolumeId) -> bool {
    cluster.info(&call(), &cluster.at(), ImageRef::Name(&id.object)).unwrap().unwrap().parent.is_none()
}

/// More than the longest pause.
pub(super) const LONG: Duration = Duration::from_secs(2 * 60 * 60);

/// A cluster with a controller and the end of a chain that is too long, which waits to be flattened.
pub(super) fn with_deep() -> (FakeCluster, Rbd, VolumeId) {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let eighth = chain(&rbd, 8);
    do_jobs(&rbd);
    assert!(!is_flat(&cluster, &eighth));
    let ninth = create(&rbd, &wanted("9", 0, Some(Origin::Volume(eighth)))).unwrap().id;
    cluster.write(&cluster.at(), &ninth.object, "data");
    cluster.forget_steps();
    (cluster, rbd, ninth)
}

/// In how many seconds the one thing is due that is to be done.
pub(super) fn seconds(rbd: &Rbd) -> u64 {
    let waiting = rbd.context.jobs.queue.waiting();
    let [(_, pause)] = &waiting[..] else { panic!("{waiting:?}") };
    pause.as_secs_f64().round() as u64
}

#[test]
fn only_what_is_too_deep_is_flattened() {
    let (cluster, rbd, ninth) = with_deep();
    do_jobs(&rbd);
    assert!(is_flat(&cluster, &ninth));
    assert_eq!(cluster.content(&cluster.at(), &ninth.object), "data");
    do_jobs_due_within(&rbd, timing().parent_check);
    let tenth = create(&rbd, &wanted("10", 0, Some(Origin::Volume(ninth)))).unwrap().id;
    cluster.forget_steps();
    do_jobs_due_within(&rbd, LONG);
    assert!(cluster.steps().is_empty(), "what is known costs nothing: {:?}", cluster.steps());
    assert!(!is_flat(&cluster, &tenth), "its parent is flat");
}

#[test]
fn a_chain_is_counted_once_for_all_copies_of_its_end() {
    let (cluster, rbd, first) = with_deep();
    let end = VolumeId { object: volume_object("default", "8"), incarnation: None, ..first };
    create(&rbd, &wanted("another", 0, Some(Origin::Volume(end)))).unwrap();
    cluster.forget_steps();
    do_jobs(&rbd);
    let steps: Vec<String> =
        cluster.steps().iter().map(|step| step.split(' ').next().unwrap().to_string()).collect();
    let one = "holders info watchers disable_features enable_features flatten rebuild_object_map";
    assert_eq!(steps.join(" "), [one, one].join(" "));
}

#[test]
fn what_is_open_is_looked_at_again_and_again_with_longer_and_longer_pauses() {
    let (cluster, rbd, ninth) = with_deep();
    cluster.watch(&cluster.at(), &ninth.object, "10.0.0.7:0/1");
    let mut pauses = Vec::new();
    for _ in 0..100 {
        do_jobs_due_within(&rbd, LONG);
        pauses.push(seconds(&rbd));
    }
    assert_eq!(pauses[..7], [60, 120, 240, 480, 960, 1920, 3600]);
    assert!(pauses[7..].iter().all(|pause| *pause == 3600), "{pauses:?}");
    assert!(!is_flat(&cluster, &ninth));
    cluster.unwatch("10.0.0.7:0/1");
    do_jobs_due_within(&rbd, LONG);
    assert!(is_flat(&cluster, &ninth));
}

#[test]
fn what_fails_is_tried_again_every_minute_for_ever() {
    let (cluster, rbd, ninth) = with_deep();
    for _ in 0..100 {
        cluster.fail_at(1, Fault::Before);
        do_jobs_due_within(&rbd, LONG);
        assert_eq!(seconds(&rbd), 60);
    }
    assert!(!is_flat(&cluster, &ninth));
    do_jobs_due_within(&rbd, LONG);
    assert!(is_flat(&cluster, &ninth));
    // What has lost a clone is looked at.
    do_jobs_due_within(&rbd, timing().parent_check);
    assert!(rbd.context.jobs.queue.waiting().is_empty());
}

/// A flatten relies on the object map, which is wrong after a kill.
#[test]
fn whatever_is_killed_the_data_stay() {
    for fault in [Fault::Before, Fault::HalfMade, Fault::After] {
        for step in 1..=7 {
            let (cluster, rbd, ninth) = with_deep();
            for _ in 0..2 {
                cluster.fail_at(step, fault);
                do_jobs_due_within(&rbd, LONG);
                cluster.restart();
            }
            for _ in 0..4 {
                do_jobs_due_within(&rbd, LONG);
            }
            let info = cluster.info(&call(), &cluster.at(), ImageRef::Name(&ninth.object)).unwrap().unwrap();
            assert!(info.parent.is_none(), "{fault:?} at step {step}");
            assert_eq!(cluster.content(&cluster.at(), &ninth.object), "data", "{fault:?} at step {step}");
            assert!(info.features.contains("object-map"), "{fault:?} at step {step}: {info:?}");
        }
    }
}

#[test]
fn an_image_without_an_object_map_is_just_flattened() {
    let (cluster, rbd, ninth) = with_deep();
    cluster.disable_features(&call(), &cluster.at(), &ninth.object, &["object-map", "fast-diff"]).unwrap();
    cluster.forget_steps();
    do_jobs(&rbd);
    assert!(is_flat(&cluster, &ninth));
    assert!(!cluster.steps().iter().any(|step| step.contains("feature")), "{:?}", cluster.steps());
}

#[test]
fn a_thread_does_it() {
    let (cluster, rbd, ninth) = with_deep();
    let rbd = Arc::new(rbd);
    rbd.context.jobs.queue.start();
    await_that(|| is_flat(&cluster, &ninth));
}
