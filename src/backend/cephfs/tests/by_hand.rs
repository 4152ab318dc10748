//! Subvolumes that an operator made, whose names the operator may use again.

use super::copies::{drop_snapshot, take};
use super::fake::FakeFs;
use super::fences::unpublish;
use super::{controller, create, delete, publish, sweep_all};
use crate::backend::cephfs::context::Context;
use crate::backend::rbd::tests::{ONE, call};
use crate::backend::{Deleted, Unpublished, Volumes};
use crate::error::Kind;
use crate::ids::VolumeId;
use crate::secrets::Secrets;

const NAME: &str = "data";
const PATH: &str = "csi/data";

fn start() -> (FakeFs, Context) {
    let cluster = FakeFs::default();
    let ours = controller(&cluster, ONE);
    create(&ours, "makes the group", 8).unwrap();
    (cluster, ours)
}

/// The ID of the subvolume that is made now.
fn made(cluster: &FakeFs, ours: &Context) -> VolumeId {
    let uuid = cluster.make_by_hand(PATH, false);
    let other = create(ours, "makes the group", 8).unwrap().id;
    VolumeId { object: NAME.into(), incarnation: Some(uuid), ..other }
}

fn is_there(cluster: &FakeFs) -> bool {
    cluster.subvolumes().iter().any(|(path, _)| path == PATH)
}

#[test]
fn what_is_made_under_the_name_of_a_deleted_volume_is_not_removed() {
    let (cluster, ours) = start();
    let first = made(&cluster, &ours);
    let taken = [take(&ours, &first, "one").unwrap().id, take(&ours, &first, "two").unwrap().id];
    assert_eq!(delete(&ours, &first).unwrap(), Deleted::Gone);
    assert!(!is_there(&cluster));
    let second = made(&cluster, &ours);
    sweep_all(&ours);
    drop_snapshot(&ours, &taken[0]).unwrap();
    assert_eq!(delete(&ours, &first).unwrap(), Deleted::Absent);
    assert!(is_there(&cluster), "UNSAFE: another subvolume of the name was removed");
    drop_snapshot(&ours, &taken[1]).unwrap();
    assert_eq!(delete(&ours, &second).unwrap(), Deleted::Gone);
    assert!(!is_there(&cluster));
}

/// The daemon dies between the removal and the end of the deletion.
#[test]
fn what_is_made_while_a_deletion_is_broken_off_is_not_removed() {
    for step in 1..super::STEPS {
        let (cluster, ours) = start();
        let first = made(&cluster, &ours);
        cluster.fail_at(step, super::Fault::After);
        let _ = delete(&ours, &first);
        cluster.restart();
        if !is_there(&cluster) {
            made(&cluster, &ours);
            sweep_all(&controller(&cluster, ONE));
            assert!(is_there(&cluster), "UNSAFE: another subvolume of the name was removed, step {step}");
        }
    }
}

#[test]
fn the_publications_of_a_later_subvolume_stay() {
    let (cluster, ours) = start();
    let first = made(&cluster, &ours);
    let second = made(&cluster, &ours);
    publish(&ours, &second, "n1").unwrap();
    assert_eq!(unpublish(&ours, &first, "n1").unwrap(), Unpublished::NoVolume);
    assert_eq!(delete(&ours, &first).unwrap(), Deleted::Absent);
    assert_eq!(delete(&ours, &second).unwrap_err().kind(), Kind::Precondition, "it is published");
}

/// It cannot be retained for them.
#[test]
fn a_subvolume_of_an_old_form_with_snapshots_stays_when_its_deletion_is_refused() {
    let (cluster, ours) = start();
    let id = VolumeId { incarnation: None, ..made(&cluster, &ours) };
    cluster.make_by_hand(PATH, true);
    let taken = take(&ours, &id, "one").unwrap().id;
    assert_eq!(delete(&ours, &id).unwrap_err().kind(), Kind::HasSnapshots);
    drop_snapshot(&ours, &taken).unwrap();
    sweep_all(&ours);
    assert!(is_there(&cluster), "UNSAFE: a volume whose deletion was refused was removed");
    assert_eq!(delete(&ours, &id).unwrap(), Deleted::Gone);
}

/// The longest name has 100 characters.
#[test]
fn a_long_name_gets_no_id_that_is_too_long() {
    let (cluster, ours) = start();
    let id = VolumeId { object: "a".repeat(100), ..made(&cluster, &ours) };
    cluster.make_by_hand(&format!("csi/{}", id.object), false);
    let alone = VolumeId { incarnation: None, ..id };
    assert_eq!(ours.find(&call(), &alone, &Secrets::default()).unwrap().unwrap().id, alone);
    let refused = take(&ours, &alone, "one").unwrap_err();
    assert_eq!((refused.kind(), cluster.snapshots().len()), (Kind::InvalidArgument, 0), "{refused}");
}

#[test]
fn a_subvolume_of_an_old_form_is_removed() {
    let (cluster, ours) = start();
    let id = VolumeId { incarnation: None, ..made(&cluster, &ours) };
    cluster.make_by_hand(PATH, true);
    assert_eq!(delete(&ours, &id).unwrap(), Deleted::Gone);
    assert!(!is_there(&cluster));
}
