//! Clusters without a key of their own, which requests bring.

use super::publish::{Scene, block, given, refused, scene, unpublish};
use super::*;
use crate::backend::rbd::publish::to_node::publish_here;
use crate::backend::{Publication, PublishedBy};
use crate::error::Kind;

/// A daemon that has no key of its own.
fn keyless(cluster: &FakeCluster) -> Rbd {
    Rbd::new(
        Arc::new(Clusters::of([Cluster::named("ceph")])),
        Arc::new(cluster.clone()),
        mapper(),
        (identity("node7", TWO), true, Timing::default()),
        background(cluster, TWO),
    )
}

/// The key that a request brings.
fn brought() -> Secrets {
    [("userID", "csi"), ("userKey", "AQDQ8UNlAAAAABAAm0PCqH4mvIJzDXuEHWoW9g==")].into_iter().collect()
}

#[test]
fn a_volume_is_taken_back_with_the_secrets_that_it_was_published_with() {
    let it = scene();
    let rbd = keyless(&it.cluster);
    let publication =
        Publication { node: "n1".into(), capability: block(Mode::SingleNodeWriter), read_only: false };
    let publish = |secrets: &Secrets| rbd.publisher().publish(&call(), &it.id, &publication, secrets);
    refused(publish(&Secrets::default()), Kind::Unauthenticated, &["\"ceph\"", "userKey"]);
    publish(&brought()).unwrap();
    assert_eq!(given(&it.cluster), ["n1"]);
    // The answer to the first request may have been lost.
    for _ in 0..2 {
        unpublish(&rbd, &it.id, Some("n1")).unwrap();
        assert_eq!(given(&it.cluster), [""; 0]);
    }
    assert!(!format!("{:?}", rbd.context.memory).contains("AQDQ8"), "UNSAFE: a key is shown");
}

#[test]
fn whoever_has_not_published_a_volume_takes_it_back_with_a_requests_key_only() {
    let it = scene();
    it.publish("n1", Mode::SingleNodeWriter, false).unwrap();
    let rbd = keyless(&it.cluster);
    refused(unpublish(&rbd, &it.id, Some("n1")), Kind::Unauthenticated, &["\"ceph\"", "userKey"]);
    rbd.publisher().unpublish(&call(), &it.id, Some("n1"), &brought()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}

/// A node without a key of its own that has published the volume to itself.
fn publishing_node(it: &Scene) -> Rbd {
    let rbd = keyless(&it.cluster);
    let using = (&block(Mode::SingleNodeWriter), false);
    publish_here(&rbd.context, &call(), &it.id, using, &brought()).unwrap();
    assert_eq!(given(&it.cluster), ["node7"]);
    rbd
}

#[test]
fn a_node_gives_back_with_the_secrets_that_it_published_with() {
    let it = scene();
    let rbd = publishing_node(&it);
    rbd.node().detach(&call(), &it.id, PublishedBy::Node, &Secrets::default()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}

#[test]
fn a_node_that_was_restarted_and_has_no_key_lets_the_volume_go_all_the_same() {
    let it = scene();
    drop(publishing_node(&it));
    let restarted = keyless(&it.cluster);
    restarted.node().detach(&call(), &it.id, PublishedBy::Node, &Secrets::default()).unwrap();
    assert_eq!(given(&it.cluster), ["node7"], "nobody had a key");
    restarted.node().detach(&call(), &it.id, PublishedBy::Node, &brought()).unwrap();
    assert_eq!(given(&it.cluster), [""; 0]);
}
