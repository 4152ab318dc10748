//! Volumes that share a snapshot.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::copies::{copy_of, drop_snapshot, make, snapshots, take};
use super::fake::FakeFs;
use super::{FAULTS, MIB, STEPS, capability, controller, create, delete, insist, listed, sweep_all};
use crate::backend::ceph::objects::IndexTool;
use crate::backend::cephfs::context::Context;
use crate::backend::rbd::tests::{ONE, TWO, call};
use crate::backend::{NewVolume, Origin, Publication, Publisher, Volumes};
use crate::csi::{Capability, Map, Mode, SizeRange, TopologyRequirement};
use crate::error::{Kind, Result};
use crate::ids::{SnapshotId, VolumeId};
use crate::secrets::Secrets;

pub(super) fn reader() -> Capability {
    Capability { mode: Mode::MultiNodeReaderOnly, ..capability() }
}

pub(super) fn sharing(name: &str, taken: &SnapshotId) -> NewVolume {
    let size = SizeRange { required: 4 * MIB, limit: 0 };
    NewVolume { size, capabilities: vec![reader()], ..copy_of(name, Origin::Snapshot(taken.clone())) }
}

fn saying(new: NewVolume, key: &str, value: &str) -> NewVolume {
    NewVolume { parameters: [(key.to_string(), value.to_string())].into(), ..new }
}

fn publish(context: &Context, id: &VolumeId, capability: Capability) -> Result<Map> {
    let publication = Publication { node: "n1".into(), capability, read_only: false };
    context.publish(&call(), id, &publication, &Secrets::default())
}

/// A cluster with a volume and its snapshot.
pub(super) fn with_snapshot() -> (FakeFs, VolumeId, SnapshotId) {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    let source = create(&ours, "source", 8).unwrap().id;
    let taken = take(&ours, &source, "s").unwrap().id;
    (cluster, source, taken)
}

/// The lock of a controller that died ends by its time, which this cluster does not count.
fn insist_on_deleting(cluster: &FakeFs, id: &VolumeId) {
    insist(|| delete(&controller(cluster, ONE), id)).unwrap();
}

#[test]
fn after_a_crash_at_any_step_a_snapshot_is_kept_for_those_that_share_it() {
    for fault in FAULTS {
        for (step, tag) in (1..STEPS).flat_map(|step| [(step, ONE), (step, TWO)]) {
            let at = format!("{fault:?} at step {step}");
            let (cluster, source, taken) = with_snapshot();
            cluster.fail_at(step, fault);
            let first = make(&controller(&cluster, ONE), &sharing("reader", &taken));
            cluster.restart();
            let again = controller(&cluster, tag);
            let made = insist(|| make(&again, &sharing("reader", &taken))).unwrap();
            if let Ok(first) = first {
                assert_eq!(first.id, made.id, "UNSAFE: {at}: another volume was answered");
            }
            sweep_all(&again);
            assert_eq!(
                (made.size, cluster.subvolumes().len(), listed(&again).len()),
                (8 * MIB, 1, 2),
                "{at}"
            );

            cluster.fail_at(step, fault);
            let _ = drop_snapshot(&controller(&cluster, ONE), &taken);
            cluster.restart();
            insist(|| drop_snapshot(&again, &taken)).unwrap();
            sweep_all(&again);
            assert_eq!((snapshots(&again).len(), cluster.snapshots().len()), (0, 1), "UNSAFE: {at}");
            let late = make(&again, &sharing("late", &taken)).unwrap_err();
            assert_eq!(late.kind(), Kind::NotFound, "{at}: {late}");

            delete(&again, &source).unwrap();
            sweep_all(&again);
            let given = publish(&again, &made.id, reader()).unwrap();
            assert!(given["subvolumePath"].ends_with("/uuid-1"), "{at}: {given:?}");
            assert_eq!(format!("{}-{}", "csi-snap", taken.snapshot), given["snapshot"]);
            again.unpublish(&call(), &made.id, None, &Secrets::default()).unwrap();

            cluster.fail_at(step, fault);
            let _ = delete(&controller(&cluster, ONE), &made.id);
            cluster.restart();
            insist_on_deleting(&cluster, &made.id);
            sweep_all(&again);
            assert_eq!((cluster.snapshots().len(), cluster.rest()), (0, Vec::new()), "{at}");
        }
    }
}

