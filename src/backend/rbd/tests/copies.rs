//! Volumes that begin as copies.

use super::delete::delete;
use super::*;
use crate::backend::rbd::jobs::sweep::sweep_pool;
use crate::backend::rbd::names;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind;
use crate::ids::SnapshotId;

const FAULTS: [Fault; 4] = [Fault::Before, Fault::After, Fault::HalfMade, Fault::HalfMoved];

/// A cluster with the volume `source`, which has data, and its snapshot `snap`. The volume was written again
/// after the snapshot.
struct Scene {
    cluster: FakeCluster,
    rbd: Rbd,
    source: VolumeId,
    snap: SnapshotId,
}

impl Scene {
    fn new() -> Self {
        let cluster = FakeCluster::new();
        let rbd = controller(&cluster, ONE);
        let mut new = wanted("source", GIB, None);
        new.parameters.insert(crate::csi::FS_TYPE.into(), "xfs".into());
        let source = create(&rbd, &new).unwrap().id;
        cluster.write(&cluster.at(), &source.object, "old");
        let snap = snapshot(&rbd, &source, "snap").unwrap().id;
        cluster.write(&cluster.at(), &source.object, "new");
        cluster.forget_steps();
        Self { cluster, rbd, source, snap }
    }

    fn of_snapshot(&self) -> Option<Origin> {
        Some(Origin::Snapshot(self.snap.clone()))
    }

    fn of_volume(&self) -> Option<Origin> {
        Some(Origin::Volume(self.source.clone()))
    }

    fn content(&self, volume: &Volume) -> String {
        self.cluster.content(&self.cluster.at(), &volume.id.object)
    }

    /// What exists besides the volume of this name.
    fn others(&self, name: &str) -> String {
        let object = volume_object("default", name);
        let dump = self.cluster.dump();
        dump.lines().filter(|line| !line.contains(&object)).collect::<Vec<_>>().join("\n")
    }
}

fn refused(outcome: Result<Volume>, kind: Kind, part: &str) {
    let error = outcome.unwrap_err();
    assert!(error.kind() == kind && error.message().contains(part), "{:?}: {error}", error.kind());
}

#[test]
fn a_snapshot_becomes_a_volume_in_seven_processes_and_is_found_in_two() {
    let scene = Scene::new();
    let before = scene.cluster.dump();
    let new = wanted("copy", GIB, scene.of_snapshot());
    let volume = create(&scene.rbd, &new).unwrap();
    let steps: Vec<_> =
        scene.cluster.steps().iter().map(|step| step.split(' ').next().unwrap().to_string()).collect();
    assert_eq!(steps, ["info", "clone_image", "all_metadata", "set_metadata", "info", "rename", "info"]);
    assert_eq!(scene.content(&volume), "old");
    assert_eq!((volume.size, volume.fs_type.as_deref()), (GIB, Some("xfs")));
    assert_eq!(volume.source, Some(Source::Snapshot(scene.snap.to_string())));
    assert_eq!(scene.others("copy"), before);
    scene.cluster.forget_steps();
    let again = create(&scene.rbd, &new).unwrap();
    assert_eq!((again.id, again.fs_type, again.source), (volume.id.clone(), volume.fs_type, volume.source));
    assert_eq!(scene.cluster.steps().len(), 2, "by its name, and by its id: {:?}", scene.cluster.steps());
    let cold = create(&controller(&scene.cluster, ONE), &new).unwrap();
    assert_eq!((cold.id, cold.fs_type.as_deref()), (volume.id, Some("xfs")));
    assert_eq!(scene.others("copy"), before, "a repeat leaves nothing");
}

#[test]
fn a_volume_becomes_another_and_its_snapshot_is_gone() {
    let scene = Scene::new();
    let volume = create(&scene.rbd, &wanted("copy", 2 * GIB, scene.of_volume())).unwrap();
    assert_eq!(scene.cluster.steps().len(), 10, "{:?}", scene.cluster.steps());
    assert_eq!((scene.content(&volume), volume.size), ("new".to_string(), 2 * GIB));
    assert!(scene.cluster.dump().contains("trashed"));
    scene.cluster.here().flatten(&volume.id.object).unwrap();
    assert!(!scene.cluster.dump().contains("csi-copy"), "{}", scene.cluster.dump());
}

