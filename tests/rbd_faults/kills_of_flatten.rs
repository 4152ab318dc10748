//! Deep chains of clones are flattened in the background; that is killed and goes on later.

use std::thread;
use std::time::{Duration, Instant};

use super::killer::{Killer, kills};
use crate::support::requests::*;
use crate::support::{Client, object_of};

/// So many parents an image may have.
const DEEPEST: usize = 8;
const MIBS: i64 = 8;
/// What failed is tried again after a minute.
const SETTLED: Duration = Duration::from_secs(240);

/// A chain of clones.
struct Chain {
    volumes: Vec<String>,
    snapshots: Vec<String>,
}

impl Chain {
    /// As deep as one may be.
    fn grow(killer: &Killer, client: &Client) -> Self {
        let root = client.create(&killer.corner.volume("root", MIBS)).expect("create").volume_id;
        killer.corner.fill(&root);
        let mut chain = Self { volumes: vec![root], snapshots: Vec::new() };
        chain.take_snapshot(client);
        for link in 1..=DEEPEST {
            let copy = chain.copy(killer, client, &format!("link-{link}"));
            chain.volumes.push(copy);
            chain.take_snapshot(client);
        }
        chain
    }

    fn take_snapshot(&mut self, client: &Client) {
        let name = format!("snap-{}", self.volumes.len());
        let taken = client.create_snapshot(&snapshot(&name, self.volumes.last().expect("a volume"))).expect("snapshot");
        self.snapshots.push(taken.snapshot.snapshot_id.clone());
    }

    /// A copy of its end.
    fn copy(&self, killer: &Killer, client: &Client, name: &str) -> String {
        let request = from_snapshot(killer.corner.volume(name, MIBS), self.snapshots.last().expect("a snapshot"));
        client.create(&request).expect("copy").volume_id
    }

    fn delete(self, client: &Client) {
        for (id, snap) in self.volumes.iter().zip(&self.snapshots).rev() {
            client.delete_snapshot(&delete_snapshot(snap)).expect("delete the snapshot");
            client.delete_volume(&delete(id)).expect("delete");
        }
    }
}

fn await_flat(killer: &Killer, leaves: &[String]) {
    let until = Instant::now() + SETTLED;
    loop {
        let rows = killer.corner.rows();
        let deep = leaves.iter().filter(|leaf| !rows[object_of(leaf)]["parent"].is_null()).count();
        if deep == 0 {
            return;
        }
        assert!(Instant::now() < until, "{deep} of {} are not flattened:\n{}", leaves.len(), killer.daemon.log.text());
        thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_flattening_that_is_killed_is_done_later() {
    let killer = Killer::of(&["flatten"]);
    let client = killer.client();
    let chain = Chain::grow(&killer, &client);
    let sum = killer.corner.checksum(&chain.volumes[0]);
    killer.arm(kills());
    let numbers: Vec<usize> = (0..kills()).collect();
    let leaves = killer.each(&numbers, |client, number| chain.copy(&killer, client, &format!("leaf-{number}")));
    await_flat(&killer, &leaves);
    eprintln!("{} were killed", killer.killed());
    assert!(killer.killed() > kills() / 2, "only {} were killed", killer.killed());
    for leaf in &leaves {
        assert_eq!(killer.corner.checksum(leaf), sum, "{leaf}");
    }
    killer.each(&leaves, |client, leaf| client.delete_volume(&delete(leaf)).expect("delete"));
    chain.delete(&client);
    killer.clear(&[]);
}
