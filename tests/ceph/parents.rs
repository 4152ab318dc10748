//! Deleted volumes that clones still read from go with the last of these, also where the last two go at once:
//! librbd then leaves one of some dozens in the trash for ever.

use std::sync::Barrier;
use std::thread;

use crate::support::requests::*;
use crate::support::{Client, Corner};

/// So many parents lose their last two clones at once.
fn pairs() -> usize {
    if std::env::var("TESTS").is_ok_and(|which| which == "full") { 200 } else { 20 }
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
                    client.delete_volume(&delete(clone)).expect("delete a clone");
                });
            }
        });
    }
    corner.await_empty();
    let left = |daemon: &crate::support::Daemon| daemon.log.lines_with("which no clone needs any more").len();
    println!("{} of {} parents were left by librbd", daemons.iter().map(left).sum::<usize>(), pairs());
}
