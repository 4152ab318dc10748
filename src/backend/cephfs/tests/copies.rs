//! Snapshots and copies.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::disk::Disk;
use super::fake::{FakeFs, Fault, MOST_SNAPSHOTS};
use super::{FAULTS, MIB, controller, create, delete, insist, listed, sweep_all, try_sweep, wanted};
use crate::backend::cephfs::context::Context;
use crate::backend::cephfs::examine::examine;
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::rbd::tests::{ONE, TWO, call};
use crate::backend::{
    Deleted, NewSnapshot, NewVolume, Origin, Snapshot, SnapshotFilter, Snapshots, Volume, Volumes,
};
use crate::csi::{SizeRange, Source};
use crate::dispatch::Call;
use crate::error::{Kind, Result};
use crate::ids::{SnapshotId, VolumeId, snapshot_key};
use crate::secrets::Secrets;

/// More steps than any operation here has.
const STEPS: usize = 32;

pub(super) fn take(context: &Context, source: &VolumeId, name: &str) -> Result<Snapshot> {
    take_within(&call(), context, source, name)
}

pub(super) fn take_within(call: &Call, context: &Context, source: &VolumeId, name: &str) -> Result<Snapshot> {
    let key = snapshot_key("default", name);
    let new = NewSnapshot {
        source: source.clone(),
        key,
        name: name.into(),
        secrets: Secrets::default(),
        requisite: Vec::new(),
    };
    Snapshots::create(context, call, &new)
}

pub(super) fn drop_snapshot(context: &Context, id: &SnapshotId) -> Result<Deleted> {
    Snapshots::delete(context, &call(), id, &Secrets::default())
}

pub(super) fn snapshots(context: &Context) -> Vec<String> {
    let page = Snapshots::list(context, &call(), &SnapshotFilter::All, &Secrets::default(), "", 0).unwrap();
    page.entries.iter().map(|snapshot| snapshot.id.to_string()).collect()
}

pub(super) fn copy_of(name: &str, origin: Origin) -> NewVolume {
    let source = match &origin {
        Origin::Snapshot(id) => Source::Snapshot(id.to_string()),
        Origin::Volume(id) => Source::Volume(id.to_string()),
    };
    let size = SizeRange { required: 16 * MIB, limit: 0 };
    NewVolume { size, source: Some((source, origin)), ..wanted(name, 8) }
}

pub(super) fn make(context: &Context, new: &NewVolume) -> Result<Volume> {
    Volumes::create(context, &call(), new)
}

#[test]
fn after_a_crash_at_any_step_the_same_request_takes_one_snapshot() {
    for fault in FAULTS {
        for (step, tag) in (1..STEPS).flat_map(|step| [(step, ONE), (step, TWO)]) {
            let cluster = FakeFs::default();
            let volume = create(&controller(&cluster, ONE), "a", 8).unwrap();
            cluster.fail_at(step, fault);
            let first = take(&controller(&cluster, ONE), &volume.id, "s");
            cluster.restart();
            let again = controller(&cluster, tag);
            let taken = insist(|| take(&again, &volume.id, "s")).unwrap();
            if let Ok(first) = first {
                assert_eq!(first.id, taken.id, "UNSAFE: {fault:?} at step {step}");
            }
            assert_eq!((snapshots(&again), taken.size), (vec![taken.id.to_string()], 8 * MIB));
            cluster.fail_at(step, fault);
            let _ = drop_snapshot(&again, &taken.id);
            cluster.restart();
            insist(|| drop_snapshot(&controller(&cluster, tag), &taken.id)).unwrap();
            assert!(snapshots(&again).is_empty(), "{fault:?} at step {step}");
            delete(&again, &volume.id).unwrap();
        }
    }
}

