//! Who is primary: promotion, demotion, and the names that a copy goes by.

use super::mirror::{changes, every, mirrored_scene, promotion, terms};
use super::publish::{Scene, refused, scene};
use super::*;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::backend::replication::*;
use crate::error::Kind::{self, *};

#[test]
fn a_volume_is_promoted_when_the_demotion_of_its_peer_has_arrived() {
    let it = scene();
    refused(it.promote(&promotion(false)), Precondition, &["not replicated"]);
    it.set_copy("snapshots-copy", "failed-over-secondary");
    // Some clients would use force after a failed precondition, and lose what is on its way.
    refused(
        it.promote(&promotion(false)),
        Unavailable,
        &[crate::csi::NOT_YET, "2026-11-24T22:33:23Z", "force"],
    );
    it.set_copy("snapshots-incomplete", "healthy-secondary");
    refused(it.promote(&promotion(false)), Unavailable, &[crate::csi::NOT_YET, "2026-11-24T22:41:39Z"]);
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    it.cluster.forget_steps();
    it.promote(&Promotion { schedule: every(5), ..promotion(false) }).unwrap();
    let questions = ["info", "mirror_snapshots", "mirror_status"];
    let steps = ["promote", "all_metadata", "schedules", "add_schedule"];
    assert_eq!(it.methods(), [&questions[..], &steps].concat());
    assert!(it.is_primary());
    it.promote(&promotion(false)).unwrap();
    assert_eq!(it.methods(), ["info"], "a repetition");
}

#[test]
fn the_schedule_of_the_other_side_is_set_when_a_volume_is_promoted() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { schedule: every(60), ..terms() }).unwrap();
    let at = it.cluster.at();
    it.cluster.on(&at).remove_schedule(&it.id.object, None).unwrap();
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    let after = Scene { rbd: controller(&it.cluster, TWO), ..it };
    after.promote(&promotion(false)).unwrap();
    assert_eq!(after.cluster.schedules_of(&at, &after.id.object), every(60).into_iter().collect::<Vec<_>>());
}

/// The cluster would accept the promotion, and what was written elsewhere meanwhile would be lost.
#[test]
fn what_was_demoted_here_is_promoted_again_only_by_force_until_something_arrives() {
    let it = scene();
    for (snapshots, status, kind) in [
        ("snapshots-split-brain", "split-brain-secondary", Unavailable),
        ("snapshots-demoted", "primary-dead-secondary", Precondition),
        ("snapshots-demoted", "both-demoted", Unavailable),
    ] {
        it.set_copy(snapshots, status);
        let parts = [crate::csi::NOT_YET, "demote it there", "force"];
        refused(it.promote(&promotion(false)), kind, &parts);
        assert_eq!(changes(&it), [""; 0], "UNSAFE: it was promoted");
    }
    it.promote(&promotion(true)).unwrap();
    assert_eq!(changes(&it), ["promote"], "there is nothing to roll back");
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    it.promote(&promotion(false)).unwrap();
    assert!(it.is_primary());
}

/// The peer may have been promoted again by force before its site was cut off.
#[test]
fn what_says_that_it_is_primary_again_is_passed_over_only_by_force() {
    let it = scene();
    for (is_up, kind) in [(true, Unavailable), (false, Precondition)] {
        it.set_copy("snapshots-demotion-arrived", "healthy-secondary");
        let mut status = recorded::status("healthy-secondary");
        status.peers[0].is_up = is_up;
        it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, status);
        refused(it.promote(&promotion(false)), kind, &[crate::csi::NOT_YET, "primary there", "force"]);
        assert_eq!(changes(&it), [""; 0], "UNSAFE: two are primary");
        it.promote(&promotion(true)).unwrap();
        assert_eq!(changes(&it), ["promote"]);
    }
}

