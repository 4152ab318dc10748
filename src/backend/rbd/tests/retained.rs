//! Deleted volumes that are retained, as they are large or needed, until they are removed.

use std::sync::mpsc;

use crate::backend::Deleted;
use crate::backend::rbd::image::retain::check_retained;
use crate::backend::rbd::jobs::Job;
use crate::backend::rbd::jobs::examine::examine;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::dispatch::Call;
use crate::error::Kind;
use crate::jobs::RETRY;

use super::delete::{delete, delete_snapshot, publish, with_volume, words};
use super::*;

#[test]
fn the_last_snapshot_takes_a_small_image_with_it_at_once_and_a_large_one_in_the_background() {
    for size in [1, 5] {
        let (cluster, rbd, id) = with_volume(size);
        let taken = snapshot(&rbd, &id, "s").unwrap().id;
        delete(&rbd, &id).unwrap();
        do_jobs(&rbd);
        delete_snapshot(&rbd, &taken).unwrap();
        assert_eq!(cluster.dump().is_empty(), size == 1, "{}", cluster.dump());
        do_jobs(&rbd);
        assert_eq!(cluster.dump(), "");
    }
}

#[test]
fn a_large_volume_is_removed_in_the_background() {
    let (cluster, rbd, id) = with_volume(5);
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(words(&cluster), ["lock", "info", "watchers", "set_metadata", "rename", "info", "info"]);
    let held = cluster.dump();
    for rbd in [&controller(&cluster, ONE), &controller(&cluster, TWO)] {
        assert_eq!(delete(rbd, &id).unwrap(), Deleted::Absent, "the call does not wait for it: {held}");
    }
    // Its name is free.
    create(&rbd, &wanted("a", GIB, None)).unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), format!("image rbd/{} {GIB}", id.object));
}

/// The lock stays on an image that is retained.
#[test]
fn a_deletion_that_another_controller_has_done_is_done_and_one_that_it_has_begun_is_not() {
    let (cluster, one, id) = with_volume(5);
    let two = controller(&cluster, TWO);
    // After the lock and the look-up.
    cluster.crash_at(3, Fault::Before);
    delete(&one, &id).unwrap_err();
    cluster.restart();
    let refused = delete(&two, &id).unwrap_err();
    assert!(
        refused.kind() == Kind::Unavailable && refused.message().contains("another controller"),
        "{refused}"
    );
    delete(&one, &id).unwrap();
    assert!(cluster.dump().contains("lock"), "{}", cluster.dump());
    assert_eq!(delete(&two, &id).unwrap(), Deleted::Absent);
}

#[test]
fn a_large_volume_in_use_stays() {
    let (cluster, rbd, id) = with_volume(5);
    let before = cluster.dump();
    cluster.watch(&cluster.at(), &id.object, "10.0.0.7:0/1");
    assert!(delete(&rbd, &id).unwrap_err().message().contains("10.0.0.7:0/1"));
    assert_eq!(cluster.dump(), before);
}

/// An operator may open it.
#[test]
fn a_retained_image_that_is_open_is_told_and_goes_later() {
    for size in [1, 5] {
        let (cluster, rbd, id) = with_volume(size);
        let taken = snapshot(&rbd, &id, "s").unwrap().id;
        delete(&rbd, &id).unwrap();
        do_jobs(&rbd);
        cluster.watch_id(id.incarnation.as_ref().unwrap(), "10.0.0.7:0/1");
        delete_snapshot(&rbd, &taken).unwrap();
        do_jobs_due_within(&rbd, RETRY);
        assert!(cluster.dump().contains("image rbd/csi-held-"), "{}", cluster.dump());
        let found = examine(&rbd.context);
        assert!(found[0].name.starts_with("DeletedStays:ceph/rbd/csi-held-"), "{}", found[0].name);
        cluster.unwatch("10.0.0.7:0/1");
        do_jobs_due_within(&rbd, RETRY);
        assert_eq!(cluster.dump(), "");
    }
}

