//! What operators remove, and what other controllers do meanwhile.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::copies::{copy_of, drop_snapshot, make, snapshots, take, take_within};
use super::fake::{FakeFs, Fault};
use super::{MIB, STEPS, controller, create, delete, insist, listed, sweep_all, wanted};
use crate::backend::cephfs::context::Context;
use crate::backend::cephfs::index::{Entry, State};
use crate::backend::rbd::tests::{ONE, TWO, call};
use crate::backend::{Deleted, Origin, Volumes};
use crate::csi::SizeRange;
use crate::dispatch::Call;
use crate::secrets::Secrets;

const HOUR: u64 = 60 * 60;
/// After this step of a copy, its entry is *making*.
const BEGUN: usize = 9;
const LARGER: SizeRange = SizeRange { required: 32 * MIB, limit: 0 };

/// A controller that takes over what was begun, however long this machine is busy.
fn patient(cluster: &FakeFs, tag: &str) -> Context {
    let mut started = controller(cluster, tag);
    started.timing.abandoned = Duration::from_secs(24 * HOUR);
    started
}

#[test]
fn the_deletion_of_what_was_removed_by_hand_frees_its_name() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let first = create(&ours, "a", 4).unwrap().id;
    cluster.remove_by_hand();
    assert_eq!(delete(&ours, &first).unwrap(), Deleted::Absent);
    assert!(cluster.rest().is_empty(), "{:?}", cluster.rest());
    let second = create(&ours, "a", 4).unwrap().id;
    assert_ne!(first, second, "UNSAFE: an ID that means nothing is answered");
    assert_eq!(listed(&ours), [second.to_string()]);
}

#[test]
fn what_is_removed_by_hand_but_for_its_snapshots_leaves_the_lists() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "a", 4).unwrap().id;
    let taken = take(&ours, &source, "s").unwrap().id;
    cluster.retain_by_hand();
    sweep_all(&ours);
    assert_eq!((listed(&ours), snapshots(&ours)), (Vec::new(), vec![taken.to_string()]));
    assert_ne!(create(&ours, "a", 4).unwrap().id, source);
    assert_eq!(drop_snapshot(&ours, &taken).unwrap(), Deleted::Gone);
}

#[test]
fn a_snapshot_that_is_removed_by_hand_leaves_the_lists() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "a", 4).unwrap().id;
    let [gone, kept] = ["gone", "kept"].map(|name| take(&ours, &source, name).unwrap().id);
    cluster.remove_snapshot_by_hand(&gone.snapshot);
    sweep_all(&ours);
    assert_eq!((listed(&ours).len(), snapshots(&ours)), (1, vec![kept.to_string()]));
    assert_ne!(take(&ours, &source, "gone").unwrap().id, gone);
}

#[test]
fn a_deletion_leaves_the_name_to_the_next_snapshot_of_another_controller() {
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        // The deletion is never too late, and the other one does not wait for it.
        let mut deletes = controller(&cluster, TWO);
        deletes.timing.snapshot_claim_grace = Duration::from_secs(HOUR);
        let hurried = Call::new("test", || true);
        let source = create(&controller(&cluster, ONE), "a", 8).unwrap().id;
        let taken = take(&controller(&cluster, ONE), &source, "s").unwrap().id;
        let again = Arc::new(Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, source, again) = (cluster.clone(), source.clone(), Arc::clone(&again));
            move || *again.lock() = take_within(&hurried, &controller(&cluster, ONE), &source, "s").ok()
        });
        drop_snapshot(&deletes, &taken).unwrap();
        cluster.restart();
        let theirs = controller(&cluster, TWO);
        let again = again.lock().take().filter(|again| again.id != taken);
        let last = insist(|| take(&theirs, &source, "s")).unwrap().id;
        if let Some(again) = again {
            assert_eq!(again.id, last, "UNSAFE: two snapshots of one name before step {step}");
        }
        assert_eq!(snapshots(&theirs), [last.to_string()], "before step {step}");
    }
}

/// What becomes of a copy, or of its source, once its client has it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Expanded,
    Deleted,
    WithoutSource,
}

