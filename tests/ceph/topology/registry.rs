//! The registry of names: a name is one volume for all controllers.

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use cephlet::proto::csi_v1 as wire;

use super::{ZONES, Zones, pool_of};
use crate::controllers::settle;
use crate::processes::Counted;
use crate::support::requests::*;
use crate::support::{Client, Cluster, Code, object_of, refused};

/// Two controllers with different preferences are asked for the same names at once.
fn same_names(count: usize) {
    let zones = Zones::new();
    let daemons = [zones.start(), zones.start()];
    let start = Barrier::new(2);
    let create_all = |number: usize, client: Client| -> Vec<wire::Volume> {
        start.wait();
        let create = |name: usize| {
            let request = zones.volume(&format!("v{name}"), &[ZONES[(name + number) % 3]], &ZONES);
            settle(|| client.create(&request))
        };
        (0..count).map(create).collect()
    };
    let [one, other] = thread::scope(|scope| {
        let create_all = &create_all;
        let run = |number: usize| {
            let client = daemons[number].client();
            scope.spawn(move || create_all(number, client))
        };
        [run(0), run(1)].map(|run| run.join().expect("a client"))
    });
    assert_eq!(one, other);
    let images: Vec<String> = ZONES.iter().flat_map(|pool| zones.images(pool)).collect();
    let objects: BTreeSet<&str> = one.iter().map(|made| object_of(&made.volume_id)).collect();
    assert_eq!(images.iter().map(String::as_str).collect::<BTreeSet<_>>(), objects);
    assert_eq!((images.len(), zones.claims().len()), (count, count));
    for (number, made) in one.iter().enumerate() {
        settle(|| daemons[number % 2].client().delete_volume(&delete(&made.volume_id)));
    }
    zones.assert_empty();
}

/// "We need a single pool that can hold information about the various CSI volumes to maintain idempotent
/// responses to various CSI RPCs."
#[test]
fn the_same_names_are_claimed_once_by_two_controllers() {
    same_names(6);
}

#[test]
#[ignore = "long: tests/run --full"]
fn the_same_fifty_names_are_claimed_once_by_two_controllers() {
    same_names(50);
}

#[test]
fn a_claim_costs_one_process_more() {
    let zones = Zones::new();
    let counted = Counted::of(zones.start());
    counted.run(|client| client.create(&zones.volume("first", &["zone-1"], &[]))).expect("create");
    let create = |name| zones.volume(name, &["zone-1"], &[]);
    let made = counted.costs(2..=5, "create", |client| client.create(&create("web"))).expect("create");
    counted.costs(1..=2, "the same creation", |client| client.create(&create("web"))).expect("again");
    counted.costs(1..=7, "delete", |client| client.delete_volume(&delete(&made.volume_id))).expect("delete");
}

/// In a cluster of its own, as others must not see a pool come and go.
#[test]
#[ignore = "long, with a cluster of its own: tests/run --full"]
fn a_pool_that_vanishes_leaves_a_claim_that_can_be_freed() {
    let zones = Zones::of(Box::leak(Box::new(Cluster::start())));
    let daemon = zones.start_with("");
    let client = daemon.client();
    let made = client.create(&zones.volume("web", &["zone-1"], &ZONES)).expect("create");
    let claims = zones.claims();
    zones.cluster.ceph(&["osd", "pool", "rename", "zone-1", "gone"]);
    let command = format!("rados --pool=rbd --namespace={} rm {}", zones.namespace, claims[0]);
    for client in [&client, &zones.start_with("").client()] {
        let request = zones.volume("web", &["zone-2"], &ZONES);
        refused(client.create(&request), Code::FAILED_PRECONDITION, &[&command, "\"zone-1\""]);
    }
    // The pool may be chosen once more by cached knowledge, but not again.
    let another = || client.create(&zones.volume("another", &["zone-1"], &ZONES));
    let elsewhere = another().or_else(|failure| {
        assert!(failure.message.contains("zone-1"), "{failure:?}");
        another()
    });
    assert_ne!(pool_of(&elsewhere.expect("elsewhere")), "zone-1");
    let fresh = zones.start_with("");
    let labelled = fresh.client().create(&zones.volume("third", &["zone-1"], &ZONES)).expect("elsewhere");
    assert_eq!(pool_of(&labelled), "gone", "its label goes with it");
    let words: Vec<&str> = command.split_whitespace().skip(1).collect();
    zones.cluster.rados(&words);
    let anew = client.create(&zones.volume("web", &["zone-2"], &ZONES)).expect("the name is free");
    assert_eq!(pool_of(&anew), "zone-2");
    zones.cluster.ceph(&["osd", "pool", "rename", "gone", "zone-1"]);
    client.delete_volume(&delete(&made.volume_id)).expect("the first one");
    assert_eq!(client.create(&zones.volume("web", &["zone-1"], &ZONES)).expect("again"), anew);
}
