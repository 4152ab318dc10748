//! Changes of the role that were broken off by the end of their command.

use super::mirror::{changes, promotion, terms};
use super::publish::{refused, scene};
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::rbd::tool::fake::Fault;
use crate::backend::rbd::tool::*;
use crate::backend::replication::*;
use crate::error::Kind::*;

#[test]
fn a_promotion_that_was_broken_off_is_made_good() {
    let it = scene();
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    let (name, at) = (it.id.object.clone(), it.cluster.at());
    it.cluster.leave_between_roles(&at, &name);
    let published = it.publish("n1", crate::csi::Mode::SingleNodeWriter, false).map(drop);
    for refusal in [it.disable(false), it.enable(&terms()), published] {
        refused(refusal, Precondition, &["broken off", "replication promote"]);
    }
    let told = it.info().unwrap();
    assert_eq!(told.health, ReplicationHealth::Error, "{}", told.message);
    assert_eq!(changes(&it), ["lock", "unlock"]);
    // Its peer may have been promoted by force meanwhile.
    it.cluster.set_mirror_status(&at, &name, recorded::status("two-primaries"));
    let told = it.info().unwrap();
    assert!(told.message.contains("both may have been written to"), "{}", told.message);
    refused(it.promote(&promotion(false)), Unavailable, &["broken off", "primary there"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: two are primary");
    it.cluster.set_mirror_status(&at, &name, recorded::status("both-demoted"));
    it.promote(&promotion(false)).unwrap();
    assert_eq!(changes(&it), ["lock", "demote", "unlock", "promote"]);
    assert!(it.is_primary());
}

/// The peer would wait for the rest of the demotion for ever.
#[test]
fn a_demotion_that_was_broken_off_is_made_good() {
    let it = scene();
    let mut half = recorded::snapshots("snapshots-demoted");
    half.last_mut().unwrap().complete = false;
    for (act, steps) in
        [("demote", ["lock", "promote", "demote", "unlock"].as_slice()), ("promote", &["promote"])]
    {
        it.set_copy("snapshots-demoted", "both-demoted");
        it.cluster.set_mirror_snapshots(&it.cluster.at(), &it.id.object, half.clone());
        match act {
            "demote" => it.demote(false).unwrap(),
            _ => it.promote(&promotion(false)).unwrap(),
        }
        assert_eq!(changes(&it), steps);
    }
    it.set_copy("snapshots-demoted", "healthy-secondary");
    it.cluster.set_mirror_snapshots(&it.cluster.at(), &it.id.object, half);
    refused(it.promote(&promotion(false)), Unavailable, &["broken off", "primary there"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: two are primary");
}

/// The command would promote the copy, and mix two states.
#[test]
fn a_copy_that_is_not_whole_is_not_made_a_volume_of_its_own() {
    let it = scene();
    it.set_copy("snapshots-incomplete", "primary-dead-secondary");
    refused(it.disable(true), Precondition, &["by force", "loses more"]);
    let mut torn = recorded::snapshots("snapshots-incomplete");
    torn.extend(recorded::snapshots("snapshots-orphan"));
    it.cluster.set_mirror_snapshots(&it.cluster.at(), &it.id.object, torn);
    refused(it.disable(true), Precondition, &["newer than the rest"]);
    assert_eq!(changes(&it), [""; 0], "UNSAFE: it was promoted");
}

#[test]
fn a_copy_that_was_being_made_a_volume_of_its_own_becomes_one() {
    let it = scene();
    it.set_copy("snapshots-copy", "primary-dead-secondary");
    it.cluster.fail_at(5, Fault::HalfMade);
    refused(it.disable(true), Timeout, &[]);
    assert_eq!(it.role(), Some((MirrorState::Disabling, false)));
    it.cluster.set_mirror_snapshots(&it.cluster.at(), &it.id.object, recorded::snapshots("snapshots-copy"));
    refused(it.disable(false), Internal, &["by force"]);
    it.disable(true).unwrap();
    assert_eq!(it.role(), None);
}

/// The peer goes on reading the journal, which does not say that the image is demoted.
#[test]
fn a_demotion_that_the_journal_does_not_say_is_made_good() {
    let it = scene();
    let (at, name) = (it.cluster.at(), it.id.object.clone());
    let id = it.image();
    let demoted = |whose: &str, status: &str| {
        it.cluster.set_mirrored_by(&at, &name, MirroringMode::Journal, MirrorState::Enabled, false);
        it.cluster.on(&at).set_metadata(&name, "cephlet.demoted", whose).unwrap();
        it.cluster.set_mirror_snapshots(&at, &name, recorded::snapshots("snapshots-demoted"));
        it.cluster.set_mirror_status(&at, &name, recorded::status(status));
        changes(&it);
    };
    demoted(&id, "journal-primary");
    it.demote(false).unwrap();
    assert_eq!(changes(&it), [""; 0], "it is on its way");
    it.cluster.leave_bare_tag(&at, &name);
    for (whose, status) in [("1f2e", "journal-primary"), (&id, "both-demoted"), (&id, "journal-dead-primary")]
    {
        demoted(whose, status);
        it.demote(false).unwrap();
        assert_eq!(changes(&it), [""; 0], "{whose} {status}");
    }
    demoted(&id, "journal-primary");
    it.demote(false).unwrap();
    assert_eq!(changes(&it), ["lock", "promote", "set_metadata", "demote", "unlock"]);
    it.demote(false).unwrap();
    assert_eq!(changes(&it), [""; 0]);
}
