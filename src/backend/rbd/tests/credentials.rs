//! Clusters without a key of their own, which requests bring.

use super::publish::{block, given, refused, scene, unpublish};
use super::*;
use crate::backend::rbd::publish::to_node::publish_here;
use crate::error::Kind;

/// One who has no key of his own.
fn keyless(cluster: &FakeCluster) -> Rbd {
    Rbd::new(
        Arc::new(Clusters::of([Cluster::named("ceph")])),
        Arc::new(cluster.clone()),
        mapper(),
        ("node7", TWO),
        Arc::default(),
    )
}

/// The key that a request brings.
fn brought() -> Secrets {
    [("userID", "csi"), ("userKey", "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==")].into_iter().collect()
}

#[test]
fn a_cluster_without_a_key_of_its_own_takes_back_with_a_requests_key_only() {
    let it = scene();
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    let rbd = keyless(&it.cluster);
    refused(unpublish(&rbd, &it.id, Some("n1")), Kind::Unauthenticated, &["\"ceph\"", "userKey"]);
    rbd.publisher().unpublish(&call(), &it.id, Some("n1"), &brought()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}

#[test]
fn a_node_without_a_key_of_its_own_gives_back_with_a_requests_key() {
    let it = scene();
    let rbd = keyless(&it.cluster);
    publish_here(&rbd.context, &call(), &it.id, (&block(Mode::SingleNodeWriter), false), &brought()).unwrap();
    assert_eq!(given(&it.cluster), ["node7"]);
    refused(
        rbd.node().detach(&call(), &it.id, crate::backend::PublishedBy::Node, &Secrets::default()),
        Kind::Unauthenticated,
        &["\"ceph\"", "userKey"],
    );
    rbd.node().detach(&call(), &it.id, crate::backend::PublishedBy::Node, &brought()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}
