//! Snapshots: taken, found, listed, deleted, and by two controllers at once.

use super::*;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, SnapshotFilter};
use crate::error::Kind;
use crate::ids::SnapshotId;

/// A cluster with two volumes.
struct Scene {
    cluster: FakeCluster,
    rbd: Rbd,
    source: VolumeId,
    other: VolumeId,
}

impl Scene {
    fn new() -> Self {
        Self::of(controller)
    }

    /// A scene whose controllers wait only a moment for dead controllers.
    fn impatient() -> Self {
        Self::of(impatient_controller)
    }

    fn of(controller: fn(&FakeCluster, &str) -> Rbd) -> Self {
        let cluster = FakeCluster::new();
        let rbd = controller(&cluster, ONE);
        let source = create(&rbd, &wanted("source", GIB, None)).unwrap().id;
        let other = create(&rbd, &wanted("other", GIB, None)).unwrap().id;
        cluster.forget_steps();
        Self { cluster, rbd, source, other }
    }

    /// The methods of the tool that were called since the last look, without their arguments.
    fn steps(&self) -> Vec<String> {
        let steps = self.cluster.steps();
        self.cluster.forget_steps();
        steps.iter().map(|step| step.split(' ').next().unwrap().to_string()).collect()
    }

    fn lines(&self, part: &str) -> usize {
        self.cluster.dump().lines().filter(|line| line.starts_with(part)).count()
    }

    /// The volume is deleted, its snapshots are kept.
    fn hold_source(&self) -> String {
        let held = format!("csi-held-{}", self.source.incarnation.as_ref().unwrap());
        let at = self.cluster.at();
        self.cluster
            .on(&at)
            .set_metadata(&self.source.object, "cephlet.object", &self.source.object)
            .unwrap();
        self.cluster.on(&at).rename(&self.source.object, &held).unwrap();
        held
    }
}

fn drop_it(rbd: &Rbd, id: &SnapshotId) -> Result<Deleted> {
    rbd.snapshots().delete(&call(), id, &Secrets::default())
}

fn refused(outcome: Result<Snapshot>, kind: Kind, part: &str) {
    let error = outcome.unwrap_err();
    assert!(error.kind() == kind && error.message().contains(part), "{:?}: {error}", error.kind());
}

#[test]
fn a_snapshot_takes_four_processes_and_its_repeat_two() {
    let scene = Scene::new();
    let new = request(&scene.source, "snap");
    let taken = scene.rbd.snapshots().create(&call(), &new).unwrap();
    assert_eq!(scene.steps(), ["info", "lock", "take_snapshot", "snapshots"]);
    assert_eq!((taken.size, &taken.source), (GIB, &scene.source));
    let again = scene.rbd.snapshots().create(&call(), &new).unwrap();
    assert_eq!(scene.steps(), ["info", "snapshots"]);
    assert_eq!((&again.id, again.created), (&taken.id, taken.created));
    let cold = snapshot(&controller(&scene.cluster, TWO), &scene.source, "snap").unwrap();
    assert_eq!(scene.steps(), ["info", "lock", "holders", "snapshots"]);
    assert_eq!((cold.id, cold.created, cold.size), (taken.id, taken.created, taken.size));
}

