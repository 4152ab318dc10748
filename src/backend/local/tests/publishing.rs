//! Publishing a volume to its node, and unpublishing it.

use super::*;
use crate::backend::{Deleted, NodeDriver, Publication, PublishedBy};

fn publication(read_only: bool) -> Publication {
    Publication { node: NODE.into(), capability: block(), read_only }
}

#[test]
fn publishing_twice_as_before_is_publishing_once() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    for _ in 0..2 {
        assert_eq!(
            it.local.publish(&it.call, &volume.id, &publication(false), &it.none).unwrap(),
            Map::new()
        );
    }
    assert_eq!(it.find(&volume).unwrap().published, [NODE]);
}

#[test]
fn publishing_otherwise_is_told_the_difference() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let publish = |publication: &Publication| it.local.publish(&it.call, &volume.id, publication, &it.none);
    publish(&publication(false)).unwrap();
    refused(publish(&publication(true)), Kind::AlreadyExists, &[&volume.id.to_string(), "readonly = false"]);
    let mode = Capability { mode: Mode::SingleNodeSingleWriter, ..block() };
    refused(
        publish(&Publication { capability: mode, ..publication(false) }),
        Kind::AlreadyExists,
        &["SingleNodeWriter"],
    );
}

#[test]
fn only_the_own_node_is_known() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let elsewhere = Publication { node: "other".into(), ..publication(false) };
    let published = it.local.publish(&it.call, &volume.id, &elsewhere, &it.none);
    refused(published, Kind::NotFound, &["\"other\" is unknown", NODE, &volume.id.to_string()]);
    it.delete(&volume.id).unwrap();
    refused(
        it.local.publish(&it.call, &volume.id, &publication(false), &it.none),
        Kind::NotFound,
        &[&volume.id.to_string()],
    );
}

#[test]
fn a_published_volume_is_not_deleted_until_it_is_taken_back() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    it.local.publish(&it.call, &volume.id, &publication(true), &it.none).unwrap();
    refused(it.delete(&volume.id), Kind::Precondition, &[NODE, "unpublish it first"]);
    it.local.unpublish(&it.call, &volume.id, Some("other"), &it.none).unwrap();
    assert_eq!(it.find(&volume).unwrap().published, [NODE], "another node does not have it");
    for node in [Some(NODE), None, Some(NODE)] {
        it.local.unpublish(&it.call, &volume.id, node, &it.none).unwrap();
        assert!(it.find(&volume).unwrap().published.is_empty());
    }
    assert_eq!(it.delete(&volume.id).unwrap(), Deleted::Gone);
    it.local.unpublish(&it.call, &volume.id, None, &it.none).unwrap();
}

#[test]
fn a_damaged_publication_is_healed_by_unpublishing() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    std::fs::write(it.path(&volume, "published"), "{").unwrap();
    let published = it.local.publish(&it.call, &volume.id, &publication(false), &it.none);
    refused(published, Kind::Internal, &["published: it is damaged", "unpublish"]);
    refused(it.delete(&volume.id), Kind::Precondition, &["unpublish"]);
    let told = it.find(&volume).unwrap().condition.flatten().unwrap();
    assert!(
        told.reason == Reason::RecordUnreadable && told.detail.contains("published: it is damaged"),
        "{told}"
    );
    it.local.unpublish(&it.call, &volume.id, Some(NODE), &it.none).unwrap();
    it.local.publish(&it.call, &volume.id, &publication(false), &it.none).unwrap();
}

/// First the operator publishes the volume, then an orchestrator does.
#[test]
fn the_node_gives_back_what_it_has_published_to_itself_and_nothing_else() {
    let it = fixture();
    let volume = it.volume("a", MIB);
    let detach = |by| it.local.detach(&it.call, &volume.id, by, &it.none).unwrap();
    let published = || it.find(&volume).unwrap().published;
    for _ in 0..2 {
        it.local.publish_here(&volume.id, &publication(false)).unwrap();
    }
    refused(
        it.local.publish_here(&volume.id, &publication(true)),
        Kind::AlreadyExists,
        &["readonly = false", "unpublish"],
    );
    refused(it.delete(&volume.id), Kind::Precondition, &["cephlet volume reclaim", NODE]);
    detach(PublishedBy::Controller);
    assert_eq!(published(), [NODE]);
    for _ in 0..2 {
        detach(PublishedBy::Node);
        assert!(published().is_empty());
    }
    it.local.publish_here(&volume.id, &publication(false)).unwrap();
    it.local.publish(&it.call, &volume.id, &publication(false), &it.none).unwrap();
    detach(PublishedBy::Node);
    assert_eq!(published(), [NODE], "it is the controller's now");
}
