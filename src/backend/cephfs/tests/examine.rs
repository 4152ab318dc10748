//! Deletions that do not end, and entries that cannot be read.

use super::copies::{copy_of, drop_snapshot, make, take};
use super::shares::{sharing, with_snapshot};
use super::*;
use crate::backend::ceph::objects::IndexTool;
use crate::backend::cephfs::examine::examine;
use crate::backend::{Finding, Origin};

/// A controller that has swept since.
fn later(cluster: &FakeFs) -> Arc<Context> {
    let mut ours = controller(cluster, TWO);
    (ours.timing.sweep_interval, ours.timing.lost_copy) = (Duration::ZERO, Duration::ZERO);
    Arc::new(ours)
}

fn found(ours: &Arc<Context>, word: &str) -> Vec<Finding> {
    examine(ours).into_iter().filter(|it| it.name.starts_with(word)).collect()
}

#[test]
fn a_deletion_that_was_broken_off_is_found_and_its_remedy_ends_it() {
    let mut are_found = 0;
    for step in 1..STEPS {
        let cluster = FakeFs::default();
        let id = create(&controller(&cluster, ONE), "a", 8).unwrap().id;
        cluster.fail_at(step, Fault::Before);
        let _ = delete(&controller(&cluster, ONE), &id);
        cluster.restart();
        assert!(
            found(&Arc::new(controller(&cluster, TWO)), "DeletedStays").is_empty(),
            "the sweep may end it"
        );
        let ours = later(&cluster);
        for finding in found(&ours, "DeletedStays") {
            assert_eq!(finding.name, format!("DeletedStays:main/cephfs/csi/{}", id.object));
            finding.remedy.unwrap()(&call()).unwrap();
            assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()), "at step {step}");
            assert!(found(&ours, "DeletedStays").is_empty());
            are_found += 1;
        }
    }
    assert!(are_found > 2, "{are_found}");
}

#[test]
fn what_is_deleted_and_still_needed_is_not_found() {
    let (cluster, source, taken) = with_snapshot();
    let ours = later(&cluster);
    let shared = make(&ours, &sharing("b", &taken)).unwrap().id;
    delete(&ours, &source).unwrap();
    drop_snapshot(&ours, &taken).unwrap();
    assert!(found(&ours, "DeletedStays").is_empty());
    delete(&ours, &shared).unwrap();
    assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()));
}

#[test]
fn snapshots_that_the_manager_keeps_for_ended_copies_are_found() {
    let cluster = FakeFs::default();
    let ours = later(&cluster);
    let source = create(&ours, "source", 8).unwrap().id;
    let taken = take(&ours, &source, "s").unwrap().id;
    cluster.hold_snapshots(true);
    let copy = make(&ours, &copy_of("copy", Origin::Volume(source.clone()))).unwrap().id;
    let names = || found(&ours, "CopyLeft").into_iter().map(|it| it.name).collect::<Vec<_>>();
    let of_copy = format!("CopyLeft:main/cephfs/csi/{}", copy.object);
    assert!(names() == [&*of_copy], "the other snapshot is not deleted: {:?}", names());
    drop_snapshot(&ours, &taken).unwrap();
    delete(&ours, &copy).unwrap();
    delete(&ours, &source).unwrap();
    sweep_all(&ours);
    let of_snapshot = format!("CopyLeft:main/cephfs/csi/{}@csi-snap-", source.object);
    let told = found(&ours, "CopyLeft");
    assert!(told[0].name == of_copy && told[1].name.starts_with(&of_snapshot), "{:?}", names());
    for finding in told {
        let part = format!("in /volumes/csi/{}/.meta remove", source.object);
        assert!(finding.mend.contains(&part) && finding.remedy.is_none(), "{}", finding.mend);
    }
    cluster.hold_snapshots(false);
    sweep_all(&ours);
    assert_eq!((cluster.subvolumes(), cluster.rest()), (Vec::new(), Vec::new()));
    assert_eq!(cluster.snapshots(), [""; 0]);
}

#[test]
fn entries_that_cannot_be_read_are_found() {
    let cluster = FakeFs::default();
    cluster.set_entry("", "csi/later", br#"{"version":2}"#).unwrap();
    cluster.set_entry("", "csi/damaged", b"{}").unwrap();
    let found = found(&later(&cluster), "EntryUnreadable");
    let told: Vec<(&str, &str)> = found.iter().map(|it| (it.name.as_str(), it.mend.as_str())).collect();
    let [(damaged, remove), (later, install)] = told[..] else { panic!("{told:?}") };
    assert_eq!(damaged, "EntryUnreadable:main/cephfs/csi/damaged");
    let command = "rados --pool meta --namespace cephlet rmomapkey cephlet.volumes csi/damaged";
    assert!(remove.ends_with(command), "{remove}");
    assert_eq!(later, "EntryUnreadable:main/cephfs/csi/later");
    assert!(install.contains("later one"), "{install}");
}