#[test]
fn sizes_are_at_least_the_snapshots() {
    let scene = Scene::new();
    let range = |required, limit| NewVolume {
        size: SizeRange { required, limit },
        ..wanted(&format!("{required} to {limit}"), 0, scene.of_snapshot())
    };
    // The volume grows, its snapshot does not.
    scene.cluster.here().resize(&scene.source.object, 8 * GIB).unwrap();
    for (required, limit, size) in
        [(0, 0, GIB), (1, 0, GIB), (0, GIB, GIB), (2 * GIB, 2 * GIB, 2 * GIB), (GIB + 1, 0, GIB + 4096)]
    {
        assert_eq!(create(&scene.rbd, &range(required, limit)).unwrap().size, size);
    }
    let before = scene.cluster.dump();
    refused(create(&scene.rbd, &range(0, GIB - 1)), Kind::OutOfRange, &GIB.to_string());
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn what_is_not_there_is_not_found() {
    let scene = Scene::new();
    let before = scene.cluster.dump();
    let missing = |name: &str, origin| create(&scene.rbd, &wanted(name, 0, Some(origin)));
    let other = SnapshotId { snapshot: "abcdefghij234-zyxw7654".into(), ..scene.snap.clone() };
    refused(missing("a", Origin::Snapshot(other)), Kind::NotFound, "abcdefghij234-zyxw7654");
    let nowhere = SnapshotId { source: "10nowhere".into(), ..scene.snap.clone() };
    refused(missing("b", Origin::Snapshot(nowhere)), Kind::NotFound, "10nowhere");
    let older = VolumeId { incarnation: Some("10older".into()), ..scene.source.clone() };
    refused(missing("c", Origin::Volume(older)), Kind::NotFound, "10older");
    let held = VolumeId { object: "csi-held-1".into(), incarnation: None, ..scene.source.clone() };
    refused(missing("d", Origin::Volume(held)), Kind::NotFound, "no volume");
    let mut far = scene.snap.clone();
    far.place.cluster = "far".into();
    refused(missing("e", Origin::Snapshot(far)), Kind::InvalidArgument, "far");
    assert_eq!(scene.cluster.dump(), before);
}

#[test]
fn a_renamed_source_is_found_by_its_id_and_a_newer_one_of_its_name_is_not_taken() {
    let scene = Scene::new();
    let (at, held) = (scene.cluster.at(), format!("csi-held-{}", scene.snap.source));
    scene.cluster.on(&at).rename(&scene.source.object, &held).unwrap();
    create(&scene.rbd, &wanted("source", GIB, None)).unwrap();
    let newer = create(&scene.rbd, &wanted("source", GIB, None)).unwrap().id;
    scene.cluster.on(&at).create_snapshot(&newer.object, &names::snapshot(&scene.snap.snapshot)).unwrap();
    let copy = create(&scene.rbd, &wanted("copy", 0, scene.of_snapshot())).unwrap();
    assert_eq!(scene.content(&copy), "old");
    assert!(
        scene.cluster.dump().contains(&format!("{} {GIB} of rbd/{held}@", copy.id.object)),
        "{}",
        scene.cluster.dump()
    );
    // An image in the trash cannot be cloned.
    scene.cluster.put_aside(&at, &held);
    refused(
        create(&scene.rbd, &wanted("other", 0, scene.of_snapshot())),
        Kind::NotFound,
        &scene.snap.to_string(),
    );
}

#[test]
fn limits_and_layout_are_those_of_the_request() {
    let scene = Scene::new();
    let (at, source) = (scene.cluster.at(), &scene.source.object);
    scene
        .cluster
        .on(&at)
        .set_limits(source, &[("rbd_qos_iops_limit", 100), ("rbd_qos_bps_limit", 5)])
        .unwrap();
    scene.cluster.add_pool("ec");
    let mut new = wanted("copy", 0, scene.of_snapshot());
    new.parameters.insert("dataPool".into(), "ec".into());
    new.mutable_parameters.insert("iops".into(), "7".into());
    let copy = create(&scene.rbd, &new).unwrap();
    let metadata = scene.cluster.all_metadata(&at, &copy.id.object);
    assert_eq!(metadata["conf_rbd_qos_iops_limit"], "7");
    assert!(!metadata.contains_key("conf_rbd_qos_bps_limit"), "{metadata:?}");
    assert_eq!(scene.cluster.layout(&at, &copy.id.object).data_pool.as_deref(), Some("ec"));
}

#[test]
fn a_copy_may_live_in_another_pool() {
    let scene = Scene::new();
    scene.cluster.add_pool("fast");
    let new = NewVolume { place: place("fast"), ..wanted("copy", 0, scene.of_volume()) };
    let copy = create(&scene.rbd, &new).unwrap();
    assert_eq!(scene.cluster.content(&scene.cluster.at_pool("fast", ""), &copy.id.object), "new");
}

#[test]
fn another_source_is_another_volume() {
    let scene = Scene::new();
    let before = scene.cluster.dump();
    create(&scene.rbd, &wanted("copy", 0, scene.of_snapshot())).unwrap();
    for rbd in [&scene.rbd, &controller(&scene.cluster, TWO)] {
        refused(create(rbd, &wanted("copy", 0, scene.of_volume())), Kind::AlreadyExists, "source");
    }
    assert_eq!(scene.others("copy"), before);
}

#[test]
fn what_a_killed_attempt_left_is_no_part_of_the_next_one() {
    let scene = Scene::new();
    let (at, new) = (scene.cluster.at(), wanted("copy", 0, scene.of_volume()));
    let temporary = names::temporary(&new.object, ONE, "zyxw7654");
    let blank = NewImage { name: &temporary, size: GIB, layout: &Layout::default(), metadata: &[] };
    scene.cluster.on(&at).create(&blank).unwrap();
    let transient = names::transient(&temporary);
    scene.cluster.on(&at).create_snapshot(&scene.source.object, &transient).unwrap();
    scene.cluster.write(&at, &scene.source.object, "newest");
    assert_eq!(scene.content(&create(&scene.rbd, &new).unwrap()), "newest");
    sweep_pool(&scene.rbd.context.pool(&call(), &at)).unwrap();
    assert!(!scene.cluster.dump().contains("zyxw7654"), "{}", scene.cluster.dump());
}

#[test]
fn a_repeat_is_answered_though_the_source_is_gone_or_has_grown() {
    let scene = Scene::new();
    let (at, cluster) = (scene.cluster.at(), &scene.cluster);
    let mut new = wanted("copy", 0, scene.of_volume());
    new.size.limit = GIB;
    let copy = create(&scene.rbd, &new).unwrap();
    cluster.on(&at).resize(&scene.source.object, 2 * GIB).unwrap();
    assert_eq!(create(&controller(cluster, TWO), &new).unwrap().id, copy.id);
    cluster.on(&at).rename(&scene.source.object, "gone").unwrap();
    assert_eq!(create(&controller(cluster, TWO), &new).unwrap().id, copy.id);
}

/// The two kinds of requests for a copy.
fn requests(scene: &Scene) -> [NewVolume; 2] {
    [wanted("copy", 2 * GIB, scene.of_snapshot()), wanted("copy", 2 * GIB, scene.of_volume())]
}

#[test]
fn after_a_crash_at_any_step_the_same_request_leaves_the_same() {
    for (which, fault) in [0, 1].into_iter().flat_map(|which| FAULTS.map(|fault| (which, fault))) {
        let scene = Scene::new();
        create(&scene.rbd, &requests(&scene)[which]).unwrap();
        let perfect = without_drawn(&scene.cluster.dump().replace(&scene.snap.source, "ID"));
        for k in 1.. {
            let scene = Scene::new();
            let new = &requests(&scene)[which];
            scene.cluster.crash_at(k, fault);
            let outcome = create(&scene.rbd, new);
            let reached = !scene.cluster.fault_pending();
            scene.cluster.restart();
            assert_eq!(outcome.is_err(), reached);
            let rbd = controller(&scene.cluster, ONE);
            let copy = create(&rbd, new).unwrap();
            assert_eq!(scene.content(&copy), ["old", "new"][which], "{fault:?} at step {k}");
            sweep_pool(&rbd.context.pool(&call(), &scene.cluster.at())).unwrap();
            let dump = without_drawn(&scene.cluster.dump().replace(&scene.snap.source, "ID"));
            assert_eq!(dump, perfect, "{fault:?} at step {k}");
            if !reached {
                break;
            }
        }
    }
}

#[test]
fn a_command_that_fails_at_any_step_leaves_what_a_repeat_needs() {
    for which in [0, 1] {
        for k in 1.. {
            let scene = Scene::new();
            let new = &requests(&scene)[which];
            scene.cluster.fail_at(k, Fault::After);
            let first = create(&scene.rbd, new);
            if scene.cluster.fault_pending() {
                break;
            }
            assert!(first.is_err());
            let copy = create(&scene.rbd, new).unwrap();
            assert_eq!(scene.content(&copy), ["old", "new"][which]);
            sweep_pool(&scene.rbd.context.pool(&call(), &scene.cluster.at())).unwrap();
            let dump = scene.cluster.dump();
            assert!(!dump.contains("csi-tmp-") && dump.matches("csi-copy-").count() <= 2, "step {k}: {dump}");
        }
    }
}

/// The rename is the last but one of the steps.
const RENAME: u64 = 6;

#[test]
fn a_killed_rename_leaves_one_name_where_the_daemon_lives_on() {
    for fault in FAULTS {
        let scene = Scene::new();
        scene.cluster.fail_at(RENAME, fault);
        create(&scene.rbd, &wanted("copy", GIB, scene.of_snapshot())).unwrap_err();
        assert!(scene.cluster.steps().last().unwrap().starts_with("rename "), "{:?}", scene.cluster.steps());
        do_jobs_due_within(&scene.rbd, timing().dead_client);
        let dump = scene.cluster.dump();
        assert!(!dump.contains("csi-tmp-") && !dump.contains("second name"), "{fault:?}: {dump}");
        assert_eq!(renames(&scene.cluster, ONE).begun(&place("rbd")), [], "{fault:?}");
    }
}

/// A volume that is deleted before the sweep leaves a second name that means no image.
#[test]
fn a_killed_rename_leaves_no_name_where_the_volume_is_deleted_next() {
    for fault in FAULTS {
        let scene = Scene::new();
        let (cluster, new) = (&scene.cluster, wanted("copy", GIB, scene.of_snapshot()));
        let before = cluster.dump();
        cluster.crash_at(RENAME, fault);
        create(&scene.rbd, &new).unwrap_err();
        cluster.restart();
        let other = controller(cluster, TWO);
        delete(&other, &create(&other, &new).unwrap().id).unwrap();
        let rbd = controller(cluster, ONE);
        sweep_pool(&rbd.context.pool(&call(), &cluster.at())).unwrap();
        assert_eq!(cluster.dump(), before, "{fault:?}");
        assert_eq!(renames(cluster, ONE).begun(&place("rbd")), [], "{fault:?}");
    }
}

#[test]
fn another_controller_may_make_the_same_copy_between_any_two_steps() {
    for (which, overtakes) in [(0, false), (1, false), (0, true), (1, true)] {
        for k in 1..14 {
            let scene = Scene::new();
            if overtakes {
                scene.cluster.overtake_renames();
            }
            let new = requests(&scene)[which].clone();
            let (theirs, request) = (std::sync::Arc::new(parking_lot::Mutex::new(None)), new.clone());
            let told = std::sync::Arc::clone(&theirs);
            scene.cluster.on_step(k, move |cluster| {
                *told.lock() = Some(create(&controller(cluster, TWO), &request).unwrap());
            });
            let ours = create(&scene.rbd, &new).unwrap();
            if let Some(theirs) = theirs.lock().take() {
                assert_eq!(
                    (theirs.id, theirs.size, theirs.fs_type),
                    (ours.id.clone(), ours.size, ours.fs_type.clone())
                );
            }
            assert_eq!(scene.content(&ours), ["old", "new"][which]);
            let dump = scene.cluster.dump();
            let once = dump
                .lines()
                .filter(|line| line.contains("csi-copy-") && line.starts_with("snapshot"))
                .count();
            assert!(!dump.contains("csi-tmp-") && once == which, "step {k}: {dump}");
        }
    }
}

#[test]
fn the_source_may_be_deleted_between_any_two_steps() {
    for which in [0, 1] {
        for k in 1..14 {
            let scene = Scene::new();
            let new = requests(&scene)[which].clone();
            let (object, id) = (scene.source.object.clone(), scene.snap.clone());
            scene.cluster.on_step(k, move |cluster| {
                let (at, name) = (cluster.at(), names::snapshot(&id.snapshot));
                let source = ImageRef::Id(&id.source);
                cluster.on(&at).remove_snapshot(source, &name).unwrap();
                cluster.on(&at).rename(&object, &format!("csi-held-{}", id.source)).unwrap();
            });
            match create(&scene.rbd, &new) {
                Ok(copy) => assert_eq!(scene.content(&copy), ["old", "new"][which]),
                Err(error) if error.kind() == Kind::Busy => {
                    assert_eq!(create(&scene.rbd, &new).unwrap_err().kind(), Kind::NotFound, "step {k}");
                }
                Err(error) => assert_eq!(error.kind(), Kind::NotFound, "step {k}: {error}"),
            }
            let dump = scene.cluster.dump();
            let passing =
                dump.lines().filter(|line| line.contains("csi-copy-") && line.starts_with("snapshot"));
            assert!(passing.into_iter().all(|line| line.ends_with("trashed")), "step {k}: {dump}");
            assert!(!dump.contains("csi-tmp-"), "step {k}: {dump}");
        }
    }
}

#[test]
fn a_copy_of_a_replicated_volume_takes_over_nothing_of_its_replication() {
    let scene = Scene::new();
    let at = scene.cluster.at();
    for (key, value) in [
        ("cephlet.replication", "{\"version\":1,\"interval\":\"5m\"}"),
        ("cephlet.demoted", scene.source.incarnation.as_deref().unwrap()),
    ] {
        scene.cluster.on(&at).set_metadata(&scene.source.object, key, value).unwrap();
    }
    for (name, origin) in [("of-snapshot", scene.of_snapshot()), ("of-volume", scene.of_volume())] {
        let copy = create(&scene.rbd, &wanted(name, GIB, origin)).unwrap();
        let metadata = scene.cluster.all_metadata(&at, &copy.id.object);
        assert_eq!(metadata["cephlet.replication"], "{\"version\":1}", "{name}");
        assert_eq!(metadata["cephlet.demoted"], "none", "{name}");
    }
}
