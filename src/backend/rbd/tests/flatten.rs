//! Chains of clones.

use std::sync::mpsc;

use super::*;
use crate::backend::rbd::tool::{Image, RbdTool};

/// A volume with this many parents, one behind the other.
fn chain(rbd: &Rbd, parents: usize) -> VolumeId {
    let mut id = create(rbd, &wanted("0", GIB, None)).unwrap().id;
    for link in 1..=parents {
        id = create(rbd, &wanted(&link.to_string(), 0, Some(Origin::Volume(id)))).unwrap().id;
    }
    id
}

fn is_flat(cluster: &FakeCluster, id: &VolumeId) -> bool {
    cluster.info(&call(), &cluster.spot(), Image::Named(&id.object)).unwrap().unwrap().parent.is_none()
}

#[test]
fn only_what_is_too_deep_is_flattened_and_only_while_nobody_has_it_open() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let eighth = chain(&rbd, 8);
    rbd.flattening.work_off();
    assert!(!is_flat(&cluster, &eighth));
    cluster.forget_steps();
    rbd.flattening.work_off();
    assert_eq!(cluster.steps().len(), 0, "nothing is left to do");
    let ninth = create(&rbd, &wanted("9", 0, Some(Origin::Volume(eighth.clone())))).unwrap().id;
    cluster.write(&cluster.spot(), &ninth.object, "data");
    cluster.watch(&cluster.spot(), &ninth.object, "10.0.0.7:0/1");
    rbd.flattening.work_off();
    assert!(!is_flat(&cluster, &ninth), "it is in use");
    cluster.unwatch("10.0.0.7:0/1");
    rbd.flattening.work_off();
    assert!(is_flat(&cluster, &ninth) && !is_flat(&cluster, &eighth));
    assert_eq!(cluster.content(&cluster.spot(), &ninth.object), "data");
    let tenth = create(&rbd, &wanted("10", 0, Some(Origin::Volume(ninth)))).unwrap().id;
    rbd.flattening.work_off();
    assert!(!is_flat(&cluster, &tenth), "its parent is flat");
}

#[test]
fn depths_that_are_known_cost_nothing() {
    let cluster = FakeCluster::new();
    let rbd = controller(&cluster, ONE);
    let first = chain(&rbd, 1);
    rbd.flattening.work_off();
    create(&rbd, &wanted("second", 0, Some(Origin::Volume(first)))).unwrap();
    cluster.forget_steps();
    rbd.flattening.work_off();
    assert_eq!(cluster.steps().len(), 0);
}

#[test]
fn a_thread_does_it() {
    let cluster = FakeCluster::new();
    let ninth = chain(&controller(&cluster, ONE), 8);
    let rbd = controller(&cluster, ONE);
    let tenth = create(&rbd, &wanted("x", 0, Some(Origin::Volume(ninth)))).unwrap().id;
    let (done, awaited) = mpsc::channel();
    // Nine parents, the image itself, its watchers, and the flattening.
    cluster.on_step(12, move |cluster| done.send(is_flat(cluster, &tenth)).unwrap());
    rbd.flattening.start().unwrap();
    rbd.flattening.start().unwrap();
    assert!(awaited.recv_timeout(Duration::from_secs(20)).unwrap());
}
