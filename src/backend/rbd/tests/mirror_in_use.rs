//! Volumes that a node uses, or is just being given, when they are to be demoted, or their features are to be
//! changed.

use std::sync::mpsc::channel;

use super::fence::{OURS, daemon, is_shut_out, maps};
use super::mirror::{copy_with_object_map, mirrored_scene, terms};
use super::publish::{Scene, given, publish, refused, scene, unpublish};
use super::*;
use crate::backend::MirroringMode;
use crate::backend::ReplicationTerms;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::error::Kind::*;

const FAULTS: [Fault; 3] = [Fault::Before, Fault::After, Fault::HalfMade];
/// The most steps that a demotion or a publication takes.
const STEPS: u64 = 16;
const MODES: [Mode; 3] = [Mode::SingleNodeWriter, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter];

fn primary() -> Scene {
    let it = scene();
    it.set(true);
    it
}

/// Has this controller demote the volume.
fn demote(rbd: &Rbd, id: &VolumeId, force: bool) -> Result<()> {
    rbd.replication().unwrap().demote(&call(), id, force, &Secrets::default())
}

#[track_caller]
fn assert_safe(it: &Scene, case: &str) {
    let given = given(&it.cluster);
    assert!(given.is_empty() || it.is_primary(), "UNSAFE: {case}: {given:?} writes to what is demoted");
}

#[test]
fn a_volume_in_use_is_not_demoted_unless_by_force() {
    let it = primary();
    it.cluster.watch_by_mirror(&it.cluster.at(), &it.id.object, "10.0.0.5:0/1");
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    refused(it.demote(false), Precondition, &["\"n1\"", "unpublish"]);
    unpublish(&it.rbd, &it.id, None).unwrap();
    it.watch("10.0.0.7:0/1");
    refused(it.demote(false), Precondition, &["10.0.0.7:0/1"]);
    it.cluster.unwatch("10.0.0.7:0/1");
    it.cluster.forget_steps();
    it.demote(false).unwrap();
    let under_lock = ["holders", "watchers", "holders", "demote", "holders"];
    assert_eq!(it.methods(), [&["info", "mirror_snapshots", "lock"], &under_lock[..], &["unlock"]].concat());
    it.demote(false).unwrap();
    assert_eq!(it.methods(), ["info", "mirror_snapshots"], "a repetition");
    // librbd refuses writes to a demoted image.
    it.set(true);
    it.watch("10.0.0.7:0/1");
    it.demote(true).unwrap();
    assert_eq!(it.role(), Some((MirrorState::Enabled, false)));
}

/// Parts of the message about a demotion that the peer would not learn of.
const NOT_FOLLOWED: [&str; 3] = [crate::csi::NOT_YET, "rbd-mirror there", "force"];

/// The peer would never copy the demotion, and neither site could promote the image.
#[test]
fn a_volume_is_not_demoted_before_its_peer_follows_unless_by_force() {
    let it = scene();
    let (at, name) = (it.cluster.at(), it.id.object.clone());
    let linked = |kinds: &[(MirrorSnapshotKind, bool)]| {
        it.set(true);
        let snapshot = |(id, &(kind, linked)): (u64, &(MirrorSnapshotKind, bool))| MirrorSnapshot {
            id,
            kind,
            linked,
            complete: true,
            objects: 0,
            created: std::time::UNIX_EPOCH,
        };
        it.cluster.set_mirror_snapshots(&at, &name, (1..).zip(kinds).map(snapshot).collect());
    };
    use MirrorSnapshotKind::{CopyOfDemoted, Demoted, Primary};
    for handover in [Demoted, CopyOfDemoted] {
        linked(&[(handover, true), (Primary, true)]);
        refused(it.demote(false), Unavailable, &NOT_FOLLOWED);
        assert!(it.is_primary());
        linked(&[(handover, false), (Primary, true)]);
        it.demote(false).unwrap();
    }
    // Older snapshots are not kept for ever, and the first one has none before it: the peer's status decides.
    let status = |record| it.cluster.set_mirror_status(&at, &name, recorded::status(record));
    for (record, follows) in [
        ("no-peer-primary", false),
        ("first-copy-primary", true),
        ("healthy-primary", true),
        ("two-primaries", true),
        ("split-brain-primary", true),
    ] {
        linked(&[(Primary, true)]);
        status(record);
        match follows {
            true => it.demote(false).unwrap(),
            false => refused(it.demote(false), Unavailable, &NOT_FOLLOWED),
        }
    }
    // Without peers nothing is linked.
    linked(&[(Primary, false)]);
    status("no-peer-primary");
    it.demote(false).unwrap();
    linked(&[(CopyOfDemoted, true), (Primary, true)]);
    it.demote(true).unwrap();
}

/// If the peer has not read the journal since, the two images would diverge.
#[test]
fn a_volume_with_a_journal_is_not_demoted_before_its_peer_follows() {
    let it = scene();
    let (at, name) = (it.cluster.at(), it.id.object.clone());
    let mut first_copy = recorded::status("journal-primary");
    first_copy.peers[0].replay = Replay::Starting;
    let mut gone = recorded::status("two-primaries");
    gone.peers[0].is_up = false;
    let recorded = |name| recorded::status(name);
    for (status, follows) in [
        (recorded("both-demoted"), false),
        (first_copy, false),
        (gone, false),
        (recorded("journal-primary"), true),
        (recorded("two-primaries"), true),
    ] {
        it.cluster.set_mirrored_by(&at, &name, MirroringMode::Journal, MirrorState::Enabled, true);
        it.cluster.set_mirror_status(&at, &name, status);
        match follows {
            true => it.demote(false).unwrap(),
            false => refused(it.demote(false), Unavailable, &NOT_FOLLOWED),
        }
    }
}

