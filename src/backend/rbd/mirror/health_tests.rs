//! Tests with recorded output of Ceph 16.2.

#![allow(clippy::unwrap_used)]

use std::time::UNIX_EPOCH;

use super::*;
use crate::backend::ReplicationHealth::{Degraded, Error, Healthy};
use crate::backend::rbd::tool::cli::mirror_output::recorded;

/// About when the records were made.
const THEN: u64 = 1_795_559_110;
/// The time of the copy in the records of a finished copy.
const COPIED: u64 = 1_795_559_073;

fn asked(mode: MirroringMode, period: Option<u64>, now: u64) -> Asked {
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    Asked { mode, period: period.map(Duration::from_secs), now: at(now) }
}

fn by_snapshots() -> Asked {
    asked(MirroringMode::Snapshot, None, THEN)
}

#[track_caller]
fn says(info: &ReplicationInfo, health: ReplicationHealth, parts: &[&str]) {
    assert_eq!(info.health, health, "{info:?}");
    assert!(parts.iter().all(|part| info.message.contains(part)), "{parts:?}: {info:?}");
}

#[test]
fn a_primary_is_as_well_as_its_peer_says() {
    for (record, health, parts) in [
        ("healthy-primary", Healthy, &["site-b", "2026-11-24T22:24:33Z", "37 s ago"][..]),
        ("first-copy-primary", Degraded, &["site-b", "nothing whole"]),
        ("failed-over-primary", Degraded, &["site-a", "nothing whole"]),
        ("no-peer-primary", Degraded, &["no other site"]),
        ("both-demoted", Degraded, &["site-b", "remote image is not primary"]),
        ("split-brain-primary", Error, &["site-a", "split-brain", "resync"]),
        ("two-primaries", Error, &["primary at site-b too"]),
    ] {
        let info = of_primary(&recorded::status(record), by_snapshots());
        says(&info, health, parts);
        assert_eq!(info.last_sync.is_some(), record == "healthy-primary", "{record}");
    }
}

#[test]
fn times_and_bytes_are_told_where_they_are_known() {
    let info = of_primary(&recorded::status("healthy-primary"), by_snapshots());
    let copied = UNIX_EPOCH + Duration::from_secs(COPIED);
    assert_eq!((info.last_sync, info.duration, info.bytes), (Some(copied), Some(Duration::ZERO), Some(0)));
    let info = of_primary(&recorded::status("failed-over-primary"), by_snapshots());
    assert_eq!((info.last_sync, info.duration, info.bytes), (None, None, None), "those of an earlier copy");
}

/// A copy may be two intervals and a minute old.
#[test]
fn a_copy_is_late_by_its_schedule() {
    let status = recorded::status("healthy-primary");
    for (age, health) in [(180, Healthy), (181, Degraded)] {
        let info = of_primary(&status, asked(MirroringMode::Snapshot, Some(60), COPIED + age));
        says(&info, health, &["2026-11-24T22:24:33Z"]);
        assert!(info.last_sync.is_some());
    }
    says(&of_primary(&status, asked(MirroringMode::Snapshot, None, COPIED + 1_000_000)), Healthy, &[]);
}

#[test]
fn a_journal_is_as_well_as_it_is_read() {
    let journal = asked(MirroringMode::Journal, None, THEN);
    let info = of_primary(&recorded::status("journal-primary"), journal);
    says(&info, Healthy, &["site-b"]);
    assert!(info.last_sync.is_some() && info.bytes.is_none() && info.duration.is_none());
    let info = of_primary(&recorded::status("journal-behind-primary"), journal);
    says(&info, Degraded, &["3 changes"]);
    assert_eq!(info.last_sync, None);
    says(
        &of_primary(&recorded::status("journal-dead-primary"), journal),
        Degraded,
        &["site-b", "no sign of life"],
    );
}

#[test]
fn a_copy_is_as_well_as_its_own_site_says_and_as_its_primary_is_there() {
    for (record, health, parts) in [
        ("healthy-secondary", Healthy, &["this site", "37 s ago"][..]),
        ("first-copy-secondary", Degraded, &["not copied to this site yet"]),
        ("failed-over-secondary", Degraded, &["nothing whole"]),
        ("both-demoted", Degraded, &["not primary at site-b either"]),
        ("split-brain-secondary", Error, &["this site", "split-brain", "resync"]),
        ("primary-dead-secondary", Degraded, &["site-b gives no sign of life; this site has it as of "]),
    ] {
        says(&of_secondary(&recorded::status(record), by_snapshots()), health, parts);
    }
    let dead = recorded::status("journal-dead-secondary");
    let info = of_secondary(&dead, asked(MirroringMode::Journal, None, THEN));
    says(&info, Degraded, &["rbd-mirror of this site gives no sign of life"]);
}
