//! Volumes by their names.

use super::delete::delete;
use super::topology::{three_zones, wanted_in};
use super::*;
use crate::backend::Named;
use crate::error::Kind;
use crate::ids;

/// The volumes of a name, with these parameters.
fn named(rbd: &Rbd, name: &str, parameters: &[(&str, &str)]) -> Result<Vec<VolumeId>> {
    let parameters = parameters.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    rbd.volumes()
        .named(&call(), &Named { object: &ids::common_object("default", name), parameters: &parameters })
}

#[test]
fn a_name_means_the_volume_in_the_usual_pool_until_it_is_deleted() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let id = create(&rbd, &wanted("web", GIB, None)).unwrap().id;
    assert_eq!(named(&rbd, "web", &[]).unwrap(), std::slice::from_ref(&id));
    for parameters in [[("pool", "rbd")], [("cluster", "ceph")]] {
        assert_eq!(named(&rbd, "web", &parameters).unwrap(), std::slice::from_ref(&id));
    }
    assert!(named(&rbd, "Web", &[]).unwrap().is_empty(), "names that look alike are others");
    assert!(named(&rbd, "web", &[("namespace", "team")]).unwrap().is_empty());
    assert_eq!(named(&rbd, "web", &[("colour", "red")]).unwrap_err().kind(), Kind::InvalidArgument);
    delete(&rbd, &id).unwrap();
    assert!(named(&rbd, "web", &[]).unwrap().is_empty());
}

/// A name costs a look at its image and at its claim, however many images there are.
#[test]
fn no_list_is_read_for_a_name() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    for number in 0..20 {
        create(&rbd, &wanted(&format!("v{number}"), GIB, None)).unwrap();
    }
    named(&rbd, "v1", &[]).unwrap();
    cluster.forget_steps();
    assert_eq!(named(&rbd, "v7", &[]).unwrap().len(), 1);
    assert_eq!(cluster.steps().len(), 2, "{:?}", cluster.steps());
}

#[test]
fn a_volume_in_another_pool_is_found_where_it_is_said_to_be_or_by_its_claim() {
    let cluster = three_zones();
    let rbd = controller(&cluster, ONE);
    let placed = create(&rbd, &wanted_in("placed", &["2"], &[])).unwrap().id;
    assert_eq!(
        (placed.place.pool.as_str(), named(&rbd, "placed", &[]).unwrap()),
        ("two", vec![placed.clone()])
    );
    let mut new = wanted("apart", GIB, None);
    new.place.pool = "three".into();
    let apart = create(&rbd, &new).unwrap().id;
    assert!(named(&rbd, "apart", &[]).unwrap().is_empty());
    assert_eq!(named(&rbd, "apart", &[("pool", "three")]).unwrap(), [apart]);
    delete(&rbd, &placed).unwrap();
    assert!(named(&rbd, "placed", &[]).unwrap().is_empty());
}

#[test]
fn volumes_of_one_name_in_two_clusters_are_both_found() {
    let cluster = FakeCluster::new();
    let rbd = controller_of(&cluster, ONE, &["ceph", "other"]);
    create(&rbd, &wanted("web", GIB, None)).unwrap();
    let both = named(&rbd, "web", &[]).unwrap();
    let clusters: Vec<&str> = both.iter().map(|id| id.place.cluster.as_str()).collect();
    assert_eq!(clusters, ["ceph", "other"], "one cluster by two names");
    assert_eq!(named(&rbd, "web", &[("cluster", "other")]).unwrap(), both[1..]);
}
