//! An ID never means a later snapshot of the same name.

use super::delete::delete_snapshot;
use super::*;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, Interrupted, SnapshotFilter};
use crate::error::Kind;
use crate::ids::SnapshotId;

/// A cluster with a volume, of which a snapshot was taken, deleted, and taken again by the same name when the
/// volume had other data. Another controller may have done the latter.
struct Scene {
    cluster: FakeCluster,
    rbd: Rbd,
    source: VolumeId,
    earlier: SnapshotId,
    later: SnapshotId,
}

impl Scene {
    fn new(second: &str) -> Self {
        let cluster = FakeCluster::new();
        let rbd = controller(&cluster, ONE);
        let source = create(&rbd, &wanted("source", GIB, None)).unwrap().id;
        cluster.write(&cluster.at(), &source.object, "earlier");
        let earlier = snapshot(&rbd, &source, "snap").unwrap().id;
        let later = retake(&cluster, second, &source, &earlier);
        Self { cluster, rbd, source, earlier, later }
    }

    fn drop_it(&self, id: &SnapshotId) -> Deleted {
        self.rbd.snapshots().delete(&call(), id, &Secrets::default()).unwrap()
    }

    fn find(&self, id: &SnapshotId) -> Option<SnapshotId> {
        self.rbd.snapshots().find(&call(), id, &Secrets::default()).unwrap().map(|found| found.id)
    }
}

/// Deletes the snapshot, and takes it again of other data.
fn retake(cluster: &FakeCluster, tag: &str, source: &VolumeId, earlier: &SnapshotId) -> SnapshotId {
    let rbd = controller(cluster, tag);
    delete_snapshot(&rbd, earlier).unwrap();
    cluster.write(&cluster.at(), &source.object, "later");
    snapshot(&rbd, source, "snap").unwrap().id
}

fn copy(rbd: &Rbd, of: &SnapshotId) -> Result<Volume> {
    create(rbd, &wanted("copy", 0, Some(Origin::Snapshot(of.clone()))))
}

#[test]
fn a_late_deletion_leaves_a_later_snapshot_and_its_name() {
    for second in [ONE, TWO] {
        let scene = Scene::new(second);
        assert_ne!(scene.earlier, scene.later);
        let before = scene.cluster.dump();
        assert_eq!(scene.drop_it(&scene.earlier), Deleted::Absent);
        assert_eq!(scene.cluster.dump(), before, "UNSAFE: a late deletion hit a later snapshot");
        let finished = scene.rbd.snapshots().finish_deletion(&call(), &scene.earlier, &Secrets::default());
        assert_eq!(finished.unwrap(), Interrupted::Gone);
        assert_eq!(scene.cluster.dump(), before, "UNSAFE: a late deletion hit a later snapshot");
        assert_eq!(scene.drop_it(&scene.later), Deleted::Gone);
        assert!(!scene.cluster.dump().contains("snap"), "{}", scene.cluster.dump());
    }
}

#[test]
fn what_was_deleted_is_not_found_by_its_id_and_not_restored() {
    for second in [ONE, TWO] {
        let scene = Scene::new(second);
        assert_eq!((scene.find(&scene.earlier), scene.find(&scene.later)), (None, Some(scene.later.clone())));
        let before = scene.cluster.dump();
        let error = copy(&scene.rbd, &scene.earlier).unwrap_err();
        assert!(error.kind() == Kind::NotFound, "{error}");
        assert_eq!(scene.cluster.dump(), before);
        let restored = copy(&scene.rbd, &scene.later).unwrap();
        assert_eq!(scene.cluster.content(&scene.cluster.at(), &restored.id.object), "later");
    }
}

#[test]
fn a_snapshot_that_is_retaken_while_it_is_restored_is_not_mixed_up() {
    for k in 1..14 {
        let cluster = FakeCluster::new();
        let rbd = controller(&cluster, ONE);
        let source = create(&rbd, &wanted("source", GIB, None)).unwrap().id;
        cluster.write(&cluster.at(), &source.object, "earlier");
        let earlier = snapshot(&rbd, &source, "snap").unwrap().id;
        let (of, its_source) = (earlier.clone(), source);
        cluster.on_step(k, move |cluster| drop(retake(cluster, TWO, &its_source, &of)));
        match copy(&rbd, &earlier) {
            Ok(volume) => {
                let content = cluster.content(&cluster.at(), &volume.id.object);
                assert_eq!(content, "earlier", "UNSAFE: retaken at step {k}");
            }
            Err(error) if error.kind() == Kind::Busy => {
                assert_eq!(copy(&rbd, &earlier).unwrap_err().kind(), Kind::NotFound, "step {k}");
            }
            Err(error) => assert!(error.kind() == Kind::NotFound, "step {k}: {error}"),
        }
    }
}

