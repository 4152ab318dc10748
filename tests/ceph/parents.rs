//! A deleted volume that clones read from goes with its last clone, even if the last two are deleted at once.

use std::sync::Barrier;
use std::thread;

use crate::support::corner::await_that;
use crate::support::requests::*;
use crate::support::{Client, Corner, is_full};

/// The number of parents that lose their last two clones at once.
fn pairs() -> usize {
    if is_full() { 40 } else { 2 }
}

/// A volume with two clones, deleted; the clones.
fn clones_of_deleted(corner: &Corner, client: &Client, number: usize) -> [String; 2] {
    let name = |what: &str| format!("{what}-{number}");
    let parent = client.create(&corner.volume(&name("parent"), 4)).expect("create").volume_id;
    let taken = client.create_snapshot(&snapshot(&name("taken"), &parent)).expect("take a snapshot");
    let taken = taken.snapshot.snapshot_id.clone();
    let clone = |what: &str| {
        let asked = from_snapshot(corner.volume(&name(what), 4), &taken);
        client.create(&asked).expect("clone").volume_id
    };
    let clones = [clone("first"), clone("second")];
    client.delete_volume(&delete(&parent)).expect("delete the parent");
    client.delete_snapshot(&delete_snapshot(&taken)).expect("delete its snapshot");
    clones
}

#[test]
fn parents_go_with_the_last_two_clones_at_once() {
    let corner = Corner::new();
    let daemons = [1, 2].map(|number| corner.setup_of(number).start());
    for number in 0..pairs() {
        let clones = clones_of_deleted(&corner, &daemons[0].client(), number);
        let at_once = Barrier::new(2);
        thread::scope(|scope| {
            for (daemon, clone) in daemons.iter().zip(&clones) {
                scope.spawn(|| {
                    let client = daemon.client();
                    at_once.wait();
                    await_that("the clone is deleted", || {
                        client.delete_volume(&delete(clone)).map_err(|refused| refused.message)
                    });
                });
            }
        });
    }
    corner.await_empty();
}

#[test]
fn content_goes_with_a_parent_that_is_large_for_a_call() {
    let corner = Corner::new();
    let daemon = corner.start();
    let client = daemon.client();
    let large = |name: &str| corner.volume(name, 5 << 10);
    let parent = client.create(&large("parent")).expect("create").volume_id;
    corner.poke(&parent, 4 << 30, b"content");
    let clone = client.create(&from_volume(large("clone"), &parent)).expect("clone").volume_id;
    client.delete_volume(&delete(&parent)).expect("delete the parent");
    client.delete_volume(&delete(&clone)).expect("delete the clone");
    corner.await_empty();
}
