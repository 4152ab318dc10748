//! Deleting volumes that their snapshots may not outlive: a snapshot keeps the volume as it is, no matter
//! when and by which controller it is taken.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::backend::rbd::tool::fake::FakeCluster;
use crate::backend::rbd::tool::*;
use crate::backend::{Deleted, Origin};
use crate::error::Kind;
use crate::ids::VolumeId;

use super::delete::{delete, delete_snapshot, release, with_volume, words};
use super::*;

#[test]
fn takes_as_many_processes_as_any_deletion() {
    let (cluster, rbd, id) = with_volume(1);
    assert_eq!(release(&rbd, &id).unwrap(), Deleted::Gone);
    assert_eq!(words(&cluster), ["lock", "info", "remove"]);
    assert_eq!(release(&rbd, &id).unwrap(), Deleted::Absent);
    assert_eq!(cluster.dump(), "");
}

#[test]
fn a_volume_with_snapshots_stays_as_it_was() {
    for size in [1, 5] {
        let (cluster, rbd, id) = with_volume(size);
        let (one, two) = (snapshot(&rbd, &id, "one").unwrap().id, snapshot(&rbd, &id, "two").unwrap().id);
        let before = cluster.dump();
        for rbd in [&rbd, &controller(&cluster, TWO)] {
            let refused = release(rbd, &id).unwrap_err();
            let says = [&one, &two].iter().all(|it| refused.message().contains(&it.snapshot));
            assert!(refused.kind() == Kind::HasSnapshots && says, "{refused}");
            assert_eq!(cluster.dump(), before);
        }
        delete_snapshot(&rbd, &one).unwrap();
        assert_eq!(release(&rbd, &id).unwrap_err().kind(), Kind::HasSnapshots);
        delete_snapshot(&rbd, &two).unwrap();
        assert_eq!(release(&rbd, &id).unwrap(), Deleted::Gone);
        do_jobs(&rbd);
        assert_eq!(cluster.dump(), "");
    }
}

#[test]
fn a_volume_that_was_deleted_with_its_snapshots_left_is_gone() {
    let (cluster, rbd, id) = with_volume(1);
    snapshot(&rbd, &id, "s").unwrap();
    delete(&rbd, &id).unwrap();
    let held = cluster.dump();
    assert_eq!(release(&controller(&cluster, TWO), &id).unwrap(), Deleted::Absent);
    assert_eq!(cluster.dump(), held);
}

#[test]
fn copies_keep_nothing() {
    let (cluster, rbd, source) = with_volume(1);
    let copy = create(&rbd, &wanted("copy", GIB, Some(Origin::Volume(source.clone())))).unwrap().id;
    let left = format!("csi-copy-{TWO}-abcdefghij234-zyxw7654");
    cluster.here().create_snapshot(&source.object, &left).unwrap();
    assert_eq!(release(&rbd, &source).unwrap(), Deleted::Gone);
    assert_eq!(release(&rbd, &copy).unwrap(), Deleted::Gone);
    do_jobs_due_within(&rbd, timing().parent_check);
    assert_eq!(cluster.dump(), "");
}

/// Has another controller take a snapshot after each step of a deletion, one step in each run. The volume of
/// an acknowledged snapshot exists. Only a snapshot that a large volume gets after the look for snapshots
/// outlives the volume.
#[test]
fn a_snapshot_that_is_taken_meanwhile_keeps_the_volume() {
    let name = |cluster: &FakeCluster, id: &VolumeId| {
        cluster.here().info(ImageRef::Name(&id.object)).unwrap().map(|info| info.id)
    };
    for size in [1, 5] {
        let mut kept = 0;
        for step in 1.. {
            let (cluster, rbd, id) = with_volume(size);
            let taken = Arc::new(Mutex::new(false));
            let (told, source) = (Arc::clone(&taken), id.clone());
            cluster.on_step(step, move |cluster| {
                *told.lock() = snapshot(&controller(cluster, TWO), &source, "s").is_ok();
            });
            let outcome = release(&rbd, &id);
            if step > cluster.steps().len() as u64 {
                break;
            }
            if !*taken.lock() {
                assert_eq!(outcome.unwrap(), Deleted::Gone, "{size} GiB, step {step}");
                continue;
            }
            kept += 1;
            if size == 5 && step >= 2 {
                assert_eq!(outcome.unwrap(), Deleted::Gone, "step {step}");
                do_jobs(&rbd);
                let dump = cluster.dump();
                assert!(dump.contains("snapshot rbd/csi-held-"), "UNSAFE: step {step}: {dump}");
                continue;
            }
            assert_eq!(outcome.unwrap_err().kind(), Kind::HasSnapshots, "{size} GiB, step {step}");
            assert_eq!(name(&cluster, &id), id.incarnation, "{size} GiB, step {step}");
            assert!(!cluster.dump().contains("lock header"), "{}", cluster.dump());
        }
        assert!(kept > 1, "{size} GiB: no snapshot was taken in time");
    }
}
