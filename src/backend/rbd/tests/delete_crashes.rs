//! A deletion that dies at any step, in any way: the repeated request, by the same controller or another,
//! ends like one that was never interrupted.

use crate::backend::rbd::tool::ImageRef;
use crate::backend::rbd::tool::fake::{FakeCluster, Fault};
use crate::backend::{Deleted, Interrupted, Origin};
use crate::error::{Kind, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::jobs::RETRY;

use super::delete::{delete, delete_snapshot, release};
use super::*;
use crate::backend::rbd::jobs::sweep::sweep_pool;

const FAULTS: [Fault; 4] = [Fault::Before, Fault::After, Fault::HalfMade, Fault::HalfMoved];

/// What a test deletes.
struct Scene {
    cluster: FakeCluster,
    volume: VolumeId,
    snapshot: Option<SnapshotId>,
}

/// A volume of `size` GiB, if asked for with a snapshot, and with a copy of the volume.
fn scene(size: u64, with_snapshot: bool, with_copy: bool) -> Scene {
    let cluster = FakeCluster::new();
    cluster.set_now(std::time::SystemTime::now());
    let rbd = controller(&cluster, ONE);
    let volume = create(&rbd, &wanted("a", size * GIB, None)).unwrap().id;
    let taken = with_snapshot.then(|| snapshot(&rbd, &volume, "s").unwrap().id);
    if with_copy {
        create(&rbd, &wanted("copy", size * GIB, Some(Origin::Volume(volume.clone())))).unwrap();
    }
    Scene { cluster, volume, snapshot: taken }
}

/// Repeats a deletion that another controller, or one that died, blocks for a while.
fn insist(cluster: &FakeCluster, act: impl Fn() -> Result<Deleted>) -> Deleted {
    for _ in 0..10 {
        match act() {
            Ok(deleted) => return deleted,
            Err(error) => assert_eq!(error.kind(), Kind::Unavailable, "{error}"),
        }
        cluster.advance(Duration::from_secs(60));
    }
    panic!("it does not end: {}", cluster.dump());
}

/// Everything that is left in the end.
fn rest(cluster: &FakeCluster, rbd: &Rbd) -> String {
    do_jobs(rbd);
    // The lock on a retained image runs out.
    cluster.advance(Duration::from_secs(400));
    do_jobs_due_within(rbd, RETRY);
    without_free_names(&without_drawn(&cluster.dump()))
}

/// Interrupts `act` at every step in every way, and repeats it by a controller with each of the tags. Each
/// run must end like an uninterrupted one.
fn try_all(tags: &[&str], make: impl Fn() -> Scene, act: impl Fn(&Rbd, &Scene) -> Result<Deleted>) {
    let scene = make();
    let rbd = controller(&scene.cluster, ONE);
    act(&rbd, &scene).unwrap();
    let expected = rest(&scene.cluster, &rbd);
    for tag in tags {
        for fault in FAULTS {
            for step in 1.. {
                let scene = make();
                scene.cluster.crash_at(step, fault);
                // If only a lock could not be released, the deletion is acknowledged: the lock runs out.
                let acknowledged =
                    act(&controller(&scene.cluster, ONE), &scene).is_ok_and(|it| it == Deleted::Gone);
                if scene.cluster.fault_pending() {
                    break;
                }
                let died = scene.cluster.dump();
                assert!(
                    !acknowledged || !died.contains(&format!("image rbd/{}", scene.volume.object)),
                    "{died}"
                );
                scene.cluster.restart();
                let rbd = controller(&scene.cluster, tag);
                insist(&scene.cluster, || act(&rbd, &scene));
                sweep_pool(&rbd.context.pool(&call(), &scene.cluster.at())).unwrap();
                assert_eq!(
                    rest(&scene.cluster, &rbd),
                    expected,
                    "{fault:?} at step {step} by {tag}, left:\n{died}"
                );
            }
        }
    }
}

fn delete_volume(rbd: &Rbd, scene: &Scene) -> Result<Deleted> {
    delete(rbd, &scene.volume)
}

#[test]
fn of_a_small_volume() {
    try_all(&[ONE, TWO], || scene(1, false, false), delete_volume);
}

#[test]
fn of_a_large_volume() {
    try_all(&[ONE, TWO], || scene(5, false, false), delete_volume);
}

#[test]
fn of_a_volume_in_a_pool_that_moves_to_the_trash_what_is_removed() {
    for (size, with_copy) in [(1, false), (1, true), (5, false)] {
        let make = || {
            let scene = scene(size, false, with_copy);
            scene.cluster.set_options("rbd", |options| options.trashes_removed = true);
            scene
        };
        try_all(&[ONE, TWO], make, delete_volume);
    }
}

#[test]
fn of_a_volume_with_a_copy() {
    try_all(&[ONE, TWO], || scene(1, false, true), delete_volume);
}

#[test]
fn of_a_volume_with_a_snapshot() {
    try_all(&[ONE, TWO], || scene(1, true, true), delete_volume);
}

/// A deletion that is refused because of snapshots counts as done, like one of an absent volume.
fn release_volume(rbd: &Rbd, scene: &Scene) -> Result<Deleted> {
    match release(rbd, &scene.volume) {
        Err(error) if error.kind() == Kind::HasSnapshots => Ok(Deleted::Absent),
        outcome => outcome,
    }
}

#[test]
fn of_a_volume_that_snapshots_may_not_outlive() {
    for (size, with_snapshot, with_copy) in
        [(1, false, false), (5, false, false), (1, false, true), (1, true, true), (5, true, false)]
    {
        try_all(&[ONE, TWO], || scene(size, with_snapshot, with_copy), release_volume);
    }
}

#[test]
fn of_the_last_snapshot_of_a_deleted_volume() {
    for size in [1, 5] {
        let make = || {
            let scene = scene(size, true, false);
            delete(&controller(&scene.cluster, ONE), &scene.volume).unwrap();
            scene
        };
        try_all(&[ONE], make, |rbd, scene| delete_snapshot(rbd, scene.snapshot.as_ref().unwrap()));
    }
}

#[test]
fn a_half_made_name_is_free_again_after_the_deletion() {
    for fault in FAULTS {
        let scene = scene(1, false, false);
        scene.cluster.crash_at(3, fault);
        assert!(delete(&controller(&scene.cluster, ONE), &scene.volume).is_err());
        scene.cluster.restart();
        let new = create(&controller(&scene.cluster, TWO), &wanted("a", GIB, None)).unwrap().id;
        let survives = fault == Fault::Before;
        assert_eq!(new == scene.volume, survives, "{fault:?}");
        insist(&scene.cluster, || delete(&controller(&scene.cluster, ONE), &scene.volume));
        let left = if survives { String::new() } else { format!("image rbd/{} {GIB}", new.object) };
        assert_eq!(scene.cluster.dump(), left, "{fault:?}");
    }
}

/// The next start finishes the deletion, or finds the volume whole, but never half retained. A half-retained
/// volume would exist by its name, and go with its last snapshot.
#[test]
fn a_volume_is_whole_or_retained_after_the_next_start_and_has_one_name() {
    for (size, fault) in [1, 5].into_iter().flat_map(|size| FAULTS.map(|fault| (size, fault))) {
        for step in 1.. {
            let Scene { cluster, volume, .. } = scene(size, size == 1, false);
            cluster.crash_at(step, fault);
            let _ = delete(&controller(&cluster, ONE), &volume);
            if cluster.fault_pending() {
                break;
            }
            cluster.restart();
            let rbd = controller(&cluster, ONE);
            let finish = || rbd.volumes().finish_deletion(&call(), &volume, &Secrets::default()).unwrap();
            let outcome = finish();
            let at = cluster.at();
            let by_name = cluster.on(&at).info(ImageRef::Name(&volume.object)).unwrap();
            let by_id = cluster.on(&at).info(ImageRef::Id(volume.incarnation.as_ref().unwrap())).unwrap();
            let is_whole = by_id.is_some_and(|image| image.name == volume.object);
            assert_eq!(
                (outcome == Interrupted::Whole, by_name.is_some()),
                (is_whole, is_whole),
                "UNSAFE: {fault:?} at step {step} left:\n{}",
                cluster.dump()
            );
            assert!(!cluster.dump().contains("second name"), "{fault:?} at step {step}: {}", cluster.dump());
        }
    }
}

/// A name that a killed rename has left opens an image that is deleted. Nothing else shows that a large image
/// may have been renamed, and the controller remembers it from before its deletion by another controller.
#[test]
fn an_image_that_is_deleted_is_not_answered_by_the_name_that_it_kept() {
    for removed_at in 0..=4 {
        let cluster = FakeCluster::new();
        let (one, large) = (controller(&cluster, ONE), wanted("a", 5 * GIB, None));
        let volume = create(&one, &large).unwrap().id;
        // The steps before: the lock, the look-up, the look at the clients, the record of the name.
        cluster.crash_at(5, Fault::HalfMoved);
        delete(&controller(&cluster, TWO), &volume).unwrap_err();
        cluster.restart();
        let held = format!("csi-held-{}", volume.incarnation.as_ref().unwrap());
        if removed_at > 0 {
            cluster.on_step(removed_at, move |cluster| {
                cluster.here().remove(&held).unwrap();
            });
        }
        let new = create(&one, &large).unwrap().id;
        assert_ne!(new, volume, "UNSAFE: what is deleted is answered, removed at step {removed_at}");
        assert_eq!(create(&controller(&cluster, TWO), &large).unwrap().id, new);
    }
}

/// The directory gets a new name after the image does: if the start removed that, the image would lose both.
#[test]
fn a_start_removes_no_name_of_an_image_that_another_controller_may_be_renaming() {
    let Scene { cluster, volume, .. } = scene(5, false, false);
    cluster.crash_at(5, Fault::HalfMade);
    delete(&controller(&cluster, TWO), &volume).unwrap_err();
    cluster.restart();
    let before = cluster.dump();
    assert!(before.contains("second name rbd/csi-held-"), "{before}");
    let rbd = controller(&cluster, ONE);
    let finish = || rbd.volumes().finish_deletion(&call(), &volume, &Secrets::default());
    assert_eq!(finish().unwrap_err().kind(), Kind::Unavailable);
    assert_eq!(cluster.dump(), before, "UNSAFE: a name was removed");
    cluster.advance(Duration::from_secs(400));
    assert_eq!(finish().unwrap(), Interrupted::Whole);
    assert_eq!(cluster.dump(), format!("image rbd/{} {}", volume.object, 5 * GIB));
}
