//! Controllers that die, and controllers that meet, at every step.

#![allow(clippy::unwrap_used)]

mod by_hand;
mod by_others;
mod copies;
mod credentials;
mod disk;
mod examine;
mod fake;
mod fences;
mod removed;
mod servers;
mod shares;

use std::sync::Arc;
use std::time::Duration;

use self::fake::{FakeFs, Fault};
use super::context::{Context, Identity, Timing};
use super::sweep::sweep;
use crate::backend::ceph::publication::deletion::DeletionTimes;
use crate::backend::rbd::tests::{ONE, TWO, call};
use crate::backend::{
    Deleted, Deletion, Named, NewVolume, Publication, Publisher, Reason, Unpublished, Volume, Volumes,
};
use crate::clusters::{Cluster, Clusters, Credentials};
use crate::csi::{Access, Capability, Map, Mode, SizeRange};
use crate::error::{Error, Kind, Result};
use crate::ids::{self, Place, VolumeId, volume_object};
use crate::secrets::{Secret, Secrets};

const MIB: u64 = 1 << 20;
/// More steps than any operation has.
const STEPS: usize = 24;
const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::Late];

/// A controller, just started: it remembers nothing. It waits only a moment for others.
fn controller(cluster: &FakeFs, tag: &str) -> Context {
    controller_of(cluster, tag, Cluster::named("main"))
}

/// The same, with these settings of the cluster.
fn controller_of(cluster: &FakeFs, tag: &str, settings: Cluster) -> Context {
    let credentials = Some(Credentials { user: "csi".into(), key: Some(Secret::new("c2VjcmV0")) });
    let clusters = Clusters::of([Cluster { credentials, ..settings }]);
    let moment = Duration::from_millis(300);
    let deletion = DeletionTimes {
        wait: moment,
        poll: Duration::from_millis(1),
        decision: Duration::from_secs(300),
        lifetime: Duration::from_secs(300),
    };
    let timing = Timing {
        deletion,
        claim_grace: moment,
        snapshot_claim_grace: moment,
        copy_look: Duration::from_millis(1),
        lost_copy: Duration::from_millis(1),
        abandoned: Duration::ZERO,
        ..Timing::default()
    };
    let tools = (Arc::new(cluster.clone()) as _, Arc::new(cluster.clone()) as _);
    {
        let identity = Identity { plugin: "cephlet.test".into(), tag: tag.to_string(), fences: true };
        Context::new(Arc::new(clusters), tools, identity, timing)
    }
}

fn wanted(name: &str, mib: u64) -> NewVolume {
    let place = Place {
        backend: "cephfs".into(),
        cluster: "main".into(),
        pool: String::new(),
        namespace: "csi".into(),
    };
    NewVolume {
        place,
        topology: None,
        object: volume_object("default", name),
        name: name.to_string(),
        size: SizeRange { required: mib * MIB, limit: mib * MIB },
        parameters: Map::new(),
        mutable_parameters: Map::new(),
        capabilities: vec![capability()],
        source: None,
        secrets: Secrets::default(),
    }
}

fn capability() -> Capability {
    let access = Access::Mount { fs_type: String::new(), flags: Vec::new() };
    Capability { access, mode: Mode::SingleNodeWriter }
}

fn create(context: &Context, name: &str, mib: u64) -> Result<Volume> {
    context.create(&call(), &wanted(name, mib))
}

fn delete(context: &Context, id: &VolumeId) -> Result<Deleted> {
    let deletion = Deletion { id, snapshots_may_outlive: true, secrets: &Secrets::default() };
    context.delete(&call(), &deletion, &|| Ok(()))
}

fn publish(context: &Context, id: &VolumeId, node: &str) -> Result<Map> {
    let publication = Publication { node: node.into(), capability: capability(), read_only: false };
    context.publish(&call(), id, &publication, &Secrets::default())
}

fn listed(context: &Context) -> Vec<String> {
    context.list(&call(), ("", 0), &Err).unwrap().entries.iter().map(|volume| volume.id.to_string()).collect()
}

fn sweep_all(context: &Context) {
    try_sweep(context).unwrap();
}

fn try_sweep(context: &Context) -> Result<()> {
    context.clusters.all().into_iter().try_for_each(|cluster| sweep(context, &call(), cluster))
}

/// Repeats until the answer no longer depends on another controller.
fn insist<T>(mut act: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match act() {
            Err(error) if error.kind() == Kind::Unavailable => {}
            answer => return answer,
        }
    }
}

