//! A file system that was removed.

use super::copies::{drop_snapshot, take};
use super::credentials::node;
use super::fences::unpublish;
use super::*;
use crate::backend::{NodeDriver, PublishedBy, Snapshots};

/// A controller for which the operator lists the file system as removed.
fn informed(cluster: &FakeFs) -> Context {
    controller_of(cluster, ONE, Cluster { removed_pools: vec!["cephfs".into()], ..Cluster::named("main") })
}

#[test]
fn a_node_lets_a_volume_go_whose_file_system_is_gone() {
    let cluster = FakeFs::default();
    let id = create(&controller(&cluster, ONE), "web", 4).unwrap().id;
    cluster.set_file_systems(&["other"]);
    let node = node(controller(&cluster, ONE));
    node.detach(&call(), &id, PublishedBy::Node, &Secrets::default()).unwrap();
}

#[test]
fn the_volumes_of_a_file_system_are_gone_once_it_is_listed_as_removed_and_only_then() {
    let cluster = FakeFs::default();
    let id = create(&controller(&cluster, ONE), "web", 4).unwrap().id;
    let snapshot = take(&controller(&cluster, ONE), &id, "s").unwrap().id;
    let informed = informed(&cluster);
    assert!(
        Volumes::find(&informed, &call(), &id, &Secrets::default()).unwrap().is_some(),
        "UNSAFE: it is still there"
    );
    publish(&informed, &id, "n1").unwrap();
    assert_eq!(delete(&informed, &id).unwrap_err().kind(), Kind::Precondition);
    cluster.set_file_systems(&["other"]);
    let uninformed = controller(&cluster, ONE);
    for refusal in [
        drop_snapshot(&uninformed, &snapshot).unwrap_err(),
        delete(&uninformed, &id).unwrap_err(),
        unpublish(&uninformed, &id, "n1").unwrap_err(),
    ] {
        assert!(
            refusal.kind() == Kind::Precondition && refusal.message().contains("removed_pools"),
            "{refusal}"
        );
    }
    let informed = self::informed(&cluster);
    assert_eq!(unpublish(&informed, &id, "n1").unwrap(), Unpublished::NoVolume);
    assert!(Snapshots::find(&informed, &call(), &snapshot, &Secrets::default()).unwrap().is_none());
    assert_eq!(drop_snapshot(&informed, &snapshot).unwrap(), Deleted::Absent);
    assert_eq!(delete(&informed, &id).unwrap(), Deleted::Absent);
    assert!(Volumes::find(&informed, &call(), &id, &Secrets::default()).unwrap().is_none());
    assert_eq!(create(&informed, "other", 4).map(|it| it.id.place.pool).unwrap(), "other");
    // The controller has seen the cluster without it.
    cluster.set_file_systems(&["cephfs", "other"]);
    assert_eq!(delete(&informed, &id).unwrap_err().kind(), Kind::Precondition, "UNSAFE: it is there again");
}
