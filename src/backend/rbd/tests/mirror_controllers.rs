//! What a controller remembers of replication after other controllers have changed it.

use super::mirror::{every, mirrored_scene, promotion, terms};
use super::publish::Scene;
use super::*;
use crate::backend::rbd::tool::cli::mirror_output::recorded;
use crate::backend::replication::*;

/// Has another controller of the same cluster change the volume's replication.
fn by_another(it: &Scene, ask: impl Fn(&dyn Replication, &Call) -> Result<()>) {
    let other = controller(&it.cluster, TWO);
    ask(other.replication().unwrap(), &call()).unwrap();
}

fn schedules(it: &Scene) -> Vec<Schedule> {
    it.cluster.schedules_of(&it.cluster.at(), &it.id.object)
}

/// The side that takes over finds the schedule in the metadata.
#[test]
fn a_schedule_is_kept_again_that_another_controller_has_taken_away() {
    let it = mirrored_scene();
    let scheduled = ReplicationTerms { schedule: every(5), ..terms() };
    it.enable(&scheduled).unwrap();
    by_another(&it, |of, call| of.disable(call, &it.id, false, &Secrets::default()));
    it.enable(&scheduled).unwrap();
    let kept = it.cluster.all_metadata(&it.cluster.at(), &it.id.object);
    assert_eq!(kept["cephlet.replication"], "{\"version\":1,\"interval\":\"5m\"}");
    assert_eq!(schedules(&it), every(5).into_iter().collect::<Vec<_>>());
}

#[test]
fn a_promotion_leaves_the_schedule_that_was_asked_for_last() {
    let it = mirrored_scene();
    it.enable(&ReplicationTerms { schedule: every(5), ..terms() }).unwrap();
    it.set_copy("snapshots-demotion-arrived", "both-demoted");
    it.promote(&Promotion { schedule: every(60), ..promotion(false) }).unwrap();
    assert_eq!(schedules(&it), every(60).into_iter().collect::<Vec<_>>(), "it was primary before");
    it.promote(&Promotion { schedule: every(15), ..promotion(false) }).unwrap();
    assert_eq!(schedules(&it), every(15).into_iter().collect::<Vec<_>>());
}

/// Enabling mirroring gives the volume the id by which its ID is known at the other site.
#[test]
fn a_destination_is_the_same_from_every_controller() {
    let it = mirrored_scene();
    let other = controller(&it.cluster, TWO);
    let destination = |rbd: &Rbd| {
        let asked = rbd.replication().unwrap().destination(&call(), &it.id, &Secrets::default());
        asked.unwrap().to_string()
    };
    // The volume was mirrored by hand, and the record is read before mirroring is enabled here.
    it.set(true);
    it.cluster.set_mirror_status(&it.cluster.at(), &it.id.object, recorded::status("healthy-primary"));
    assert!(!destination(&other).ends_with(&it.image()));
    it.enable(&terms()).unwrap();
    assert!(destination(&other).ends_with(&it.image()), "{}", destination(&other));
}
