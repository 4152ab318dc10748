//! Changes of the role that were broken off, by the end of their command.

use super::mirror::{changes, promotion, terms};
use super::publish::{refused, scene};
use crate::backend::rbd::tool::cli::mirror_output::recorded;
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
    it.promote(&promotion(false)).unwrap();
    assert_eq!(changes(&it), ["demote", "promote"]);
    assert!(it.is_primary());
}

/// The peer would wait for it for ever.
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
}
