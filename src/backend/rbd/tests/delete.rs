//! Deleting volumes: alone, with snapshots and clones in both orders, in use, large.

use crate::backend::ceph::FreeSpace;
use crate::backend::rbd::tool::fake::FakeCluster;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, Deletion, Origin, RecordDeletion};
use crate::error::{Error, Kind, Result};
use crate::ids::VolumeId;
use crate::secrets::Secrets;

use super::*;

pub(super) fn delete(rbd: &Rbd, id: &VolumeId) -> Result<Deleted> {
    delete_after(rbd, id, &|| Ok(()))
}

fn delete_after(rbd: &Rbd, id: &VolumeId, record_deletion: RecordDeletion<'_>) -> Result<Deleted> {
    delete_resolved(rbd, id, true, record_deletion)
}

/// Resolves the ID before it deletes, as the operations do.
fn delete_resolved(
    rbd: &Rbd,
    id: &VolumeId,
    snapshots_may_outlive: bool,
    record_deletion: RecordDeletion<'_>,
) -> Result<Deleted> {
    let secrets = &Secrets::default();
    let Some(id) = rbd.volumes().resolve(&call(), id, secrets)? else { return Ok(Deleted::Absent) };
    rbd.volumes().delete(&call(), &Deletion { id: &id, snapshots_may_outlive, secrets }, record_deletion)
}

/// Deletes a volume that snapshots may not outlive.
pub(super) fn release(rbd: &Rbd, id: &VolumeId) -> Result<Deleted> {
    delete_resolved(rbd, id, false, &|| Ok(()))
}

pub(super) fn delete_snapshot(rbd: &Rbd, id: &crate::ids::SnapshotId) -> Result<Deleted> {
    rbd.snapshots().delete(&call(), id, &Secrets::default())
}

/// A cluster with a controller and a volume of `size` GiB.
pub(super) fn with_volume(size: u64) -> (FakeCluster, Rbd, VolumeId) {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let id = create(&rbd, &wanted("a", size * GIB, None)).unwrap().id;
    cluster.forget_steps();
    (cluster, rbd, id)
}

/// The first words of the steps.
pub(super) fn words(cluster: &FakeCluster) -> Vec<String> {
    cluster.steps().iter().map(|step| step.split(' ').next().unwrap_or_default().to_string()).collect()
}

#[test]
fn takes_three_processes_and_a_repeat_one() {
    let (cluster, rbd, id) = with_volume(1);
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(words(&cluster), ["lock", "info", "remove"]);
    assert_eq!(cluster.dump(), "");
    cluster.forget_steps();
    let begun = || Err(Error::internal("nothing is begun"));
    assert_eq!(delete_after(&rbd, &id, &begun).unwrap(), Deleted::Absent);
    assert_eq!(words(&cluster), ["info"]);
}

/// A deletion that is held up for too long loses its lock.
#[test]
fn nothing_is_removed_by_name_once_the_lock_may_be_lost() {
    for size in [1, 5] {
        for snapshots in [0, 1] {
            let (cluster, maker, id) = with_volume(size);
            (0..snapshots).for_each(|_| drop(snapshot(&maker, &id, "s").unwrap()));
            let rbd =
                patient_controller(&cluster, TWO, Timing { deletion_decision: Duration::ZERO, ..timing() });
            let named = format!("image rbd/{}", id.object);
            assert_eq!(delete(&rbd, &id).unwrap_err().kind(), Kind::Unavailable);
            assert!(cluster.dump().contains(&named), "UNSAFE: it was removed without the lock");
            assert!(!cluster.dump().contains("lock"), "{}", cluster.dump());
        }
    }
}