#[test]
fn by_force_a_volume_is_taken_from_its_node() {
    let it = primary();
    let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.cluster.watch_by_kernel(&it.cluster.at(), &it.id.object, OURS);
    maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
    refused(it.demote(false), Precondition, &["\"n1\""]);
    assert!(!is_shut_out(&it.cluster, OURS) && it.is_primary());
    refused(it.demote(true), Unavailable, &["\"n1\"", "60 s"]);
    it.cluster.advance(Duration::from_secs(61));
    it.demote(true).unwrap();
    assert!(is_shut_out(&it.cluster, OURS), "UNSAFE: it goes on writing");
    assert_safe(&it, "by force");
    assert!(!it.is_primary());
}

#[test]
fn a_client_that_nobody_knows_and_librbd_does_not_stop_is_in_the_way_of_force_too() {
    let it = primary();
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    it.cluster.watch_by_kernel(&it.cluster.at(), &it.id.object, "10.0.0.7:0/1");
    it.cluster.advance(Duration::from_secs(61));
    refused(it.demote(true), Precondition, &["10.0.0.7:0/1", "osd blocklist add"]);
    assert!(it.is_primary(), "UNSAFE: it goes on writing");
    assert!(!is_shut_out(&it.cluster, "10.0.0.7:0/1"), "it may be an operator's, and have other images too");
    it.cluster.unwatch("10.0.0.7:0/1");
    it.demote(true).unwrap();
}

#[test]
fn nobody_is_given_what_is_demoted_wherever_they_meet() {
    for (mode, force) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
        for k in 1..=STEPS {
            let it = primary();
            let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
            it.cluster.on_step(k, move |_| drop(publish(&other, &id, "n1", mode, false)));
            drop(it.demote(force));
            assert_safe(&it, &format!("{mode:?}, force {force}, published at step {k}"));

            let it = primary();
            let (id, other) = (it.id.clone(), controller(&it.cluster, TWO));
            it.cluster.on_step(k, move |_| drop(demote(&other, &id, force)));
            drop(it.publish("n1", mode, false));
            assert_safe(&it, &format!("{mode:?}, force {force}, demoted at step {k}"));
        }
    }
}

/// The kernel's driver looks at the features of an image when it maps it.
#[test]
fn nobody_is_given_what_changes_its_features_wherever_they_meet() {
    let journal = ReplicationTerms { mode: MirroringMode::Journal, ..terms() };
    let flattened = ReplicationTerms { flatten: true, ..terms() };
    let cases = [
        (mirrored_scene as fn() -> Scene, journal, ["enable_mirroring"; 2]),
        (copy_with_object_map, flattened, ["disable_features", "enable_features"]),
    ];
    for (made, terms, changes) in cases {
        for k in 1..=STEPS {
            let it = made();
            let (id, other, (told, given)) = (it.id.clone(), controller(&it.cluster, TWO), channel());
            it.cluster.forget_steps();
            it.cluster.on_step(k, move |_| {
                told.send(publish(&other, &id, "n1", Mode::SingleNodeWriter, false).is_ok()).unwrap();
            });
            let enabled = it.enable(&terms);
            let steps = it.methods();
            let is_changed =
                steps.iter().skip(usize::try_from(k).unwrap()).any(|step| changes.contains(&step.as_str()));
            let case = format!("{:?}, published at step {k}: {steps:?}", terms.mode);
            match given.try_recv() {
                Ok(true) => assert!(!is_changed, "UNSAFE: {case}"),
                _ => enabled.unwrap_or_else(|error| panic!("{case}: {error}")),
            }
        }
    }
}

#[test]
fn wherever_a_demotion_dies_it_is_made_good_and_nobody_writes_meanwhile() {
    for (fault, k) in FAULTS.into_iter().flat_map(|fault| (1..=STEPS).map(move |k| (fault, k))) {
        let case = format!("{fault:?} at step {k}");
        let it = primary();
        let told = it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
        it.cluster.watch_by_kernel(&it.cluster.at(), &it.id.object, OURS);
        maps(&daemon(&it.cluster, "n1"), &it.id, &told, OURS);
        it.cluster.advance(Duration::from_secs(61));
        it.cluster.fail_at(k, fault);
        drop(it.demote(true));
        assert!(it.is_primary() || is_shut_out(&it.cluster, OURS), "UNSAFE: {case}: it goes on writing");
        it.cluster.advance(Duration::from_secs(3600));
        demote(&controller(&it.cluster, TWO), &it.id, true).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(!it.is_primary() && is_shut_out(&it.cluster, OURS), "UNSAFE: {case}");
        it.set(true);
        it.publish("n2", Mode::SingleNodeWriter, false).unwrap_or_else(|error| panic!("{case}: {error}"));
    }
}
