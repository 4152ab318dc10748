//! Volumes that are given up on a node.

use super::publish::{refused, scene};
use super::*;
use crate::backend::PublishedBy;
use crate::error::Kind;

#[test]
fn a_volume_of_a_forgotten_cluster_is_given_up() {
    let scene = scene();
    let place = Place { cluster: "forgotten".into(), ..scene.id.place.clone() };
    let id = VolumeId { place, ..scene.id.clone() };
    for published in [PublishedBy::Controller, PublishedBy::Node] {
        assert!(scene.rbd.node().attached(&id).unwrap().is_none());
        scene.rbd.node().detach(&call(), &id, published, &Secrets::default()).unwrap();
    }
    assert!(scene.methods().is_empty(), "there is nobody to be asked");
    // Another cluster may have an image of the same name.
    let nameless = VolumeId { incarnation: None, ..id.clone() };
    let named = format!("{nameless}:IMAGE-ID");
    refused(scene.rbd.node().attached(&nameless), Kind::Precondition, &["\"forgotten\"", &named]);
}