#[test]
fn an_absent_volume_is_deleted_and_leaves_no_object() {
    let (cluster, rbd, id) = with_volume(1);
    delete(&rbd, &id).unwrap();
    assert_eq!(delete(&controller(&cluster, ONE), &id).unwrap(), Deleted::Absent);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn nothing_is_changed_if_it_may_not_begin() {
    let (cluster, rbd, id) = with_volume(1);
    let before = cluster.dump();
    let refused = delete_after(&rbd, &id, &|| Err(Error::precondition("used here"))).unwrap_err();
    assert_eq!(refused.kind(), Kind::Precondition);
    assert_eq!((cluster.dump(), cluster.steps().len()), (before, 0));
}

#[test]
fn an_id_without_incarnation_is_resolved_first() {
    let (cluster, rbd, id) = with_volume(1);
    let bare = VolumeId { incarnation: None, ..id.clone() };
    let resolved = |id| rbd.volumes().resolve(&call(), id, &Secrets::default()).unwrap();
    assert_eq!(resolved(&id), Some(id.clone()));
    assert_eq!(words(&cluster), Vec::<String>::new(), "the incarnation is known");
    assert_eq!(resolved(&bare), Some(id));
    cluster.forget_steps();
    delete(&rbd, &bare).unwrap();
    assert_eq!(words(&cluster), ["info", "lock", "info", "remove"]);
    assert_eq!(delete(&rbd, &bare).unwrap(), Deleted::Absent);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_newer_image_of_the_name_is_not_touched() {
    let (cluster, rbd, old) = with_volume(1);
    delete(&rbd, &old).unwrap();
    let new = create(&rbd, &wanted("a", GIB, None)).unwrap().id;
    let before = cluster.dump();
    for rbd in [&rbd, &controller(&cluster, TWO)] {
        assert_eq!(delete(rbd, &old).unwrap(), Deleted::Absent);
        assert_eq!(cluster.dump(), before);
    }
    assert_eq!(delete(&rbd, &new).unwrap(), Deleted::Gone);
}

#[test]
fn a_volume_in_use_is_refused_and_can_be_published_again() {
    let (cluster, rbd, id) = with_volume(1);
    let before = cluster.dump();
    cluster.watch(&cluster.at(), &id.object, "10.0.0.7:0/1");
    let refused = delete(&rbd, &id).unwrap_err();
    assert!(refused.kind() == Kind::Precondition && refused.message().contains("10.0.0.7:0/1"), "{refused}");
    assert_eq!(cluster.dump(), before, "no lock is left");
    cluster.unwatch("10.0.0.7:0/1");
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
}

/// A client in a kernel is no killed command.
#[test]
fn a_volume_that_is_mapped_is_refused_at_once() {
    let (cluster, rbd, id) = with_volume(1);
    cluster.watch_by_kernel(&cluster.at(), &id.object, "10.0.0.7:0/1");
    let refused = delete(&rbd, &id).unwrap_err();
    assert!(refused.kind() == Kind::Precondition && refused.message().contains("10.0.0.7:0/1"), "{refused}");
    assert_eq!(words(&cluster), ["lock", "info", "remove", "watchers", "holders", "unlock"]);
}

#[test]
fn a_published_volume_is_refused_with_its_nodes() {
    let (cluster, rbd, id) = with_volume(1);
    publish(&cluster, &id);
    let before = cluster.dump();
    let refused = delete(&rbd, &id).unwrap_err();
    assert!(refused.kind() == Kind::Precondition && refused.message().contains("\"node1\""), "{refused}");
    assert_eq!(cluster.dump(), before);
}

#[test]
fn a_lock_that_a_node_took_too_late_keeps_nothing_from_being_deleted() {
    let (cluster, rbd, id) = with_volume(1);
    delete(&rbd, &id).unwrap();
    publish(&cluster, &id);
    assert_eq!(delete(&controller(&cluster, ONE), &id).unwrap(), Deleted::Absent);
    assert_eq!(cluster.dump(), "");
}

/// Takes the lock as ControllerPublishVolume does.
pub(super) fn publish(cluster: &FakeCluster, id: &VolumeId) -> bool {
    let on = LockTarget::Header(id.incarnation.as_deref().unwrap());
    let hold = LockRequest { cookie: "node1".into(), description: "rw".into(), shared: None, seconds: None };
    cluster.here().lock(on, &hold).unwrap() == Locked::Now
}

#[test]
fn the_snapshots_of_a_deleted_volume_live_on_until_the_last_is_deleted() {
    let (cluster, rbd, id) = with_volume(1);
    let (one, two) = (snapshot(&rbd, &id, "one").unwrap(), snapshot(&rbd, &id, "two").unwrap());
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
    assert!(cluster.dump().contains("image rbd/csi-held-"), "{}", cluster.dump());
    let held = cluster.dump();
    for rbd in [&rbd, &controller(&cluster, TWO)] {
        do_jobs(rbd);
        assert_eq!(delete(rbd, &id).unwrap(), Deleted::Absent);
        assert_eq!(cluster.dump(), held);
    }
    // The name of the volume is free.
    let new = create(&rbd, &wanted("a", GIB, None)).unwrap().id;
    // The snapshots that live on can be copied.
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Snapshot(one.id.clone())))).unwrap().id;
    delete_snapshot(&rbd, &one.id).unwrap();
    delete_snapshot(&rbd, &two.id).unwrap();
    assert!(cluster.dump().contains("image rbd/csi-held-"), "{}", cluster.dump());
    delete(&rbd, &copy).unwrap();
    delete(&rbd, &new).unwrap();
    do_jobs_due_within(&rbd, timing().parent_check);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_source_and_its_copies_are_deleted_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (cluster, rbd, source) = with_volume(1);
        let taken = snapshot(&rbd, &source, "s").unwrap().id;
        let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Snapshot(taken.clone())))).unwrap().id;
        for step in order {
            match step {
                0 => delete(&rbd, &source),
                1 => delete_snapshot(&rbd, &taken),
                _ => delete(&rbd, &copy),
            }
            .unwrap();
        }
        do_jobs_due_within(&rbd, timing().parent_check);
        assert_eq!(cluster.dump(), "", "{order:?}");
    }
}