#[test]
fn after_a_crash_at_any_step_the_same_request_makes_one_copy() {
    for fault in [Fault::Before, Fault::After] {
        for (step, tag) in (1..STEPS).flat_map(|step| [(step, ONE), (step, TWO)]) {
            for of_snapshot in [true, false] {
                let cluster = FakeFs::default();
                let ours = controller(&cluster, ONE);
                let source = create(&ours, "source", 8).unwrap().id;
                let taken = take(&ours, &source, "s").unwrap().id;
                let new = match of_snapshot {
                    true => copy_of("copy", Origin::Snapshot(taken.clone())),
                    false => copy_of("copy", Origin::Volume(source.clone())),
                };
                cluster.fail_at(step, fault);
                let first = make(&ours, &new);
                cluster.restart();
                let mut again = controller(&cluster, tag);
                // The repeat takes over what was begun, however long this machine was busy.
                again.timing.abandoned = Duration::from_secs(24 * 60 * 60);
                let was_whole = listed(&again).len() == 2;
                let made = insist(|| make(&again, &new)).unwrap();
                // The snapshot of the copy is not left to a sweep in an hour.
                assert!(was_whole || cluster.snapshots().len() == 1, "{fault:?} at step {step}");
                again.timing.abandoned = Duration::ZERO;
                if let Ok(first) = first {
                    assert_eq!(first.id, made.id, "UNSAFE: {fault:?} at step {step}");
                }
                assert_eq!(made.size, 16 * MIB, "a copy has the size that was asked for");
                sweep_all(&again);
                assert_eq!(cluster.subvolumes().len(), 2, "UNSAFE: {fault:?} at step {step}");
                assert_eq!(
                    cluster.snapshots().len(),
                    1,
                    "{fault:?} at step {step}: {:?}",
                    cluster.snapshots()
                );
                assert_eq!(listed(&again).len(), 2, "{fault:?} at step {step}");
            }
        }
    }
}

/// The sweep may have read the entry already, and would remove what the request has taken over.
#[test]
fn a_copy_that_was_not_asked_for_lately_is_begun_anew() {
    const HOUR: u64 = 60 * 60;
    for (hours, is_taken_over) in [(11, true), (13, false)] {
        let cluster = FakeFs::default();
        let mut ours = controller(&cluster, ONE);
        ours.timing.abandoned = Duration::from_secs(24 * HOUR);
        let new = copy_of("copy", Origin::Volume(create(&ours, "source", 8).unwrap().id));
        let let_hours_pass = || {
            ours.within(&call(), (&new.place, &new.secrets), |fs| {
                let mut all = fs.index().all()?.into_iter();
                let Some((_, object, entry)) = all.find(|(.., it)| it.state == State::Making) else {
                    return Ok(None);
                };
                let aged = Entry { since: entry.since - hours * HOUR, ..entry };
                fs.index().set(&fs.path(&object), &aged).map(|()| Some(object))
            })
        };
        let begun = (1..STEPS).find_map(|step| {
            cluster.fail_at(step, Fault::After);
            make(&ours, &new).unwrap_err();
            cluster.restart();
            let_hours_pass().unwrap()
        });
        let made = insist(|| make(&ours, &new)).unwrap();
        assert_eq!(begun == Some(made.id.object), is_taken_over, "after {hours} hours");
    }
}

#[test]
fn another_controller_may_make_the_same_copy_between_any_two_steps() {
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        let ours = controller(&cluster, ONE);
        let source = create(&ours, "source", 8).unwrap().id;
        let new = copy_of("copy", Origin::Volume(source.clone()));
        let theirs = Arc::new(Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, theirs, new) = (cluster.clone(), Arc::clone(&theirs), new.clone());
            move || *theirs.lock() = insist(|| make(&controller(&cluster, TWO), &new)).ok()
        });
        let made = insist(|| make(&ours, &new)).unwrap();
        // From here on the other one does nothing.
        cluster.restart();
        if let Some(theirs) = theirs.lock().take() {
            assert_eq!(made.id, theirs.id, "UNSAFE: two volumes before step {step}");
        }
        sweep_all(&ours);
        assert_eq!(cluster.subvolumes().len(), 2, "UNSAFE: before step {step}");
        delete(&ours, &made.id).unwrap();
        assert_eq!(cluster.snapshots(), [""; 0], "before step {step}");
        delete(&ours, &source).unwrap();
        assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()), "before step {step}");
    }
}