/// A name is claimed once in each file system, so the group need not be known.
#[test]
fn a_name_means_the_volume_that_claimed_it_until_it_is_deleted() {
    let cluster = FakeFs::default();
    let context = controller(&cluster, ONE);
    let named = |name: &str, parameters: &[(&str, &str)]| {
        let parameters = parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        context
            .named(&call(), &Named { object: &ids::common_object("default", name), parameters: &parameters })
    };
    let mut new = wanted("web", 4);
    new.place.namespace = "team".into();
    let id = Volumes::create(&context, &call(), &new).unwrap().id;
    assert_eq!(named("web", &[]).unwrap(), std::slice::from_ref(&id));
    assert_eq!(named("web", &[("fsName", "cephfs")]).unwrap(), std::slice::from_ref(&id));
    assert!(named("web", &[("fsName", "other")]).unwrap().is_empty());
    assert!(named("Web", &[]).unwrap().is_empty(), "names that look alike are others");
    delete(&context, &id).unwrap();
    assert!(named("web", &[]).unwrap().is_empty());
}

#[test]
fn what_is_removed_by_hand_leaves_the_lists_and_its_name_is_free() {
    let cluster = FakeFs::default();
    let context = controller(&cluster, "one");
    let first = create(&context, "a", 4).unwrap();
    sweep_all(&context);
    assert_eq!(listed(&context).len(), 1);
    cluster.remove_by_hand();
    sweep_all(&context);
    assert_eq!(listed(&context), [""; 0]);
    assert_ne!(create(&context, "a", 8).unwrap().id, first.id);
    assert_eq!(listed(&context).len(), 1);
}

#[test]
fn a_manager_that_has_just_started_is_awaited() {
    let cluster = FakeFs::default();
    let context = controller(&cluster, "one");
    cluster.restart_manager(2);
    create(&context, "a", 4).unwrap();
    assert_eq!(cluster.subvolumes().len(), 1);
}

#[test]
fn after_a_crash_at_any_step_the_same_request_makes_one_volume() {
    for fault in FAULTS {
        for (step, tag) in (1..STEPS).flat_map(|step| [(step, ONE), (step, TWO)]) {
            let cluster = FakeFs::default();
            cluster.fail_at(step, fault);
            let first = create(&controller(&cluster, ONE), "a", 8);
            cluster.restart();
            let again = controller(&cluster, tag);
            let made = insist(|| create(&again, "a", 8)).unwrap();
            if let Ok(first) = first {
                assert_eq!(
                    first.id, made.id,
                    "UNSAFE: {fault:?} at step {step}: another volume was answered"
                );
            }
            assert_eq!(listed(&again), [made.id.to_string()], "{fault:?} at step {step}");
            sweep_all(&again);
            let path = format!("csi/{}", made.id.object);
            assert_eq!(cluster.subvolumes(), [(path, 8 * MIB)], "UNSAFE: {fault:?} at step {step}");
            assert_eq!(insist(|| delete(&again, &made.id)).unwrap(), Deleted::Gone);
            assert_eq!(
                (cluster.subvolumes(), cluster.rest()),
                (Vec::new(), Vec::new()),
                "{fault:?} at step {step}"
            );
        }
    }
}

#[test]
fn after_a_crash_at_any_step_the_same_deletion_leaves_nothing() {
    for fault in FAULTS {
        for (step, tag) in (1..STEPS).flat_map(|step| [(step, ONE), (step, TWO)]) {
            let cluster = FakeFs::default();
            let volume = create(&controller(&cluster, ONE), "a", 8).unwrap();
            let kept = create(&controller(&cluster, ONE), "b", 8).unwrap();
            cluster.fail_at(step, fault);
            let deleted = delete(&controller(&cluster, ONE), &volume.id);
            assert!(deleted.is_ok() || cluster.is_dead());
            cluster.restart();
            let again = controller(&cluster, tag);
            if let Err(error) = delete(&again, &volume.id) {
                // The lock of the controller that died ends by its time, which this cluster does not count.
                assert!(tag == TWO && error.kind() == Kind::Unavailable, "{fault:?} at step {step}: {error}");
                insist(|| delete(&controller(&cluster, ONE), &volume.id)).unwrap();
            }
            sweep_all(&again);
            assert_eq!(listed(&again), [kept.id.to_string()]);
            assert_eq!(cluster.subvolumes().len(), 1, "UNSAFE: {fault:?} at step {step}");
            delete(&again, &kept.id).unwrap();
            assert_eq!(
                (cluster.subvolumes(), cluster.rest()),
                (Vec::new(), Vec::new()),
                "{fault:?} at step {step}"
            );
        }
    }
}