#[test]
fn a_volume_copied_from_a_volume_outlives_it() {
    let (cluster, rbd, source) = with_volume(1);
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
    cluster.forget_steps();
    assert_eq!(delete(&rbd, &source).unwrap(), Deleted::Gone);
    assert_eq!(
        words(&cluster),
        ["lock", "info", "snapshots", "watchers", "set_metadata", "rename", "info", "info"]
    );
    cluster.forget_steps();
    do_jobs(&rbd);
    assert_eq!(words(&cluster), ["info", "snapshots", "has_clones"]);
    assert_eq!(
        delete(&controller(&cluster, TWO), &source).unwrap(),
        Deleted::Absent,
        "it is retained for its clone"
    );
    assert_eq!(delete(&rbd, &copy).unwrap(), Deleted::Gone);
    cluster.advance(Duration::from_secs(400));
    cluster.forget_steps();
    do_jobs_due_within(&rbd, timing().parent_check);
    assert_eq!(words(&cluster), ["info", "metadata", "info", "lock", "remove"]);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn what_a_killed_copy_left_on_its_source_keeps_it_not() {
    let (cluster, rbd, source) = with_volume(1);
    let left = format!("csi-copy-{TWO}-abcdefghij234-zyxw7654");
    cluster.here().create_snapshot(&source.object, &left).unwrap();
    assert_eq!(delete(&rbd, &source).unwrap(), Deleted::Gone);
    do_jobs(&rbd);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_volume_with_snapshots_in_use_is_refused() {
    let (cluster, rbd, id) = with_volume(1);
    snapshot(&rbd, &id, "s").unwrap();
    let before = cluster.dump();
    cluster.watch(&cluster.at(), &id.object, "10.0.0.7:0/1");
    assert_eq!(delete(&rbd, &id).unwrap_err().kind(), Kind::Precondition);
    assert_eq!(cluster.dump(), before);
}

/// The cluster forgets a killed client after half a minute at the latest. Until then `rbd rm` cannot tell it
/// from a live one.
#[test]
fn an_image_that_a_dead_client_seems_to_have_open_is_removed_once_that_is_forgotten() {
    let (cluster, _, id) = with_volume(1);
    let rbd = patient_controller(&cluster, ONE, Timing { removal_repeats: SOON, ..timing() });
    cluster.watch(&cluster.at(), &id.object, "10.0.0.1:0/1");
    // The steps: the lock, the look-up, and two refused removals, each with a look at the clients.
    cluster.on_step(6, |cluster| cluster.unwatch("10.0.0.1:0/1"));
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(words(&cluster), ["lock", "info", "remove", "watchers", "remove", "watchers", "remove"]);
    assert_eq!(cluster.dump(), "");
}

/// In a pool at its quota `rbd rm` exits with 2 for an image that is whole.
#[test]
fn an_image_is_not_taken_for_gone_because_rm_says_so() {
    let (cluster, rbd, id) = with_volume(1);
    // After the lock and the look-up.
    cluster.on_step(2, |cluster| cluster.set_room("rbd", FreeSpace { available: 0, full: true }));
    let refused = delete(&rbd, &id).unwrap_err();
    assert!(refused.kind() == Kind::Unavailable, "{refused}");
    cluster.set_room("rbd", FreeSpace { available: 1 << 40, full: false });
    assert_eq!(cluster.dump(), format!("image rbd/{} {GIB}", id.object));
    assert_eq!(delete(&rbd, &id).unwrap(), Deleted::Gone);
}

#[test]
fn a_cluster_that_is_full_or_has_no_such_pool_says_so() {
    let (cluster, rbd, id) = with_volume(1);
    let lost = VolumeId { place: place("nope"), ..id.clone() };
    assert!(delete(&rbd, &lost).unwrap_err().message().contains("nope"));
    cluster.set_room("rbd", FreeSpace { available: 0, full: true });
    let full = delete(&rbd, &id).unwrap_err();
    assert!(full.kind() == Kind::NoSpace && full.message().contains(&id.to_string()), "{full}");
}