/// The index has no conditional writes: what another controller changes between a look and the write that
/// follows it is undone.
#[test]
fn what_becomes_of_a_copy_that_another_controller_has_finished_stays() {
    for (becomes, is_old) in [Fate::Expanded, Fate::Deleted, Fate::WithoutSource]
        .into_iter()
        .flat_map(|becomes| [(becomes, false), (becomes, true)])
    {
        let mut undone = Vec::new();
        for step in 1..STEPS {
            let cluster = FakeFs::default();
            let source = create(&patient(&cluster, ONE), "source", 8).unwrap().id;
            let new = copy_of("copy", Origin::Volume(source.clone()));
            if is_old {
                cluster.fail_at(BEGUN, Fault::After);
                make(&patient(&cluster, ONE), &new).unwrap_err();
                cluster.restart();
                let_pass(&patient(&cluster, ONE), 2);
            }
            let theirs = Arc::new(Mutex::new(None));
            cluster.before_step(step, {
                let (other, new, theirs) = (patient(&cluster, TWO), new.clone(), Arc::clone(&theirs));
                move || {
                    let made = make(&other, &new).unwrap().id;
                    match becomes {
                        Fate::Expanded => {
                            other.expand(&call(), &made, &LARGER, &Secrets::default()).unwrap();
                        }
                        Fate::Deleted => drop(delete(&other, &made).unwrap()),
                        Fate::WithoutSource => drop(delete(&other, &source).unwrap()),
                    }
                    *theirs.lock() = Some(made);
                }
            });
            let ours = make(&patient(&cluster, ONE), &new);
            let Some(theirs) = theirs.lock().take() else { break };
            let path = format!("csi/{}", theirs.object);
            let size = cluster.subvolumes().into_iter().find(|(it, _)| *it == path).map(|(_, size)| size);
            let expected = match becomes {
                Fate::Expanded => Some(LARGER.required),
                Fate::Deleted => None,
                Fate::WithoutSource => Some(16 * MIB),
            };
            undone.extend((size != expected).then_some((step, ours.is_ok())));
        }
        let late = if becomes == Fate::WithoutSource { 0 } else { 1 + usize::from(is_old) };
        assert!(undone.len() <= late, "UNSAFE: {becomes:?}, {is_old}: undone before {undone:?}");
    }
}

/// Lets hours pass since what is *making* was begun.
fn let_pass(context: &Context, hours: u64) {
    let new = wanted("a", 8);
    let aged = context.within(&call(), (&new.place, &new.secrets), |fs| {
        let all = fs.index().all()?.into_iter().filter(|(.., entry)| entry.state == State::Making);
        all.map(|(_, object, entry)| (fs.path(&object), Entry { since: entry.since - hours * HOUR, ..entry }))
            .try_for_each(|(path, entry)| fs.index().set(&path, &entry))
    });
    aged.unwrap();
}

#[test]
fn a_snapshot_that_is_asked_for_again_during_a_sweep_is_kept() {
    for (begun, step) in (1..STEPS).flat_map(|begun| (1..STEPS).map(move |step| (begun, step))) {
        let cluster = FakeFs::default();
        let patient = |tag| patient(&cluster, tag);
        let source = create(&patient(ONE), "a", 8).unwrap().id;
        cluster.fail_at(begun, Fault::After);
        if take(&patient(ONE), &source, "s").is_ok() {
            break;
        }
        cluster.restart();
        let_pass(&patient(ONE), 25);
        let answered = Arc::new(Mutex::new(None));
        cluster.before_step(step, {
            let (repeats, source, answered) = (patient(ONE), source.clone(), Arc::clone(&answered));
            move || *answered.lock() = insist(|| take(&repeats, &source, "s")).ok()
        });
        sweep_all(&patient(TWO));
        cluster.restart();
        if let Some(answered) = answered.lock().take() {
            let at = format!("begun before step {begun}, asked for before step {step}");
            assert_eq!(snapshots(&patient(TWO)), [answered.id.to_string()], "UNSAFE: {at}");
            assert_eq!(insist(|| take(&patient(ONE), &source, "s")).unwrap().id, answered.id, "{at}");
        }
    }
}
