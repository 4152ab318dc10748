//! The site that has a volume is lost, and comes back.

use std::collections::BTreeSet;
use std::sync::Mutex;

use grpcio::RpcStatusCode as Code;

use super::killed::killed;
use super::{accepted, fail_over};
use crate::support::machine::Checksum;
use crate::support::requests::delete;
use crate::support::sites::{Site, sites};
use crate::support::{Failure, await_that, object_of, refused};

#[test]
#[ignore = "long: tests/run --full"]
fn what_was_lost_is_taken_over_by_force_and_comes_back_as_a_copy() {
    the_drill("snapshot");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_is_made_anew_once_though_its_daemon_is_killed() {
    made_anew_by_one_that_is_killed("snapshot");
}

#[test]
#[ignore = "long: tests/run --full"]
fn a_copy_that_is_cut_off_for_good_becomes_a_volume_of_its_own() {
    made_independent("snapshot");
}

pub fn made_independent(mode: &str) {
    let [main, backup] = sites();
    let id = replicated(&main, &backup, mode);
    let copied = main.checksum(&id);
    let _lost = main.cluster.lose();
    await_that("it is seen that it does not follow", || match backup.disable(&id, &[]) {
        Err(failure) if failure.message.contains("force=true") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    for _ in 0..2 {
        backup.disable(&id, &[("force", "true")]).expect("disable by force");
    }
    assert_eq!(backup.is_primary(&id), None);
    assert!(backup.checksum(&id) == copied, "UNSAFE: it is not what was copied");
    backup.fill(&id, 1, 33);
    backup.daemon.client().delete_volume(&delete(&id)).expect("delete");
    backup.daemon.assert_well();
}

/// The first site is lost; the other one takes the volume over, and the first one gets a copy of that when it
/// is back.
pub fn the_drill(mode: &str) {
    let [main, backup] = sites();
    let id = replicated(&main, &backup, mode);
    let copied = main.checksum(&id);
    let paused = main.cluster.lose();
    await_that("the other site gives no sign of life", || match backup.promote(&id, false, &[]) {
        Err(refused) if refused.code == Code::FAILED_PRECONDITION && refused.message.contains("force") => {
            Ok(())
        }
        other => Err(format!("{other:?}")),
    });
    for _ in 0..2 {
        backup.promote(&id, true, &[]).expect("promote by force");
    }
    assert_eq!(backup.is_primary(&id), Some(true));
    assert!(backup.checksum(&id) == copied, "UNSAFE: it is not what was copied");
    backup.fill(&id, 1, 33);
    let newest = backup.checksum(&id);

    // A client has gone on writing there, and its data is given up.
    drop(paused);
    accepted("the first site answers", || main.info(&id));
    main.fill(&id, 1, 22);
    is_given_up(&main, &backup, &id, mode);
    let anew = Anew::of(&main, &id);
    accepted("it is copied anew", || anew.ask(&main));
    anew.assert_once(&main, &newest);
    fail_over(&backup, &main, &id, 44);
    [&main, &backup].into_iter().for_each(|site| site.daemon.assert_well());
}

pub fn made_anew_by_one_that_is_killed(mode: &str) {
    let [mut main, backup] = sites();
    let id = replicated(&main, &backup, mode);
    backup.promote(&id, true, &[]).expect("promote by force");
    backup.fill(&id, 1, 33);
    let newest = backup.checksum(&id);
    is_given_up(&main, &backup, &id, mode);
    let anew = Anew::of(&main, &id);
    killed(&mut main, &id, |main| anew.ask(main));
    anew.assert_once(&main, &newest);
    main.daemon.assert_well();
}

/// A volume that is replicated in this mode, and copied with all that is in it.
#[track_caller]
pub fn replicated(main: &Site, backup: &Site, mode: &str) -> String {
    let id = main.volume("lost", 8).expect("create").volume_id;
    main.fill(&id, 1, 11);
    main.enable(&id, &[("mirroringMode", mode)]).expect("enable");
    if mode == "snapshot" {
        backup.await_promotion(&id);
        return id;
    }
    accepted("the first copy arrives", || main.destination(&id));
    // The next entry of the journal deletes the snapshot from which the copy was made.
    await_that("the journal is read", || match backup.snapshots(&id).trim() {
        "[]" => Ok(()),
        snapshots => Err(snapshots.to_string()),
    });
    id
}

/// Both sites have a primary, though the tools report both as well; the first site's is demoted.
#[track_caller]
fn is_given_up(main: &Site, backup: &Site, id: &str, mode: &str) {
    await_that("two primaries are an error", || match backup.info(id).expect("info") {
        (status, _) if status == "ERROR" => Ok(()),
        (status, info) => Err(format!("{status}: {}", info.status_message)),
    });
    refused(main.resync(id, true), Code::FAILED_PRECONDITION, &["primary", "demote"]);
    accepted("the other primary is seen here, too", || main.demote(id, false));
    refused(main.promote(id, false, &[]), Code::UNAVAILABLE, &["not yet", "demoted here"]);
    await_that("the split is seen", || match main.resync(id, false) {
        Err(failure) if failure.message.contains("split-brain") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    if mode == "snapshot" {
        backup.cluster.rbd(&["mirror", "image", "snapshot", object_of(id)]);
    }
}

/// A volume whose copy is made anew, and the images that were seen of it.
struct Anew<'a> {
    id: &'a str,
    images: Mutex<BTreeSet<String>>,
}

impl<'a> Anew<'a> {
    fn of(site: &Site, id: &'a str) -> Self {
        Self { id, images: Mutex::new(image_id(site, id).into_iter().collect()) }
    }

    /// Asks for the new copy; fails until it is ready.
    fn ask(&self, site: &Site) -> Result<(), Failure> {
        let ready = site.resync(self.id, true);
        self.images.lock().expect("no panic").extend(image_id(site, self.id));
        match ready? {
            true => Ok(()),
            false => Err(Failure { code: Code::UNAVAILABLE, message: "not ready".into() }),
        }
    }

    /// There was one new image, it stays the same, and it equals that of the other site.
    #[track_caller]
    fn assert_once(self, site: &Site, newest: &Checksum) {
        for _ in 0..3 {
            self.ask(site).expect("it stays so");
        }
        let images = self.images.into_inner().expect("no panic");
        assert_eq!(images.len(), 2, "it is copied once: {images:?}");
        assert!(site.checksum(self.id) == *newest, "UNSAFE: it is not what the other site has");
    }
}

fn image_id(site: &Site, id: &str) -> Option<String> {
    Some(site.image(id)?["id"].as_str()?.to_string())
}