#[test]
fn a_name_is_for_one_source_and_one_request() {
    let scene = Scene::new();
    snapshot(&scene.rbd, &scene.source, "snap").unwrap();
    let before = scene.cluster.dump();
    for rbd in [&scene.rbd, &controller(&scene.cluster, TWO)] {
        refused(snapshot(rbd, &scene.other, "snap"), Kind::AlreadyExists, &scene.source.object);
        let twin = NewSnapshot { name: "twin".into(), ..request(&scene.source, "snap") };
        refused(rbd.snapshots().create(&call(), &twin), Kind::AlreadyExists, "twin");
    }
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn only_volumes_have_snapshots() {
    let scene = Scene::new();
    let before = scene.cluster.dump();
    let of = |object: &str, incarnation: Option<&str>| VolumeId {
        place: place("rbd"),
        object: object.into(),
        incarnation: incarnation.map(Into::into),
    };
    for id in [
        of("nothing", None),
        of(&scene.source.object, Some("10older")),
        of("csi-tmp-1-a", None),
        of("csi-held-1", None),
    ] {
        refused(snapshot(&scene.rbd, &id, "snap"), Kind::NotFound, &id.object);
    }
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn a_claim_without_its_snapshot_is_taken_over() {
    let scene = Scene::impatient();
    let at = scene.cluster.at();
    let theirs = snapshot(&scene.rbd, &scene.other, "snap").unwrap().id;
    let name = names::snapshot(&theirs.snapshot);
    scene.cluster.on(&at).remove_snapshot(ImageRef::Id(&theirs.source), &name).unwrap();
    let id = snapshot(&impatient_controller(&scene.cluster, ONE), &scene.source, "snap").unwrap().id;
    let holders = scene.cluster.on(&at).holders(LockTarget::SnapshotName(id.name_key())).unwrap();
    assert!(holders.len() == 1 && holders[0].shared.as_ref().unwrap().starts_with(&id.source));
    // The same, seen from another controller, first with the image still there, then without.
    let remove = |id: &SnapshotId| {
        let name = names::snapshot(&id.snapshot);
        scene.cluster.on(&at).remove_snapshot(ImageRef::Id(&id.source), &name).unwrap()
    };
    assert_eq!(remove(&id), Removed::Gone);
    let back = snapshot(&impatient_controller(&scene.cluster, TWO), &scene.other, "snap").unwrap().id;
    assert_eq!(remove(&back), Removed::Gone);
    scene.cluster.on(&at).remove(&scene.other.object).unwrap();
    snapshot(&impatient_controller(&scene.cluster, ONE), &scene.source, "snap").unwrap();
    assert_eq!((scene.lines("snapshot"), scene.lines("object")), (1, 1));
}

#[test]
fn what_is_deleted_leaves_neither_snapshot_nor_name() {
    let scene = Scene::new();
    let before = scene.cluster.dump();
    let id = snapshot(&scene.rbd, &scene.source, "snap").unwrap().id;
    scene.steps();
    assert_eq!(drop_it(&scene.rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(scene.steps(), ["holders", "remove_snapshot", "remove_lockable", "info"]);
    assert_eq!(scene.cluster.dump(), before);
    assert_eq!(drop_it(&scene.rbd, &id).unwrap(), Deleted::Absent);
    assert_eq!(scene.cluster.dump(), before);
    assert!(scene.rbd.snapshots().find(&call(), &id, &Secrets::default()).unwrap().is_none());
}

#[test]
fn the_name_of_another_sources_snapshot_stays() {
    let scene = Scene::new();
    let id = snapshot(&scene.rbd, &scene.source, "snap").unwrap().id;
    let before = scene.cluster.dump();
    let other = SnapshotId { source: scene.other.incarnation.clone().unwrap(), ..id };
    assert_eq!(drop_it(&scene.rbd, &other).unwrap(), Deleted::Absent);
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn the_claim_of_an_image_that_is_gone_goes_too() {
    let scene = Scene::new();
    let (at, id) = (scene.cluster.at(), snapshot(&scene.rbd, &scene.source, "snap").unwrap().id);
    scene.cluster.on(&at).remove_snapshot(ImageRef::Id(&id.source), &names::snapshot(&id.snapshot)).unwrap();
    scene.cluster.on(&at).remove(&scene.source.object).unwrap();
    assert_eq!(drop_it(&scene.rbd, &id).unwrap(), Deleted::Absent);
    assert!(!without_free_names(&scene.cluster.dump()).contains("object"), "{}", scene.cluster.dump());
}

#[test]
fn a_held_image_keeps_its_snapshots_and_goes_with_the_last_one() {
    let scene = Scene::new();
    let [one, two] = ["one", "two"].map(|name| snapshot(&scene.rbd, &scene.source, name).unwrap());
    let held = scene.hold_source();
    let rbd = controller(&scene.cluster, TWO);
    let found = rbd.snapshots().find(&call(), &one.id, &Secrets::default()).unwrap().unwrap();
    assert_eq!((found.source, found.created, found.size), (scene.source.clone(), one.created, GIB));
    let listed = rbd.snapshots().list(&call(), &SnapshotFilter::All, &Secrets::default(), "", 0).unwrap();
    assert!(listed.entries.len() == 2 && listed.entries.iter().all(|it| it.source == scene.source));
    let of = SnapshotFilter::Of(scene.source.clone());
    assert_eq!(rbd.snapshots().list(&call(), &of, &Secrets::default(), "", 0).unwrap().entries.len(), 2);
    drop_it(&rbd, &one.id).unwrap();
    assert!(scene.cluster.dump().contains(&held));
    drop_it(&rbd, &two.id).unwrap();
    assert!(!scene.cluster.dump().contains(&held), "{}", scene.cluster.dump());
}

#[test]
fn a_list_is_told_in_pages_that_stay_as_they_were() {
    let scene = Scene::new();
    let mut ids: Vec<_> =
        (0..5).map(|n| snapshot(&scene.rbd, &scene.source, &format!("s{n}")).unwrap().id).collect();
    ids.push(snapshot(&scene.rbd, &scene.other, "o").unwrap().id);
    scene.cluster.here().create_snapshot(&scene.other.object, "csi-snap-by-hand").unwrap();
    ids.sort_by_key(|id| (id.source.clone(), id.snapshot.clone()));
    let rbd = controller(&scene.cluster, TWO);
    scene.steps();
    let (mut told, mut after) = (Vec::new(), String::new());
    loop {
        let part =
            rbd.snapshots().list(&call(), &SnapshotFilter::All, &Secrets::default(), &after, 2).unwrap();
        told.extend(part.entries.iter().map(|it| it.id.clone()));
        match part.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(told, ids);
    let looks = scene.steps().into_iter().filter(|step| step == "snapshots").count();
    assert_eq!(looks, 2, "one for each image");
    let page = rbd.snapshots().list(&call(), &SnapshotFilter::All, &Secrets::default(), "", 0).unwrap();
    assert_eq!((page.entries.len(), page.next), (6, None));
    assert_eq!(scene.steps(), ["list"]);
    let of = |id: &VolumeId| {
        rbd.snapshots().list(&call(), &SnapshotFilter::Of(id.clone()), &Secrets::default(), "", 3).unwrap()
    };
    assert_eq!((of(&scene.source).entries.len(), of(&scene.other).entries.len()), (3, 1));
    assert!(of(&scene.source).next.is_some());
    let by_hand = VolumeId { incarnation: None, ..scene.source.clone() };
    assert_eq!(of(&by_hand).entries[0].source, scene.source);
    let gone = VolumeId { incarnation: Some("10gone".into()), ..scene.source.clone() };
    assert_eq!(of(&gone).entries.len(), 0);
}

#[test]
fn after_a_crash_at_any_step_the_same_request_takes_the_same_snapshot() {
    let scene = Scene::new();
    snapshot(&scene.rbd, &scene.source, "snap").unwrap();
    let perfect = without_drawn(&scene.cluster.dump());
    for fault in [Fault::Before, Fault::After] {
        for k in 1.. {
            let scene = Scene::new();
            scene.cluster.crash_at(k, fault);
            let outcome = snapshot(&scene.rbd, &scene.source, "snap");
            let reached = !scene.cluster.fault_pending();
            scene.cluster.restart();
            assert_eq!(outcome.is_err(), reached);
            snapshot(&controller(&scene.cluster, ONE), &scene.source, "snap").unwrap();
            assert_eq!(without_drawn(&scene.cluster.dump()), perfect, "{fault:?} at step {k}");
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn after_a_crash_at_any_step_the_same_deletion_leaves_nothing() {
    for fault in [Fault::Before, Fault::After] {
        for k in 1.. {
            let scene = Scene::new();
            let before = scene.cluster.dump();
            let id = snapshot(&scene.rbd, &scene.source, "snap").unwrap().id;
            scene.cluster.crash_at(k, fault);
            let outcome = drop_it(&scene.rbd, &id);
            let reached = !scene.cluster.fault_pending();
            scene.cluster.restart();
            assert_eq!(outcome.is_err(), reached);
            drop_it(&controller(&scene.cluster, ONE), &id).unwrap();
            assert_eq!(without_free_names(&scene.cluster.dump()), before, "{fault:?} at step {k}");
            // The name is free, for another source too.
            snapshot(&controller(&scene.cluster, ONE), &scene.other, "snap").unwrap();
            if !reached {
                break;
            }
        }
    }
}

/// Asserts that every claimed snapshot exists.
fn sound(scene: &Scene, what: &str) {
    let dump = scene.cluster.dump();
    let claimed = dump.lines().filter_map(|line| {
        let (_, snapshot) = line.strip_prefix("object name ")?.rsplit_once("@csi-snap-")?;
        Some(snapshot.trim_end_matches('"'))
    });
    for snapshot in claimed {
        assert!(dump.contains(&format!("@csi-snap-{snapshot} ")), "{what}: {dump}");
    }
}

/// After this step of a creation the name is claimed. A controller that stands still there for the whole
/// grace leaves a snapshot that no name stands for.
const CLAIMED: u64 = 2;

#[test]
fn two_controllers_may_take_the_same_snapshot_at_once() {
    for k in 1..8 {
        let scene = Scene::impatient();
        let (source, theirs) = (scene.source.clone(), std::sync::Arc::new(parking_lot::Mutex::new(None)));
        let told = std::sync::Arc::clone(&theirs);
        scene.cluster.on_step(k, move |cluster| {
            *told.lock() = Some(snapshot(&impatient_controller(cluster, TWO), &source, "snap").unwrap().id);
        });
        let ours = snapshot(&scene.rbd, &scene.source, "snap").unwrap().id;
        sound(&scene, &format!("step {k}"));
        assert!(theirs.lock().take().is_none_or(|theirs| theirs == ours), "step {k}");
        assert_eq!(scene.lines("snapshot"), 1 + usize::from(k == CLAIMED), "step {k}");
    }
}

#[test]
fn of_two_sources_one_gets_the_name() {
    for k in 1..8 {
        let scene = Scene::impatient();
        let (other, theirs) = (scene.other.clone(), std::sync::Arc::new(parking_lot::Mutex::new(None)));
        let told = std::sync::Arc::clone(&theirs);
        scene.cluster.on_step(k, move |cluster| {
            *told.lock() = Some(snapshot(&impatient_controller(cluster, TWO), &other, "snap").is_ok())
        });
        let ours = snapshot(&scene.rbd, &scene.source, "snap").is_ok();
        assert_eq!(usize::from(ours) + usize::from(theirs.lock().unwrap_or(false)), 1, "step {k}");
        assert_eq!(scene.lines("snapshot"), 1 + usize::from(k == CLAIMED), "{k}: {}", scene.cluster.dump());
        sound(&scene, &format!("step {k}"));
    }
}

#[test]
fn the_claim_of_an_attempt_that_died_may_be_taken_over_at_any_step() {
    for k in 1..12 {
        let scene = Scene::impatient();
        scene.cluster.crash_at(CLAIMED, Fault::After);
        snapshot(&scene.rbd, &scene.source, "snap").unwrap_err();
        scene.cluster.restart();
        assert_eq!((scene.lines("object name"), scene.lines("snapshot")), (1, 0));
        let other = scene.other.clone();
        scene
            .cluster
            .on_step(k, move |cluster| drop(snapshot(&impatient_controller(cluster, TWO), &other, "snap")));
        drop(snapshot(&impatient_controller(&scene.cluster, ONE), &scene.source, "snap"));
        sound(&scene, &format!("step {k}"));
    }
}

#[test]
fn a_snapshot_may_be_deleted_and_taken_at_once() {
    for k in 1..8 {
        let scene = Scene::impatient();
        let (source, id) = (scene.source.clone(), snapshot(&scene.rbd, &scene.source, "snap").unwrap().id);
        scene
            .cluster
            .on_step(k, move |cluster| drop(snapshot(&impatient_controller(cluster, TWO), &source, "snap")));
        drop_it(&scene.rbd, &id).unwrap();
        sound(&scene, &format!("taken after step {k} of the deletion"));

        let scene = Scene::impatient();
        let id = snapshot(&scene.rbd, &scene.source, "snap").unwrap().id;
        scene.cluster.on_step(k, move |cluster| drop(drop_it(&impatient_controller(cluster, TWO), &id)));
        drop(snapshot(&impatient_controller(&scene.cluster, ONE), &scene.source, "snap"));
        snapshot(&impatient_controller(&scene.cluster, ONE), &scene.source, "snap").unwrap();
        sound(&scene, &format!("deleted after step {k} of the taking"));
    }
}

/// A claim of a later version counts as in use, even though it cannot be read.
#[test]
fn the_claim_of_a_later_version_is_left_alone() {
    let scene = Scene::new();
    let id = snapshot(&scene.rbd, &scene.other, "snap").unwrap().id;
    let (at, target) = (scene.cluster.at(), LockTarget::SnapshotName(id.name_key()));
    let [holder] = &scene.cluster.on(&at).holders(target).unwrap()[..] else { panic!("a share") };
    scene.cluster.on(&at).unlock(target, holder).unwrap();
    let LockHolder { cookie, shared, description, .. } = holder.clone();
    let description = description.replace("\"version\":1", "\"version\":2,\"until\":\"noon\"");
    let request = LockRequest { cookie, description, shared, seconds: None };
    scene.cluster.on(&at).lock(target, &request).unwrap();
    let before = scene.cluster.dump();
    refused(snapshot(&scene.rbd, &scene.source, "snap"), Kind::Precondition, "a later cephlet");
    let error = drop_it(&scene.rbd, &id).unwrap_err();
    assert!(error.kind() == Kind::Precondition && error.message().contains("later cephlet"), "{error}");
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn the_source_may_go_while_it_is_snapshotted() {
    for k in 1..5 {
        let scene = Scene::new();
        let object = scene.source.object.clone();
        scene.cluster.on_step(k, move |cluster| _ = cluster.here().remove(&object).unwrap());
        let outcome = snapshot(&scene.rbd, &scene.source, "snap");
        sound(&scene, &format!("step {k}"));
        assert!(outcome.is_ok() || outcome.is_err_and(|error| error.kind() == Kind::NotFound), "step {k}");
    }
}