#[test]
fn a_retained_image_is_removed_by_one_at_a_time() {
    let (cluster, rbd, id) = with_volume(1);
    let (taken, image) = (snapshot(&rbd, &id, "s").unwrap().id, id.incarnation.clone().unwrap());
    delete(&rbd, &id).unwrap();
    let (call, late) = (call(), Call::new("test", || true));
    let working = rbd.context.pool(&call, &cluster.at()).lock_internal(&names::retained(&image)).unwrap();
    cluster.forget_steps();
    let refused = check_retained(&rbd.context.pool(&late, &cluster.at()), &image).unwrap_err();
    assert_eq!((refused.kind(), words(&cluster)), (Kind::Timeout, vec![]));
    drop(working);
    delete_snapshot(&rbd, &taken).unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn another_image_that_was_renamed_in_its_place_is_taken_back() {
    // An operator, who takes no locks, gives the name to another image.
    for (size, snapshots, after) in [(5, 0, 3), (5, 0, 4), (1, 1, 5)] {
        let (cluster, rbd, id) = with_volume(size);
        (0..snapshots).for_each(|_| drop(snapshot(&rbd, &id, "s").unwrap()));
        cluster.forget_steps();
        let object = id.object.clone();
        cluster.on_step(after, move |other| {
            let at = other.at();
            other.on(&at).rename(&object, "aside").unwrap();
            let image = NewImage { name: &object, size: GIB, layout: &Layout::default(), metadata: &[] };
            other.on(&at).create(&image).unwrap();
            other.write(&at, &object, "precious");
        });
        assert_eq!(delete(&rbd, &id).unwrap_err().kind(), Kind::Unavailable);
        assert_eq!(cluster.content(&cluster.at(), &id.object), "precious");
        assert!(!cluster.dump().contains("held"), "{}", cluster.dump());
        assert_eq!(
            delete(&rbd, &id).unwrap(),
            Deleted::Absent,
            "the volume is no more, the operator's images are"
        );
        assert!(!cluster.dump().contains("lock"), "{}", cluster.dump());
    }
}

/// As above, but the daemon dies before it undoes the rename.
#[test]
fn an_image_that_has_the_name_of_a_retained_one_by_mistake_stays() {
    for aside_goes in [false, true] {
        let (cluster, rbd, id) = with_volume(5);
        let at = cluster.at();
        let held = format!("csi-held-{}", id.incarnation.as_ref().unwrap());
        cluster.on(&at).rename(&id.object, "aside").unwrap();
        let image = NewImage { name: &held, size: GIB, layout: &Layout::default(), metadata: &[] };
        cluster.on(&at).create(&image).unwrap();
        if aside_goes {
            cluster.on(&at).remove("aside").unwrap();
        }
        let before = cluster.dump();
        rbd.recover().unwrap();
        do_jobs(&rbd);
        assert_eq!(cluster.dump(), before, "UNSAFE: an operator's image was removed");
    }
}

/// A killed rename has left both names. The image is removed by the directory's name, and the other name
/// would stay taken without an image.
#[test]
fn a_retained_image_takes_the_name_with_it_that_the_volume_had() {
    let (cluster, rbd, id) = with_volume(5);
    // The steps before: the lock, the look-up, the look at the clients, the record of the name.
    cluster.crash_at(5, Fault::HalfMoved);
    delete(&rbd, &id).unwrap_err();
    cluster.restart();
    assert!(cluster.dump().contains(&format!("second name rbd/{}", id.object)), "{}", cluster.dump());
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), "");
}

/// The same, and a node was given the volume by that name before.
#[test]
fn a_retained_image_that_was_given_to_a_node_stays() {
    let (cluster, rbd, id) = with_volume(5);
    cluster.crash_at(5, Fault::HalfMoved);
    delete(&rbd, &id).unwrap_err();
    cluster.restart();
    cluster.advance(Duration::from_secs(400));
    assert!(publish(&cluster, &id));
    let rbd = controller(&cluster, ONE);
    rbd.recover().unwrap();
    do_jobs(&rbd);
    assert!(cluster.dump().contains("image rbd/csi-held-"), "UNSAFE: {}", cluster.dump());
}

#[test]
fn a_removal_goes_on_after_a_restart_at_whatever_step_it_was_killed() {
    for (fault, headless) in
        [(Fault::Before, false), (Fault::HalfMade, false), (Fault::HalfMade, true), (Fault::HalfMoved, false)]
    {
        let (cluster, rbd, id) = with_volume(5);
        delete(&rbd, &id).unwrap();
        cluster.forget_steps();
        let held = format!("csi-held-{}", id.incarnation.as_ref().unwrap());
        cluster.fail_at(1, fault);
        cluster.here().remove_large(&held).unwrap_err();
        if headless {
            cluster.remove_header(id.incarnation.as_ref().unwrap());
        }
        // The name of the volume is free.
        let new = create(&rbd, &wanted("a", GIB, None)).unwrap().id;
        let rbd = controller(&cluster, ONE);
        rbd.recover().unwrap();
        do_jobs(&rbd);
        assert_eq!(cluster.dump(), format!("image rbd/{} {GIB}", new.object), "{fault:?}");
    }
}

#[test]
fn a_large_image_that_takes_long_keeps_no_other_from_going() {
    let (cluster, rbd, large) = with_volume(5);
    let rbd = Arc::new(rbd);
    let small = create(&rbd, &wanted("small", GIB, None)).unwrap().id;
    let taken = snapshot(&rbd, &small, "s").unwrap().id;
    delete(&rbd, &small).unwrap();
    do_jobs(&rbd);
    cluster.here().remove_snapshot(ImageRef::Id(&taken.source), &snapshot_name(&taken)).unwrap();
    delete(&rbd, &large).unwrap();
    let (entered, hangs) = mpsc::channel();
    let (go, released) = mpsc::channel::<()>();
    // The steps: a look-up by each job, the former name, our own lock taken anew, and then the removal.
    cluster.on_step(1 + 1 + 2 + 4 + 1, move |_| {
        entered.send(()).unwrap();
        released.recv().unwrap();
    });
    rbd.context.jobs.queue.start();
    hangs.recv().unwrap();
    let (held, image) = (format!("csi-held-{}", taken.source), taken.source);
    rbd.context.jobs.add_now(Job::Retained { at: cluster.at(), image });
    await_that(|| !cluster.dump().contains(&held));
    go.send(()).unwrap();
}

fn snapshot_name(id: &crate::ids::SnapshotId) -> String {
    format!("csi-snap-{}", id.snapshot)
}
