//! Flattening gives way to whoever has a right to the image.

use super::delete::delete;
use super::flatten::{LONG, is_flat, seconds, with_deep};
use super::publish::{publish, unpublish};
use super::*;
use crate::backend::Deleted;
use crate::backend::rbd::tool::fake::FLATTENER;

/// Does something with a copy that is being flattened, which goes on until it is broken off. Its client is
/// forgotten some time after it is dead.
fn while_it_is_flattened(act: impl FnOnce(&Rbd, &VolumeId)) -> (FakeCluster, Rbd, VolumeId) {
    let (cluster, rbd, id) = with_deep();
    while_it_is_flattened_by(&cluster, &rbd, &id, || act(&rbd, &id));
    (cluster, rbd, id)
}

fn while_it_is_flattened_by(cluster: &FakeCluster, rbd: &Rbd, id: &VolumeId, act: impl FnOnce()) {
    cluster.set_endless_flattenings(true);
    std::thread::scope(|scope| {
        let flattening = scope.spawn(|| do_jobs(rbd));
        await_that(|| cluster.is_watched(&cluster.at(), &id.object));
        scope.spawn(|| {
            flattening.join().unwrap();
            cluster.unwatch(FLATTENER);
        });
        act();
    });
    cluster.set_endless_flattenings(false);
}

#[test]
fn another_controller_publishes_and_deletes_what_is_flattened() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter] {
        let (cluster, one, id) = with_deep();
        let two = controller(&cluster, TWO);
        while_it_is_flattened_by(&cluster, &one, &id, || drop(publish(&two, &id, "n", mode, false).unwrap()));
        assert!(!is_flat(&cluster, &id), "{mode:?}");
        unpublish(&two, &id, Some("n")).unwrap();
    }
    let (cluster, one, id) = with_deep();
    let two = controller(&cluster, TWO);
    while_it_is_flattened_by(&cluster, &one, &id, || assert_eq!(delete(&two, &id).unwrap(), Deleted::Gone));
    assert!(!cluster.dump().contains(&id.object), "{}", cluster.dump());
}

#[test]
fn a_published_volume_is_flattened_when_it_is_taken_back() {
    for mode in [Mode::SingleNodeWriter, Mode::MultiNodeMultiWriter] {
        let (cluster, rbd, id) =
            while_it_is_flattened(|rbd, id| drop(publish(rbd, id, "node-1", mode, false).unwrap()));
        assert_eq!(seconds(&rbd), 60);
        // It is not open yet, but may be at any moment.
        do_jobs_due_within(&rbd, LONG);
        assert!(!is_flat(&cluster, &id), "{mode:?}");
        unpublish(&rbd, &id, Some("node-1")).unwrap();
        do_jobs_due_within(&rbd, LONG);
        assert!(is_flat(&cluster, &id), "{mode:?}");
    }
}

#[test]
fn a_volume_is_deleted_while_it_is_flattened() {
    let (cluster, rbd, id) =
        while_it_is_flattened(|rbd, id| assert_eq!(delete(rbd, id).unwrap(), Deleted::Gone));
    assert!(!cluster.dump().contains(&id.object), "{}", cluster.dump());
    do_jobs_due_within(&rbd, LONG);
    assert!(rbd.context.jobs.queue.waiting().is_empty(), "nothing is left to flatten");
}
