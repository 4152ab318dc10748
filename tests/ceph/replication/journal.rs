//! Volumes that are mirrored by a journal.

use grpcio::RpcStatusCode as Code;

use super::{accepted, fail_over};
use crate::support::sites::sites;
use crate::support::{await_that, refused};

/// The cluster would take it, with the part of the data that is there.
#[test]
#[ignore = "long: tests/run --full"]
fn the_first_copy_of_a_journal_is_not_promoted_before_it_is_whole() {
    let [main, backup] = sites();
    let id = main.volume("first", 400).expect("create").volume_id;
    main.fill(&id, 400, 11);
    let written = main.checksum(&id);
    main.enable(&id, &[("mirroringMode", "journal")]).expect("enable");
    await_that("it is being copied", || {
        let snapshots = backup.snapshots(&id);
        if snapshots.contains(".rbd-mirror.") { Ok(()) } else { Err(snapshots) }
    });
    let paused = main.cluster.pause("osd");
    // What ties it to the first one is not there yet.
    let (unnamed, _) = id.rsplit_once(':').expect("an image's id");
    refused(backup.promote(unnamed, true, &[]), Code::FAILED_PRECONDITION, &["never copied whole"]);
    assert_eq!(backup.is_primary(&id), Some(false), "UNSAFE: part of the data is primary");
    drop(paused);
    accepted("the copy is whole", || backup.promote(&id, true, &[]));
    assert!(backup.checksum(&id) == written, "UNSAFE: it is not what was written");
    backup.daemon.assert_well();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_journal_is_replicated_too() {
    let [main, backup] = sites();
    let id = main.volume("journal", 8).expect("create").volume_id;
    main.enable(&id, &[("mirroringMode", "journal")]).expect("enable");
    accepted("the first copy arrives", || main.destination(&id));
    fail_over(&main, &backup, &id, 11);
    backup.demote(&id, false).expect("demote");
    refused(backup.promote(&id, false, &[]), Code::FAILED_PRECONDITION, &["was demoted here"]);
    backup.promote(&id, true, &[]).expect("nobody else has promoted it");
    backup.fill(&id, 1, 33);
    main.await_content(&id, &backup.checksum(&id));
    fail_over(&backup, &main, &id, 22);
    main.disable(&id, &[]).expect("disable");
    assert_eq!(main.is_primary(&id), None);
}