#[test]
fn a_list_tells_of_the_later_one() {
    let scene = Scene::new(TWO);
    let list = || scene.rbd.snapshots().list(&call(), &SnapshotFilter::All, &Secrets::default(), "", 0);
    let listed = list().unwrap().entries;
    let at = scene.cluster.at();
    let there = scene.cluster.on(&at).snapshots(ImageRef::Id(&scene.later.source)).unwrap().unwrap();
    assert_eq!((listed.len(), &listed[0].id, listed[0].created), (1, &scene.later, there[0].created));
}

#[test]
fn an_id_that_was_never_given_deletes_nothing() {
    let scene = Scene::new(ONE);
    let before = scene.cluster.dump();
    for snapshot in [format!("{}-zyxw7654", scene.later.name_key()), "abcdefghij234-zyxw7654".to_string()] {
        let id = SnapshotId { snapshot, ..scene.later.clone() };
        assert_eq!((scene.find(&id), scene.drop_it(&id)), (None, Deleted::Absent), "{id}");
        assert_eq!(scene.cluster.dump(), before, "{id}");
    }
}

#[test]
fn one_that_others_delete_meanwhile_is_gone() {
    for k in 1..7 {
        let scene = Scene::new(ONE);
        copy(&scene.rbd, &scene.later).unwrap();
        scene.cluster.forget_steps();
        let later = scene.later.clone();
        // By then the snapshot is in the trash, and has a clone.
        scene.cluster.on_step(k, move |cluster| {
            let second = controller(cluster, TWO);
            delete_snapshot(&second, &later).unwrap();
        });
        delete_snapshot(&scene.rbd, &scene.later).unwrap();
        let dump = without_free_names(&scene.cluster.dump());
        assert!(!dump.contains("object name"), "step {k}: {dump}");
    }
}

/// The number of a snapshot.
fn number(scene: &Scene, id: &SnapshotId) -> u64 {
    let all = scene.cluster.here().snapshots(ImageRef::Id(&id.source)).unwrap();
    all.unwrap().iter().find(|it| it.name == names::snapshot(&id.snapshot)).unwrap().id
}

#[test]
fn a_protected_snapshot_stays_with_its_name() {
    let scene = Scene::new(ONE);
    scene.cluster.protect_snapshot(&scene.cluster.at(), &scene.source.object, number(&scene, &scene.later));
    let before = scene.cluster.dump();
    let error = scene.rbd.snapshots().delete(&call(), &scene.later, &Secrets::default()).unwrap_err();
    let name = names::snapshot(&scene.later.snapshot);
    assert!(error.kind() == Kind::Precondition && error.message().contains(&name), "{error}");
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn what_a_killed_deletion_left_in_the_trash_goes_with_the_next_one() {
    for third in [ONE, TWO] {
        let scene = Scene::new(TWO);
        let at = scene.cluster.at();
        scene.cluster.leave_snapshot_in_trash(&at, &scene.source.object, number(&scene, &scene.later));
        let third = snapshot(&impatient_controller(&scene.cluster, third), &scene.source, "snap").unwrap().id;
        assert_eq!(scene.drop_it(&scene.later), Deleted::Absent);
        let dump = scene.cluster.dump();
        assert!(!dump.contains("trashed") && dump.contains("object name"), "{dump}");
        assert_eq!(scene.find(&third), Some(third));
    }
}

#[test]
fn a_copy_of_the_earlier_one_is_another_volume() {
    let scene = Scene::new(ONE);
    let made = copy(&scene.rbd, &scene.later).unwrap().id;
    assert_eq!(copy(&controller(&scene.cluster, ONE), &scene.later).unwrap().id, made);
    let error = copy(&scene.rbd, &scene.earlier).unwrap_err();
    assert!(error.kind() == Kind::AlreadyExists, "{error}");
}