#[test]
fn another_controller_may_make_the_same_volume_between_any_two_steps() {
    for (step, mib) in (1..STEPS).flat_map(|step| [(step, 8), (step, 16)]) {
        let cluster = FakeFs::default();
        let theirs = Arc::new(parking_lot::Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, theirs) = (cluster.clone(), Arc::clone(&theirs));
            move || *theirs.lock() = insist(|| create(&controller(&cluster, TWO), "a", mib)).ok()
        });
        let ours = controller(&cluster, ONE);
        let made = insist(|| create(&ours, "a", 8));
        let theirs = theirs.lock().take();
        match (made, theirs) {
            (Ok(made), None) => assert_eq!(made.size, 8 * MIB),
            (Ok(made), Some(theirs)) => {
                assert_eq!(made.id, theirs.id, "UNSAFE: two volumes before step {step}")
            }
            (Err(error), Some(theirs)) => {
                assert!(mib == 16 && theirs.size == 16 * MIB, "before step {step}: {error}");
                assert_eq!(error.kind(), Kind::AlreadyExists, "{error}");
            }
            (Err(error), None) => panic!("before step {step}: {error}"),
        }
        sweep_all(&ours);
        assert_eq!(cluster.subvolumes().len(), 1, "UNSAFE: before step {step}");
    }
}

#[test]
fn a_publication_and_a_deletion_exclude_each_other_between_any_two_steps() {
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        let id = create(&controller(&cluster, ONE), "a", 8).unwrap().id;
        let published = Arc::new(parking_lot::Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, id, published) = (cluster.clone(), id.clone(), Arc::clone(&published));
            move || *published.lock() = Some(publish(&controller(&cluster, TWO), &id, "n1").is_ok())
        });
        let ours = controller(&cluster, ONE);
        let deleted = delete(&ours, &id);
        let is_published = published.lock().take().unwrap_or_default();
        assert!(
            !(is_published && deleted.is_ok()),
            "UNSAFE: a published volume was deleted before step {step}"
        );
        if deleted.is_err() {
            assert!(is_published, "{deleted:?} before step {step}");
            let unpublished = ours.unpublish(&call(), &id, Some("n1"), &Secrets::default()).unwrap();
            assert_eq!(unpublished, Unpublished::Done);
            assert_eq!(delete(&ours, &id).unwrap(), Deleted::Gone);
        }
        assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()), "before step {step}");
    }
}

#[test]
fn without_an_index_a_claimed_volume_is_found_again() {
    let cluster = FakeFs::default();
    let made = create(&controller(&cluster, ONE), "a", 8).unwrap();
    cluster.lose_index();
    let again = controller(&cluster, ONE);
    sweep_all(&again);
    let found = again.find(&call(), &made.id, &Secrets::default()).unwrap().unwrap();
    assert_eq!((found.id.clone(), found.size), (made.id.clone(), made.size));
    publish(&again, &made.id, "n1").unwrap();
    assert!(listed(&again).is_empty(), "lists are read from the index");
    let other = create(&again, "a", 8).unwrap();
    assert_ne!(other.id, made.id, "its name was claimed by an object that is gone");
    assert_eq!(cluster.subvolumes().len(), 2, "UNSAFE: a volume was removed for want of a claim");
}

#[test]
fn the_condition_tells_of_a_quota_that_is_nearly_used_up_and_of_a_silent_server() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let id = create(&ours, "a", 8).unwrap().id;
    let condition = || ours.inspect(&call(), &id, &Secrets::default()).unwrap().unwrap().condition;
    let reason = || condition().map(|fault| fault.map(|fault| fault.reason));
    for (used, expected) in [
        (7 * MIB, None),
        (8 * MIB - 1, Some(Reason::QuotaNearlyUsedUp)),
        (8 * MIB, Some(Reason::QuotaUsedUp)),
    ] {
        cluster.fill(used);
        assert_eq!(reason(), Some(expected), "{used}");
    }
    for daemons in [&[][..], &[(0, "up:replay")], &[(0, "laggy")]] {
        cluster.serve_by(&[0], daemons);
        assert_eq!(reason(), Some(Some(Reason::FileSystemSilent)), "{daemons:?}");
    }
}

#[test]
fn a_second_node_is_refused_where_one_alone_may_have_the_volume() {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let id = create(&ours, "a", 8).unwrap().id;
    let given = publish(&ours, &id, "n1").unwrap();
    assert_eq!(publish(&ours, &id, "n1").unwrap(), given);
    let refused = publish(&ours, &id, "n2").unwrap_err();
    assert!(refused.kind() == Kind::Precondition && refused.message().contains("n1"), "{refused}");
    let held: Error = delete(&ours, &id).unwrap_err();
    assert!(held.kind() == Kind::Precondition && held.message().contains("n1"), "{held}");
}