#[test]
fn a_snapshot_outlives_its_volume_and_goes_with_all_that_is_left() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "a", 8).unwrap().id;
    let taken = take(&ours, &source, "s").unwrap().id;
    assert_eq!(delete(&ours, &source).unwrap(), Deleted::Gone);
    assert!(Volumes::find(&ours, &call(), &source, &Secrets::default()).unwrap().is_none());
    assert_eq!((listed(&ours), snapshots(&ours)), (Vec::new(), vec![taken.to_string()]));
    sweep_all(&ours);
    let copy = make(&ours, &copy_of("copy", Origin::Snapshot(taken.clone()))).unwrap();
    assert_eq!(copy.size, 16 * MIB);
    assert_eq!(drop_snapshot(&ours, &taken).unwrap(), Deleted::Gone);
    assert_eq!(drop_snapshot(&ours, &taken).unwrap(), Deleted::Absent);
    let refused = make(&ours, &copy_of("late", Origin::Snapshot(taken))).unwrap_err();
    assert_eq!(refused.kind(), Kind::NotFound);
    assert_eq!(delete(&ours, &copy.id).unwrap(), Deleted::Gone);
    assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()));
}

#[test]
fn the_name_of_a_snapshot_is_taken_for_every_volume() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let [one, other] = ["a", "b"].map(|name| create(&ours, name, 8).unwrap().id);
    take(&ours, &one, "s").unwrap();
    let refused = take(&controller(&cluster, TWO), &other, "s").unwrap_err();
    assert!(refused.kind() == Kind::AlreadyExists && refused.message().contains(&one.object), "{refused}");
}

#[test]
fn a_volume_with_as_many_snapshots_as_it_can_have_is_told_so() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "a", 8).unwrap().id;
    (0..MOST_SNAPSHOTS).for_each(|number| drop(take(&ours, &source, &number.to_string()).unwrap()));
    let refused = take(&ours, &source, "too many").unwrap_err();
    assert_eq!(refused.kind(), Kind::NoSpace);
    assert!(refused.message().contains("8 snapshots"), "{refused}");
    assert_eq!(snapshots(&ours).len(), MOST_SNAPSHOTS);
}

/// A controller that takes a copy for lost at once.
fn impatient(cluster: &FakeFs, tag: &str) -> Context {
    let mut ours = controller(cluster, tag);
    ours.timing.lost_copy = Duration::ZERO;
    ours
}

/// It gets another name. The sweep forgets the lost clone when an operator has removed its directory.
#[test]
fn a_copy_that_its_manager_has_lost_is_made_anew() {
    let cluster = FakeFs::default();
    let ours = Arc::new(impatient(&cluster, ONE));
    let source = create(&ours, "source", 8).unwrap().id;
    let new = copy_of("copy", Origin::Volume(source));
    cluster.break_clone(Disk { is_lost: true, ..Disk::default() });
    let lost = make(&ours, &new).unwrap_err();
    assert!(lost.kind() == Kind::Unavailable && lost.message().contains("the manager died"), "{lost}");
    assert_eq!(cluster.snapshots(), [""; 0], "nothing is copied from it");
    let made = make(&ours, &new).unwrap();
    assert_eq!((listed(&ours).len(), cluster.subvolumes().len()), (2, 3));
    let refused = try_sweep(&ours).unwrap_err();
    assert!(refused.message().contains("remove its directory /volumes/csi/csi-vol-copy-"), "{refused}");
    let found = || {
        let mut found = examine(&ours).into_iter();
        found.any(|it| it.name.starts_with("CopyLeft:main/cephfs/csi/csi-vol-copy-"))
    };
    assert!(found());
    cluster.remove_lost();
    assert!(!found());
    sweep_all(&ours);
    delete(&ours, &made.id).unwrap();
    assert_eq!((listed(&ours).len(), cluster.subvolumes().len()), (1, 1));
}