#[test]
fn a_snapshot_may_be_deleted_between_any_two_steps_of_a_creation() {
    for step in 1..STEPS {
        let (cluster, _, taken) = with_snapshot();
        cluster.before_step(step, {
            let (cluster, taken) = (cluster.clone(), taken.clone());
            move || assert!(drop_snapshot(&controller(&cluster, TWO), &taken).is_ok())
        });
        let ours = controller(&cluster, ONE);
        let made = make(&ours, &sharing("reader", &taken));
        let _ = drop_snapshot(&ours, &taken).unwrap();
        sweep_all(&ours);
        match made {
            Ok(made) => {
                assert_eq!(
                    cluster.snapshots().len(),
                    1,
                    "UNSAFE: removed under its volume before step {step}"
                );
                publish(&ours, &made.id, reader()).unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), Kind::NotFound, "before step {step}: {error}");
                assert_eq!((cluster.snapshots().len(), listed(&ours).len()), (0, 1), "before step {step}");
            }
        }
    }
}

#[test]
fn a_volume_may_be_made_between_any_two_steps_of_a_deletion() {
    for (step, of_volume) in (1..STEPS).flat_map(|step| [(step, true), (step, false)]) {
        let (cluster, _, taken) = with_snapshot();
        let ours = controller(&cluster, ONE);
        let first = make(&ours, &sharing("first", &taken)).unwrap().id;
        let theirs = Arc::new(Mutex::new(None));
        cluster.before_step(step, {
            let (cluster, taken, theirs) = (cluster.clone(), taken.clone(), Arc::clone(&theirs));
            move || *theirs.lock() = make(&controller(&cluster, TWO), &sharing("second", &taken)).ok()
        });
        if of_volume {
            delete(&ours, &first).unwrap();
            drop_snapshot(&ours, &taken).unwrap();
        } else {
            drop_snapshot(&ours, &taken).unwrap();
            delete(&ours, &first).unwrap();
        }
        sweep_all(&ours);
        let expected = usize::from(theirs.lock().is_some());
        assert_eq!(cluster.snapshots().len(), expected, "UNSAFE: before step {step}");
        assert_eq!(listed(&ours).len(), 1 + expected, "before step {step}");
    }
}

#[test]
fn what_shares_a_snapshot_is_only_read_and_its_copies_are_copies_of_the_snapshot() {
    let (cluster, _, taken) = with_snapshot();
    let ours = controller(&cluster, ONE);
    let made = make(&ours, &saying(sharing("reader", &taken), "pool", "of-no-matter")).unwrap();
    assert!(made.read_only.is_some());
    let refused = |kind: Kind, error: crate::error::Error| assert_eq!(error.kind(), kind, "{error}");
    refused(Kind::InvalidArgument, publish(&ours, &made.id, capability()).unwrap_err());
    refused(Kind::Precondition, take(&ours, &made.id, "of a snapshot").unwrap_err());
    let larger = SizeRange { required: 9 * MIB, limit: 0 };
    refused(Kind::Precondition, ours.expand(&call(), &made.id, &larger, &Secrets::default()).unwrap_err());
    let same = SizeRange { required: 8 * MIB, limit: 0 };
    assert_eq!(ours.expand(&call(), &made.id, &same, &Secrets::default()).unwrap(), 8 * MIB);
    let inspected = ours.inspect(&call(), &made.id, &Secrets::default()).unwrap().unwrap();
    assert_eq!((inspected.condition, inspected.size), (Some(None), 8 * MIB));

    let writer = |new: NewVolume| NewVolume { capabilities: vec![reader(), capability()], ..new };
    refused(
        Kind::AlreadyExists,
        make(&ours, &writer(saying(sharing("reader", &taken), "pool", "of-no-matter"))).unwrap_err(),
    );
    let explicit = |value: &str, name: &str| saying(sharing(name, &taken), "backingSnapshot", value);
    refused(Kind::InvalidArgument, make(&ours, &writer(explicit("true", "w"))).unwrap_err());
    refused(Kind::OutOfRange, make(&ours, &NewVolume { size: larger, ..explicit("true", "l") }).unwrap_err());
    assert_eq!(cluster.subvolumes().len(), 1, "UNSAFE: what is refused makes nothing");
    make(&ours, &explicit("true", "explicit")).unwrap();
    assert_eq!(cluster.subvolumes().len(), 1);

    for (number, new) in [
        explicit("false", "asked for"),
        writer(sharing("writer", &taken)),
        copy_of("of the reader", Origin::Volume(made.id.clone())),
    ]
    .into_iter()
    .enumerate()
    {
        make(&ours, &new).unwrap();
        assert_eq!(cluster.subvolumes().len(), 2 + number);
    }
    assert_eq!(cluster.snapshots().len(), 1, "no snapshot was taken for a copy of a snapshot");
}