/// A journal has no snapshots that show the demotion.
#[test]
fn the_journal_of_what_was_demoted_here_says_so_until_the_peer_s_demotion_arrives() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { mode: MirroringMode::Journal, ..terms() }).unwrap();
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("journal-primary"));
    it.demote(false).unwrap();
    changes(&it);
    refused(it.promote(&promotion(false)), Unavailable, &[crate::csi::NOT_YET, "was demoted here"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: it was promoted");
    let (at, name) = (it.cluster.at(), &it.id.object);
    it.cluster.on(&at).set_metadata(name, "cephlet.demoted", "1f2e").unwrap();
    it.cluster.set_mirror_snapshots(&at, name, recorded::snapshots("snapshots-demotion-arrived"));
    it.cluster.forget_steps();
    it.promote(&promotion(false)).unwrap();
    assert_eq!(changes(&it), ["promote"]);
}

/// The copy has only a part of the primary's data, but the cluster reports that all is well.
#[test]
fn the_first_copy_of_a_journal_is_not_promoted_before_it_is_whole() {
    let it = scene();
    let (at, name) = (it.cluster.at(), &it.id.object);
    it.cluster.set_mirrored_by(&at, name, MirroringMode::Journal, MirrorState::Enabled, false);
    it.cluster.on(&at).create_snapshot(name, ".rbd-mirror.0f92.6af5").unwrap();
    it.methods();
    refused(it.promote(&promotion(true)), Precondition, &["never copied whole"]);
    it.cluster.set_mirror_status(&at, name, recorded::status("first-copy-secondary"));
    refused(it.promote(&promotion(true)), Precondition, &["never copied whole"]);
    assert!(!it.methods().contains(&"promote_by_force".to_string()), "UNSAFE: it was promoted");
    // The site was lost before it removed the snapshot.
    it.cluster.set_mirror_status(&at, name, recorded::status("journal-dead-secondary"));
    it.promote(&promotion(true)).unwrap();
    it.cluster.set_mirrored_by(&at, name, MirroringMode::Journal, MirrorState::Enabled, false);
    // Nothing is copied yet.
    it.cluster.set_mirror_status(&at, name, recorded::status("first-copy-secondary"));
    it.cluster.on(&at).remove_snapshot(ImageRef::Name(name), ".rbd-mirror.0f92.6af5").unwrap();
    // The volume is a copy of one that was demoted at some time.
    it.cluster.on(&at).set_metadata(name, "cephlet.demoted", "none").unwrap();
    refused(it.promote(&promotion(true)), Precondition, &["empty", "acceptLoss=true"]);
    it.promote(&Promotion { accept_loss: true, ..promotion(true) }).unwrap();
    assert!(it.is_primary());
}

/// The cluster reports that the image is promoted, but refuses all writes to it.
#[test]
fn a_journal_is_promoted_when_the_rbd_mirror_has_let_go_of_it() {
    let it = scene();
    let (at, name, id) = (it.cluster.at(), &it.id.object, it.image());
    it.cluster.set_mirrored_by(&at, name, MirroringMode::Journal, MirrorState::Enabled, false);
    it.cluster.set_mirror_status(&at, name, recorded::status("journal-dead-secondary"));
    let owner = LockTarget::Owner(&id);
    let hold =
        LockRequest { cookie: "auto 1".into(), description: String::new(), shared: None, seconds: None };
    it.cluster.on(&at).lock(owner, &hold).unwrap();
    let holder = it.cluster.on(&at).holders(owner).unwrap().remove(0);
    it.cluster.call_mirror(&holder.client);
    for _ in 0..2 {
        refused(it.promote(&promotion(true)), Unavailable, &["is promoted", "rbd-mirror", "restart"]);
    }
    // The other site's daemon owns the lock of a primary here while it makes its first copy.
    it.cluster.set_mirror_status(&at, name, recorded::status("journal-primary"));
    it.promote(&promotion(true)).unwrap();
    it.cluster.advance(Duration::from_secs(120));
    it.cluster.on(&at).unlock(owner, &holder).unwrap();
    it.promote(&promotion(true)).unwrap();
    it.methods();
    it.promote(&promotion(true)).unwrap();
    assert_eq!(it.methods(), ["info"], "a repetition");
}

#[test]
fn a_whole_copy_is_promoted_by_force() {
    let it = scene();
    for (snapshots, status) in
        [("snapshots-copy", "primary-dead-secondary"), ("snapshots-orphan", "primary-dead-secondary")]
    {
        it.set_copy(snapshots, status);
        it.promote(&promotion(true)).unwrap();
        assert_eq!(changes(&it), ["promote_by_force"], "{snapshots}");
        assert!(it.is_primary());
    }
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    it.promote(&promotion(true)).unwrap();
    assert_eq!(changes(&it), ["promote"], "nothing is to be forced");
}

#[test]
fn in_the_middle_of_a_copy_force_loses_more_and_takes_a_word_for_it() {
    let it = scene();
    let accept = Promotion { accept_loss: true, ..promotion(true) };
    it.set_copy("snapshots-incomplete", "healthy-secondary");
    refused(it.promote(&accept), Unavailable, &[crate::csi::NOT_YET, "still being copied"]);
    it.set_copy("snapshots-incomplete", "primary-dead-secondary");
    refused(
        it.promote(&promotion(true)),
        Precondition,
        &["2026-11-24T22:41:39Z", "zeros", "acceptLoss=true"],
    );
    refused(it.promote(&accept), Precondition, &["rbd-mirror of this cluster", "stop"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: it was promoted");
    let mut dead = recorded::status("primary-dead-secondary");
    dead.own.is_up = false;
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, dead);
    refused(it.promote(&promotion(true)), Precondition, &["acceptLoss=true"]);
    it.promote(&accept).unwrap();
    assert_eq!(changes(&it), ["promote_by_force"]);
    // No copy was ever whole, or a promotion was broken off.
    it.set_copy("snapshots-incomplete", "primary-dead-secondary");
    let at = it.cluster.at();
    let snapshots = recorded::snapshots("snapshots-incomplete");
    it.cluster.set_mirror_snapshots(&at, &it.id.object, snapshots[1..].to_vec());
    refused(it.promote(&accept), Precondition, &["nothing to take over"]);
    it.cluster.set_mirror_snapshots(&at, &it.id.object, Vec::new());
    refused(it.promote(&accept), Precondition, &["nothing to take over"]);
    let torn = [snapshots, recorded::snapshots("snapshots-orphan")].concat();
    it.cluster.set_mirror_snapshots(&at, &it.id.object, torn);
    for asked in [promotion(false), promotion(true), accept] {
        refused(it.promote(&asked), Precondition, &["broken off in the middle of a copy"]);
    }
    assert_eq!(changes(&it), [""; 0], "UNSAFE: it was promoted");
}

/// The promotion waits until the copy is whole.
#[test]
fn a_copy_that_is_being_made_is_waited_for() {
    let it = scene();
    it.set_copy("snapshots-incomplete", "healthy-secondary");
    let (name, at) = (it.id.object.clone(), it.cluster.at());
    it.cluster.on_step(3, move |cluster| {
        cluster.set_mirror_snapshots(&at, &name, recorded::snapshots("snapshots-copy"));
    });
    it.promote(&promotion(true)).unwrap();
    assert!(it.is_primary());
}

#[test]
fn nothing_is_done_to_what_is_being_promoted_by_force() {
    let it = scene();
    it.set_copy("snapshots-copy", "split-brain-secondary");
    it.cluster.set_promoted_by_force(&it.id.object, true);
    refused(it.promote(&promotion(true)), Busy, &["by force"]);
    refused(it.disable(true), Busy, &["by force"]);
    refused(it.resync(true), Busy, &["by force"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: it was changed");
    it.cluster.set_promoted_by_force(&it.id.object, false);
    it.promote(&promotion(true)).unwrap();
}

#[test]
fn a_failed_command_proves_nothing() {
    let it = scene();
    it.set(true);
    it.cluster.fail_at(7, Fault::After);
    it.demote(false).unwrap();
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    it.cluster.fail_at(4, Fault::After);
    it.promote(&promotion(false)).unwrap();
    it.set_copy("snapshots-copy", "primary-dead-secondary");
    it.cluster.fail_at(3, Fault::Before);
    refused(it.promote(&promotion(true)), Timeout, &[]);
    assert_eq!(it.role(), Some((MirrorState::Enabled, false)));
}

/// An act, and the role that it ends in.
type Act = (&'static str, fn(&Scene), fn(&Scene) -> Result<()>, Option<(MirrorState, bool)>);

const ACTS: [Act; 5] = [
    (
        "enable",
        |it| it.cluster.set_mirror_pool(MirrorScope::Images, &["site-b"]),
        |it| it.enable(&ReplicationTerms { schedule: every(5), ..terms() }),
        Some((MirrorState::Enabled, true)),
    ),
    ("disable", |it| it.set(true), |it| it.disable(false), None),
    (
        "promote",
        |it| it.set_copy("snapshots-demotion-arrived", "both-demoted"),
        |it| it.promote(&promotion(false)),
        Some((MirrorState::Enabled, true)),
    ),
    (
        "promote by force",
        |it| it.set_copy("snapshots-copy", "primary-dead-secondary"),
        |it| it.promote(&promotion(true)),
        Some((MirrorState::Enabled, true)),
    ),
    ("demote", |it| it.set(true), |it| it.demote(false), Some((MirrorState::Enabled, false))),
];

/// Another controller does the same between two steps. Both report success, or the other one is told to try
/// again; the role is changed.
#[test]
fn two_controllers_do_the_same_at_once() {
    for (what, begin, act, end) in ACTS {
        for step in 1.. {
            let it = scene();
            begin(&it);
            let other =
                Scene { cluster: it.cluster.clone(), rbd: controller(&it.cluster, TWO), id: it.id.clone() };
            let (told, outcome) = std::sync::mpsc::channel();
            it.cluster.on_step(step, move |_| told.send(act(&other)).unwrap());
            act(&it).unwrap_or_else(|error| panic!("{what}, step {step}: {error}"));
            let Ok(other) = outcome.try_recv() else {
                assert!(step > 2, "{what}: the other one was never asked");
                break;
            };
            match other {
                // A demotion keeps others out of the image, for as long as it takes.
                Err(error) if what == "demote" => {
                    assert_eq!(error.kind(), Unavailable, "step {step}: {error}")
                }
                other => other.unwrap_or_else(|error| panic!("{what}, step {step}, the other one: {error}")),
            }
            assert_eq!(it.role(), end, "{what}, step {step}");
        }
    }
}

/// A copy has the same name, another id, and the first id in its record.
#[test]
fn a_copy_is_found_by_the_id_of_its_primary_and_under_that_cluster_s_name() {
    let it = mirrored_scene();
    it.enable(&terms()).unwrap();
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("first-copy-primary"));
    refused(it.destination(), Precondition, &["not copied to \"site-b\" yet"]);
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("healthy-primary"));
    assert_eq!(it.destination().unwrap(), format!("rbd:site-b:rbd::{}:{}", it.id.object, it.image()));

    // The other side: a cluster of its own, which serves the first one's name.
    let metadata = it.cluster.all_metadata(&it.cluster.at(), &it.id.object);
    let there = FakeCluster::new();
    create(&controller(&there, ONE), &wanted("other", GIB, None)).unwrap();
    let pairs: Vec<(&str, &str)> =
        metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let image = NewImage { name: &it.id.object, size: GIB, layout: &Layout::default(), metadata: &pairs };
    there.here().create(&image).unwrap();
    let credentials = Credentials { user: "csi".to_string(), key: Some(Secret::new("c2VjcmV0")) };
    let backup = Cluster {
        credentials: Some(credentials),
        serves: vec!["ceph".into()],
        peers: [("site-a".to_string(), "main".to_string())].into(),
        ..Cluster::named("backup")
    };
    let rbd = super::with_timing(Clusters::of([backup]), &there, TWO, timing());
    let copy = Scene { cluster: there, rbd, id: it.id.clone() };
    copy.set_copy("snapshots-copy", "failed-over-secondary");
    let found =
        copy.rbd.volumes().find(&call(), &copy.id, &Secrets::default()).unwrap().expect("by the first id");
    assert_eq!(found.id, it.id, "replies keep the caller's form");
    let mut status = recorded::status("failed-over-secondary");
    status.peers[0].site = "site-a".into();
    copy.cluster.set_mirror_status(&copy.cluster.at(), &copy.id.object, status);
    assert_eq!(copy.destination().unwrap(), format!("rbd:main:rbd::{}:{}", it.id.object, it.image()));
    let here = Place { cluster: "backup".into(), ..it.id.place.clone() };
    assert_eq!(copy.rbd.canonical(&it.id.place), here);
    assert_eq!(copy.rbd.canonical(&here), here);
    // The other cluster's name means only volumes that are mirrored.
    let find = |id: &VolumeId| copy.rbd.volumes().find(&call(), id, &Secrets::default()).unwrap();
    let other =
        VolumeId { object: volume_object("default", "other"), incarnation: None, place: here.clone() };
    assert!(find(&other).is_some() && find(&VolumeId { place: it.id.place.clone(), ..other }).is_none());
    let stranger = VolumeId { incarnation: Some("1f".into()), ..it.id.clone() };
    assert!(copy.rbd.volumes().find(&call(), &stranger, &Secrets::default()).unwrap().is_none());
}

#[test]
fn kinds_are_those_of_the_specification() {
    let it = scene();
    let gone = VolumeId { object: "csi-vol-none".into(), ..it.id.clone() };
    let none = Secrets::default();
    let of = it.rbd.replication().unwrap();
    let outcomes: [Result<()>; 7] = [
        of.enable(&call(), &gone, &terms(), &none),
        of.disable(&call(), &gone, false, &none),
        of.promote(&call(), &gone, &promotion(true), &none),
        of.demote(&call(), &gone, true, &none),
        of.resync(&call(), &gone, true, &none).map(drop),
        of.info(&call(), &gone, &none).map(drop),
        of.destination(&call(), &gone, &none).map(drop),
    ];
    for outcome in outcomes {
        refused(outcome, Kind::NotFound, &[]);
    }
    for outcome in [it.demote(true), it.resync(true).map(drop), it.destination().map(drop)] {
        refused(outcome, Kind::Precondition, &["not replicated"]);
    }
}
