//! Deep chains of clones are flattened in the background; that is killed and goes on later.

use std::time::Duration;

use super::chain::Chain;
use super::killer::{Killer, kills};
use crate::support::object_of;
use crate::support::requests::*;

/// What failed is tried again after a minute, and may fail again.
const SETTLED: Duration = Duration::from_secs(1200);
/// What a flatten takes, in microseconds: half of it goes by before it copies anything.
const FLATTEN: u64 = 120_000;
/// What a daemon logs of an image that has no parents any more.
const FLAT: &str = " has no parents any more";

#[test]
#[ignore = "random: tests/run --full"]
fn a_flattening_that_is_killed_is_done_later() {
    let killer = Killer::of(&["flatten"]);
    let client = killer.client();
    let chain = Chain::grow(&killer.corner, &client);
    let sum = killer.corner.checksum(&chain.volumes[0]);
    killer.arm_within(FLATTEN, kills());
    let numbers: Vec<usize> = (0..kills()).collect();
    let leaves = killer.each(&numbers, |client, number| chain.copy(client, &format!("leaf-{number}")));
    killer.daemon.log.await_lines_within(SETTLED, FLAT, leaves.len());
    eprintln!("{} were killed", killer.killed());
    assert!(killer.killed() > kills() / 2, "only {} were killed", killer.killed());
    let rows = killer.corner.rows();
    for leaf in &leaves {
        assert!(rows[object_of(leaf)]["parent"].is_null(), "{leaf}");
    }
    killer.each(&leaves, |client, leaf| {
        assert_eq!(killer.corner.checksum(leaf), sum, "{leaf}");
        client.delete_volume(&delete(leaf)).expect("delete");
    });
    chain.delete(&client);
    killer.clear(&[]);
}