#[test]
fn what_shares_a_snapshot_is_reachable_from_where_that_is() {
    let (cluster, source, taken) = with_snapshot();
    let ours = controller(&cluster, ONE);
    let path = format!("csi/{}@csi-snap-{}", source.object, taken.snapshot);
    let mut entry: Value = serde_json::from_slice(&cluster.entry("", &path).unwrap().unwrap()).unwrap();
    entry["domains"] = json!({"zone": "a"});
    cluster.set_entry("", &path, entry.to_string().as_bytes()).unwrap();
    let zone = |zone: &str| Map::from([("cephlet.test/zone".to_string(), zone.to_string())]);
    let asked = |name: &str, of: &str| {
        let topology = Some(TopologyRequirement { requisite: vec![zone(of)], preferred: Vec::new() });
        make(&ours, &NewVolume { topology, ..sharing(name, &taken) })
    };
    assert_eq!(asked("elsewhere", "b").unwrap_err().kind(), Kind::NoSpace);
    for made in [asked("there", "a"), make(&ours, &sharing("anywhere", &taken))] {
        assert_eq!(made.unwrap().topology[0], zone("a"));
    }
}

#[test]
fn what_ceph_fuse_is_to_mount_is_a_copy() {
    let (cluster, _, taken) = with_snapshot();
    let ours = controller(&cluster, ONE);
    let by_fuse = saying(sharing("by fuse", &taken), "mounter", "fuse");
    let mut explicit = by_fuse.clone();
    explicit.parameters.insert("backingSnapshot".into(), "true".into());
    let refused = make(&ours, &explicit).unwrap_err();
    assert_eq!(refused.kind(), Kind::InvalidArgument);
    assert!(refused.message().contains("leave one of the two out"), "{refused}");
    assert_eq!(cluster.subvolumes().len(), 1, "UNSAFE: what is refused makes nothing");
    let made = make(&ours, &by_fuse).unwrap();
    assert_eq!((made.read_only, cluster.subvolumes().len()), (None, 2));
    let given = publish(&ours, &made.id, reader()).unwrap();
    assert_eq!((given.get("mounter").map(String::as_str), given.get("snapshot")), (Some("fuse"), None));
}

#[test]
fn what_loses_its_snapshot_by_hand_leaves_the_lists() {
    let (cluster, _, taken) = with_snapshot();
    let ours = controller(&cluster, ONE);
    let made = make(&ours, &sharing("reader", &taken)).unwrap().id;
    sweep_all(&ours);
    assert_eq!(listed(&ours).len(), 2);
    cluster.remove_by_hand();
    assert_eq!(publish(&ours, &made, reader()).unwrap_err().kind(), Kind::NotFound);
    sweep_all(&ours);
    assert!(listed(&ours).is_empty());
}