/// The manager takes a copy from its list when it has ended, and another controller answers with it.
#[test]
fn a_copy_that_ends_between_any_two_looks_is_not_taken_for_a_lost_one() {
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        let mut ours = impatient(&cluster, ONE);
        ours.timing.abandoned = Duration::from_secs(24 * 60 * 60);
        let source = create(&ours, "source", 8).unwrap().id;
        let new = copy_of("copy", Origin::Volume(source));
        cluster.break_clone(Disk { is_queued: true, uuid: "uuid-9".into(), ..Disk::default() });
        let theirs = Arc::new(Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, new, theirs) = (cluster.clone(), new.clone(), Arc::clone(&theirs));
            move || {
                cluster.end_clones();
                let mut second = impatient(&cluster, TWO);
                second.timing.abandoned = Duration::from_secs(24 * 60 * 60);
                *theirs.lock() = make(&second, &new).ok();
            }
        });
        let made = insist(|| make(&ours, &new)).unwrap();
        sweep_all(&ours);
        if let Some(theirs) = theirs.lock().take() {
            assert_eq!(made.id, theirs.id, "UNSAFE: two volumes before step {step}");
        }
        assert!(
            cluster.subvolumes().contains(&(format!("csi/{}", made.id.object), 16 * MIB)),
            "UNSAFE: an answered volume was removed before step {step}"
        );
    }
}

/// The snapshot of the copy retains it.
#[test]
fn a_copy_whose_source_is_deleted_meanwhile_is_made_from_its_snapshot() {
    let cluster = FakeFs::default();
    let mut ours = controller(&cluster, ONE);
    ours.timing.abandoned = Duration::from_secs(24 * 60 * 60);
    let source = create(&ours, "source", 8).unwrap().id;
    let new = copy_of("copy", Origin::Volume(source.clone()));
    let is_taken = |step| {
        cluster.fail_at(step, Fault::After);
        let made = make(&ours, &new);
        cluster.restart();
        made.is_err() && cluster.snapshots().len() == 1
    };
    assert!((1..STEPS).any(is_taken));
    delete(&ours, &source).unwrap();
    assert_eq!(make(&ours, &new).unwrap().size, 16 * MIB);
    sweep_all(&ours);
    assert_eq!((cluster.snapshots().len(), listed(&ours).len()), (0, 1));
}

/// Nothing was copied to it.
#[test]
fn a_clone_that_its_manager_has_half_made_is_made_again() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "source", 8).unwrap().id;
    cluster.break_clone(Disk { is_old: true, ..Disk::default() });
    let made = make(&ours, &copy_of("copy", Origin::Volume(source))).unwrap();
    let path = format!("csi/{}", made.id.object);
    assert!(cluster.subvolumes().contains(&(path, 16 * MIB)), "{:?}", cluster.subvolumes());
    assert!(!cluster.is_old(&made.id.object), "UNSAFE: an empty subvolume is answered");
}

#[test]
fn a_snapshot_that_is_not_asked_for_again_is_swept() {
    for (fault, step) in FAULTS.into_iter().flat_map(|fault| (1..STEPS).map(move |step| (fault, step))) {
        let cluster = FakeFs::default();
        let source = create(&controller(&cluster, ONE), "a", 8).unwrap().id;
        cluster.fail_at(step, fault);
        if take(&controller(&cluster, ONE), &source, "s").is_ok() {
            continue;
        }
        cluster.restart();
        let ours = controller(&cluster, ONE);
        let is_answered = snapshots(&ours).len();
        sweep_all(&ours);
        assert_eq!(cluster.snapshots().len(), is_answered, "{fault:?} at step {step}");
    }
}
