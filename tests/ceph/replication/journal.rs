//! Volumes that are mirrored by a journal.

use grpcio::RpcStatusCode as Code;

use super::drill::{made_anew_by_one_that_is_killed, made_independent, replicated, the_drill};
use super::killed::each_step_is_killed;
use super::{accepted, fail_over, written_elsewhere};
use crate::support::requests::delete;
use crate::support::sites::sites;
use crate::support::{await_that, refused};

/// The cluster itself would allow the promotion, with only part of the data.
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
    // The copy has not got the record yet that ties it to the first image.
    let (unnamed, _) = id.rsplit_once(':').expect("an image's id");
    refused(backup.promote(unnamed, true, &[]), Code::FAILED_PRECONDITION, &["never copied whole"]);
    assert_eq!(backup.is_primary(&id), Some(false), "UNSAFE: part of the data is primary");
    drop(paused);
    accepted("the copy is whole", || backup.promote(&id, true, &[]));
    assert!(backup.checksum(&id) == written, "UNSAFE: it is not what was written");
    // The snapshot that the copy was made from may be there still.
    backup.daemon.client().delete_volume(&delete(&id)).expect("delete");
    // The first site is primary still, and may copy it anew at once.
    await_that("it is not retained for long", || match backup.cluster.rbd(&["ls", "rbd"]) {
        images if images.contains("csi-held") => Err(images),
        _ => Ok(()),
    });
    backup.daemon.assert_well();
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_volume_is_deleted_in_the_middle_of_its_first_copy_by_a_journal() {
    let [main, backup] = sites();
    let id = main.volume("first", 400).expect("create").volume_id;
    main.fill(&id, 400, 11);
    main.enable(&id, &[("mirroringMode", "journal")]).expect("enable");
    await_that("it is being copied", || match main.snapshots(&id) {
        snapshots if snapshots.contains(".rbd-mirror.") => Ok(()),
        snapshots => Err(snapshots),
    });
    main.daemon.client().delete_volume(&delete(&id)).expect("delete");
    await_that("it is not retained for long", || match main.cluster.rbd(&["ls", "rbd"]) {
        images if images.is_empty() => Ok(()),
        images => Err(images),
    });
    await_that("the copy goes", || backup.image(&id).map_or(Ok(()), |image| Err(image.to_string())));
    [&main, &backup].into_iter().for_each(|site| site.daemon.assert_well());
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_journal_is_replicated_too() {
    let [main, backup] = sites();
    let id = main.volume("journal", 8).expect("create").volume_id;
    main.enable(&id, &[("mirroringMode", "journal")]).expect("enable");
    accepted("the first copy arrives", || main.destination(&id));
    fail_over(&main, &backup, &id, 11);
    accepted("the other site follows", || backup.demote(&id, false));
    refused(backup.promote(&id, false, &[]), Code::UNAVAILABLE, &["was demoted here"]);
    backup.promote(&id, true, &[]).expect("nobody else has promoted it");
    backup.fill(&id, 1, 33);
    main.await_content(&id, &backup.checksum(&id));
    fail_over(&backup, &main, &id, 22);
    main.disable(&id, &[]).expect("disable");
    assert_eq!(main.is_primary(&id), None);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_journal_that_was_lost_is_taken_over_by_force_and_comes_back_as_a_copy() {
    the_drill("journal");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_by_a_journal_that_is_cut_off_for_good_becomes_a_volume_of_its_own() {
    made_independent("journal");
}

/// The rbd-mirror reads a write that a client had begun when the site was lost, and keeps the journal open.
#[test]
#[ignore = "long: tests/run --full"]
fn a_journal_that_is_said_to_be_promoted_can_be_written_to() {
    let [main, backup] = sites();
    let id = replicated(&main, &backup, "journal");
    let copied = main.checksum(&id);
    let behind = backup.cluster.pause("rbd-mirror");
    main.fill(&id, 1, 22);
    let paused = main.cluster.lose();
    drop(behind);
    if let Err(refusal) = backup.promote(&id, true, &[]) {
        refused::<()>(Err(refusal), Code::UNAVAILABLE, &["is promoted", "restart that rbd-mirror"]);
        assert!(backup.checksum(&id) == copied, "UNSAFE: it is not what was copied");
        drop(paused);
        accepted("the rbd-mirror lets go", || backup.promote(&id, true, &[]));
    }
    backup.fill(&id, 1, 33);
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_journal_that_was_demoted_is_not_promoted_again_before_what_was_written_elsewhere_arrives() {
    written_elsewhere("journal");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_daemon_that_is_killed_is_asked_again_for_a_journal() {
    each_step_is_killed(&[("mirroringMode", "journal")]);
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_copy_of_a_journal_is_made_anew_once_though_its_daemon_is_killed() {
    made_anew_by_one_that_is_killed("journal");
}
